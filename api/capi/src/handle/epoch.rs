//! Epochs: a freed object is dropped when every thread that may still read it has left its epoch.
//!
//! A reader writes one word of its own before and after (two plain stores); the thread that frees has the kernel order those
//! writes (`membarrier`) and then looks at them. Where that system call is not to be had, readers use a real fence.

use std::any::Any;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering, fence};

use dat_sync::membarrier;
use parking_lot::Mutex;

/// A thread is inside as long as it has one. Guards nest.
pub struct Guard {
    /// `None`: the thread was inside already, and its first guard leaves.
    record: Option<&'static Record>,
    /// It belongs to the thread that made it.
    _not_send: std::marker::PhantomData<*const ()>,
}

/// One thread's word: odd while it is inside, and never the same twice. Records are reused and never freed.
#[repr(align(64))]
struct Record {
    word: AtomicU64,
    taken: AtomicBool,
    next: AtomicPtr<Record>,
}

static RECORDS: AtomicPtr<Record> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static OWN: Cell<Option<&'static Record>> = const { Cell::new(None) };
    /// Gives the record back when the thread ends.
    static LEASE: Lease = const { Lease };
}

struct Lease;

impl Drop for Lease {
    fn drop(&mut self) {
        // Later destructors of this thread may come in again: they take a record for good.
        if let Some(record) = OWN.replace(None) {
            record.taken.store(false, Ordering::Release);
        }
    }
}

/// How a reader orders its announcement before its look.
static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const KERNEL: u8 = 1;
const FENCE: u8 = 2;

/// Comes in.
#[inline]
pub fn enter() -> Guard {
    let record = OWN.get().unwrap_or_else(|| own_record());
    let word = record.word.load(Ordering::Relaxed);
    if word & 1 == 1 {
        return Guard { record: None, _not_send: std::marker::PhantomData };
    }
    record.word.store(word + 1, Ordering::Relaxed);
    if MODE.load(Ordering::Relaxed) == KERNEL {
        membarrier::light();
    } else {
        fence(Ordering::SeqCst);
    }
    Guard { record: Some(record), _not_send: std::marker::PhantomData }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        if let Some(record) = self.record {
            let word = record.word.load(Ordering::Relaxed);
            record.word.store(word + 1, Ordering::Release);
        }
    }
}

/// Drops `object` when every reader that may see it has left. New readers must not be able to reach it.
pub fn retire(object: Box<dyn Any + Send>) {
    match inside() {
        Some(readers) if readers.is_empty() => drop(object),
        Some(readers) => GRAVES.lock().push(Grave { object, readers }),
        // No thread can tell which readers are inside. The object is kept for good, so that no reader loses it.
        None => std::mem::forget(object),
    }
    collect();
}

/// Drops what can be dropped by now.
pub fn collect() {
    let mut free = Vec::new();
    {
        let mut graves = GRAVES.lock();
        let mut i = 0;
        while i < graves.len() {
            graves[i].readers.retain(|(record, word)| record.word.load(Ordering::Acquire) == *word);
            match graves[i].readers.is_empty() {
                true => free.push(graves.swap_remove(i)),
                false => i += 1,
            }
        }
    }
    // Outside of the lock: what is dropped may free more.
    for grave in free {
        drop(grave.object);
    }
}

struct Grave {
    object: Box<dyn Any + Send>,
    readers: Vec<(&'static Record, u64)>,
}

static GRAVES: Mutex<Vec<Grave>> = Mutex::new(Vec::new());

/// Every thread that is inside now; `None` when that cannot be known.
fn inside() -> Option<Vec<(&'static Record, u64)>> {
    if !order_readers() {
        return None;
    }
    let mut found = Vec::new();
    let mut next = RECORDS.load(Ordering::Acquire);
    // SAFETY: records are leaked boxes and stay in the list for ever.
    while let Some(record) = unsafe { next.as_ref() } {
        let word = record.word.load(Ordering::Acquire);
        if word & 1 == 1 {
            found.push((record, word));
        }
        next = record.next.load(Ordering::Acquire);
    }
    Some(found)
}

/// After this, a reader that came in before is seen to be inside, and a later reader sees what was written
/// before. `false` when the kernel no longer helps.
fn order_readers() -> bool {
    fence(Ordering::SeqCst);
    MODE.load(Ordering::Relaxed) != KERNEL || membarrier::process_barrier()
}

/// Before the first handle exists.
fn choose_mode() {
    if MODE.load(Ordering::Relaxed) == UNKNOWN {
        let works = membarrier::join_process() && membarrier::process_barrier();
        MODE.store(if works { KERNEL } else { FENCE }, Ordering::SeqCst);
    }
}

#[cold]
fn own_record() -> &'static Record {
    choose_mode();
    let record = free_record().unwrap_or_else(new_record);
    OWN.set(Some(record));
    // Fails when the thread is ending; then the record is kept.
    let _ = LEASE.try_with(|_| {});
    record
}

fn free_record() -> Option<&'static Record> {
    let mut next = RECORDS.load(Ordering::Acquire);
    // SAFETY: as in `inside`.
    while let Some(record) = unsafe { next.as_ref() } {
        if record.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Some(record);
        }
        next = record.next.load(Ordering::Acquire);
    }
    None
}

fn new_record() -> &'static Record {
    let record: &'static Record = Box::leak(Box::new(Record {
        word: AtomicU64::new(0),
        taken: AtomicBool::new(true),
        next: AtomicPtr::default(),
    }));
    let mut head = RECORDS.load(Ordering::Acquire);
    loop {
        record.next.store(head, Ordering::Relaxed);
        let new = std::ptr::from_ref(record).cast_mut();
        match RECORDS.compare_exchange(head, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return record,
            Err(now) => head = now,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc;

    /// Threads of other tests may have been inside at the moment of the retirement; they leave soon.
    pub(in crate::handle) fn is_dropped<T>(value: &Arc<T>) -> bool {
        (0..5000).any(|_| {
            collect();
            std::thread::sleep(std::time::Duration::from_millis(1));
            Arc::strong_count(value) == 1
        })
    }

    #[test]
    fn what_another_thread_may_look_at_outlives_its_guard() {
        let value = Arc::new(1);
        let (inside, is_inside) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let guard = enter();
            let _ = inside.send(());
            let _ = may_leave.recv();
            drop(guard);
        });
        is_inside.recv().expect("started");
        retire(Box::new(value.clone()));
        assert_eq!(Arc::strong_count(&value), 2);
        leave.send(()).expect("waiting");
        thread.join().expect("ended");
        assert!(is_dropped(&value));
    }

    #[test]
    fn guards_nest() {
        let value = Arc::new(1);
        let outer = enter();
        drop(enter());
        retire(Box::new(value.clone()));
        assert_eq!(Arc::strong_count(&value), 2);
        drop(outer);
        assert!(is_dropped(&value));
    }
}
