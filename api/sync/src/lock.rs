//! The lock.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{barrier, thread};

/// How often in a row a thread takes a lock before it becomes its favourite: at first, and at most.
const FIRST: u32 = if cfg!(any(loom, miri)) { 1 } else { 128 };
const MOST: u32 = 1 << 22;

/// How many threads can become a lock's favourite in its life.
const PLACES: usize = if cfg!(loom) { 2 } else { 4 };

/// Takes the place from a thread's number.
const PLACE: usize = 7;

/// A value behind a lock that is held for a handful of instructions, or for one call that does not block.
///
/// Not re-entrant: a thread that takes a lock it holds waits forever.
#[repr(align(64))]
pub struct Lock<T> {
    /// Number and place of the thread that may take it without exchange; 0 for none. Written while `held`.
    favourite: AtomicUsize,
    /// By place: the favourite has it. Each is written by one thread only, the one `history` names: a thread that was
    /// stopped in the middle of [`Lock::lock`] may still write to its own after it was revoked.
    inside: [AtomicBool; PLACES],
    /// Somebody else has it, or the favourite before it became one.
    held: AtomicBool,
    /// Accessed while `held`.
    history: UnsafeCell<History>,
    value: UnsafeCell<T>,
}

/// Who took the lock.
struct History {
    last: usize,
    /// How often since another thread did.
    row: u32,
    /// How often it takes to become the favourite.
    wanted: u32,
    /// The thread of each place.
    threads: [usize; PLACES],
}

// SAFETY: one guard exists at a time (see the crate's documentation), so the value is accessed by one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: owned, nobody holds it.
unsafe impl<T: Send> Send for Lock<T> {}

/// The locked value.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// What is to be cleared.
    flag: &'a AtomicBool,
    /// Dropped by the thread that took the lock.
    _here: PhantomData<*const ()>,
}

impl<T> Lock<T> {
    /// An open lock.
    pub fn new(value: T) -> Lock<T> {
        let history = History { last: 0, row: 0, wanted: FIRST, threads: [0; PLACES] };
        Lock {
            favourite: AtomicUsize::new(0),
            inside: std::array::from_fn(|_| AtomicBool::new(false)),
            held: AtomicBool::new(false),
            history: UnsafeCell::new(history),
            value: UnsafeCell::new(value),
        }
    }

    /// The value. Spins a little, then gives its processor away until it is its turn.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T> {
        self.lock_as(thread::current())
    }

    /// The value, if nobody holds it.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.try_lock_as(thread::current())
    }

    /// The value, if the calling thread is the favourite and does not hold it. It makes no call: for ways that are short
    /// as long as nothing has to be kept across one.
    #[inline(always)]
    pub fn lock_at_once(&self) -> Option<Guard<'_, T>> {
        self.enter(thread::current())
    }

    #[inline(always)]
    fn lock_as(&self, me: usize) -> Guard<'_, T> {
        match self.enter(me) {
            Some(guard) => guard,
            None => {
                self.lock_slowly(me);
                self.guard(&self.held)
            }
        }
    }

    #[inline(always)]
    fn try_lock_as(&self, me: usize) -> Option<Guard<'_, T>> {
        match self.enter(me) {
            Some(guard) => Some(guard),
            None => self.try_slowly(me),
        }
    }

    /// The favourite's way.
    #[inline(always)]
    fn enter(&self, me: usize) -> Option<Guard<'_, T>> {
        let favourite = self.favourite.load(Ordering::Relaxed);
        let place = favourite ^ me;
        if place >= PLACES {
            return None;
        }
        let inside = &self.inside[place];
        if inside.load(Ordering::Relaxed) {
            // Taken by this very thread.
            return None;
        }
        inside.store(true, Ordering::Relaxed);
        barrier::light();
        if self.favourite.load(Ordering::Relaxed) == favourite {
            return Some(self.guard(inside));
        }
        inside.store(false, Ordering::Release);
        None
    }

    #[inline(always)]
    fn guard<'a>(&'a self, flag: &'a AtomicBool) -> Guard<'a, T> {
        Guard { lock: self, flag, _here: PhantomData }
    }

    /// Takes `held`, when nobody else is inside.
    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, me: usize) {
        let mut looks = 0;
        while !self.hold() {
            relax(&mut looks);
        }
        self.taken(me);
        while self.is_inside() {
            relax(&mut looks);
        }
    }

    #[inline(never)]
    fn try_slowly(&self, me: usize) -> Option<Guard<'_, T>> {
        if !self.hold() {
            return None;
        }
        self.taken(me);
        // Made also when somebody is inside: then its drop opens the lock again.
        let guard = self.guard(&self.held);
        (!self.is_inside()).then_some(guard)
    }

    /// Takes `held`.
    fn hold(&self) -> bool {
        // Not an exchange without condition: one that fails must not write, or holders and waiters fight for the line.
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// A favourite of now or before has it, or is just finding out that it is none.
    fn is_inside(&self) -> bool {
        self.inside.iter().any(|inside| inside.load(Ordering::Acquire))
    }

    /// Revokes the favourite, or appoints `me` when it is time. The caller has `held`.
    fn taken(&self, me: usize) {
        // SAFETY: `held` is the caller's.
        let history = unsafe { &mut *self.history.get() };
        if self.favourite.load(Ordering::Relaxed) != 0 {
            self.favourite.store(0, Ordering::Relaxed);
            barrier::heavy();
            history.wanted = history.wanted.saturating_mul(2).min(MOST);
        }
        if history.last != me {
            history.last = me;
            history.row = 0;
        }
        history.row += 1;
        if history.row > history.wanted {
            history.row = 0;
            let free = |thread: &usize| *thread == me || *thread == 0;
            if barrier::available()
                && let Some(place) = history.threads.iter().position(free)
            {
                history.threads[place] = me;
                self.favourite.store(me | place, Ordering::Relaxed);
            }
        }
    }
}

const _: () = assert!(PLACES <= PLACE + 1, "a place fits into the bits a thread's number leaves");

impl<T: Default> Default for Lock<T> {
    fn default() -> Lock<T> {
        Lock::new(T::default())
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so the value is this thread's.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.flag.store(false, Ordering::Release);
    }
}

impl<T> std::fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// One turn of waiting. Its holder may wait for this very processor, so not for long.
fn relax(looks: &mut u32) {
    *looks += 1;
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    if looks.is_multiple_of(16) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell as Cell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;

    /// A cell that the model checker watches: two accesses at once, or one that the other's writes are not visible to,
    /// fail the model.
    type Value = Lock<Cell<u32>>;

    fn add(lock: &Value, me: usize) {
        lock.lock_as(me).with_mut(|value| {
            // SAFETY: the lock is held; that it is exclusive is what the model finds out.
            unsafe { *value += 1 }
        });
    }

    fn model(check: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(check);
    }

    /// A lock of which `me` is the favourite.
    fn with_favourite(me: usize) -> Value {
        let lock = Lock::new(Cell::new(0));
        while lock.favourite.load(Ordering::Relaxed) == 0 {
            add(&lock, me);
        }
        lock
    }

    fn total(lock: &Value) -> u32 {
        lock.lock_as(800).with(|value| {
            // SAFETY: as in `add`.
            unsafe { *value }
        })
    }

    #[test]
    fn a_favourite_and_another_thread() {
        model(|| {
            let lock = Arc::new(with_favourite(8));
            let before = 2;
            let theirs = lock.clone();
            let other = loom::thread::spawn(move || {
                add(&theirs, 16);
                add(&theirs, 16);
            });
            add(&lock, 8);
            add(&lock, 8);
            other.join().unwrap();
            assert_eq!(total(&lock), before + 4);
        });
    }

    #[test]
    fn a_favourite_and_one_that_only_tries() {
        model(|| {
            let lock = Arc::new(with_favourite(8));
            let theirs = lock.clone();
            let got = Arc::new(AtomicU32::new(0));
            let counted = got.clone();
            let other = loom::thread::spawn(move || {
                if let Some(guard) = theirs.try_lock_as(16) {
                    // SAFETY: as in `add`.
                    guard.with_mut(|value| unsafe { *value += 1 });
                    counted.store(1, Ordering::Relaxed);
                }
            });
            add(&lock, 8);
            add(&lock, 8);
            other.join().unwrap();
            assert_eq!(total(&lock), 2 + 2 + got.load(Ordering::Relaxed));
        });
    }

    /// The place goes from thread to thread: what a revoked one still writes must not open the lock for others.
    #[test]
    fn a_favourite_that_is_replaced() {
        model(|| {
            let lock = Arc::new(with_favourite(8));
            let theirs = lock.clone();
            let other = loom::thread::spawn(move || {
                for _ in 0..4 {
                    add(&theirs, 16);
                }
            });
            add(&lock, 8);
            other.join().unwrap();
            assert_eq!(total(&lock), 2 + 5);
        });
    }

    #[test]
    fn a_favourite_and_two_others() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let lock = Arc::new(with_favourite(8));
            let others: Vec<_> = [16, 24]
                .into_iter()
                .map(|me| {
                    let lock = lock.clone();
                    loom::thread::spawn(move || add(&lock, me))
                })
                .collect();
            add(&lock, 8);
            for other in others {
                other.join().unwrap();
            }
            assert_eq!(total(&lock), 2 + 3);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn favour<T>(lock: &Lock<T>) {
        crate::prepare();
        for _ in 0..=FIRST {
            drop(lock.lock());
        }
    }

    #[test]
    fn a_thread_that_keeps_taking_it_becomes_the_favourite() {
        let lock = Lock::new(0);
        drop(lock.lock());
        assert_eq!(lock.favourite.load(Ordering::Relaxed), 0);
        favour(&lock);
        let expected = if barrier::available() { thread::current() } else { 0 };
        assert_eq!(lock.favourite.load(Ordering::Relaxed), expected);
        let guard = lock.lock();
        assert_eq!(lock.inside[0].load(Ordering::Relaxed), expected != 0);
        drop(guard);
    }

    #[test]
    fn the_favourite_cannot_take_it_twice() {
        let lock = Lock::new(1);
        favour(&lock);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none());
        drop(held);
        assert_eq!(*lock.try_lock().unwrap(), 1);
    }

    #[test]
    fn a_failed_try_does_not_open_the_lock() {
        let lock = Lock::new(1);
        favour(&lock);
        let held = lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock().is_none() && lock.try_lock().is_none()));
        });
        assert!(lock.try_lock().is_none());
        drop(held);
        assert_eq!(*lock.try_lock().unwrap(), 1);
    }

    #[test]
    fn the_place_must_be_earned_anew_and_at_a_higher_price() {
        let lock = Lock::new(());
        favour(&lock);
        if lock.favourite.load(Ordering::Relaxed) == 0 {
            return;
        }
        std::thread::scope(|scope| {
            scope.spawn(|| drop(lock.lock()));
        });
        assert_eq!(lock.favourite.load(Ordering::Relaxed), 0);
        favour(&lock);
        assert_eq!(lock.favourite.load(Ordering::Relaxed), 0, "too early");
        favour(&lock);
        assert_ne!(lock.favourite.load(Ordering::Relaxed), 0);
    }

    /// Threads that come in bursts, so that each becomes the favourite and is revoked in the middle.
    #[test]
    fn threads_exclude_each_other() {
        let (threads, bursts, turns) = if cfg!(miri) { (3, 2, 4) } else { (5, 40, 3000) };
        let lock = Lock::new((0u64, 0u64));
        let start = Barrier::new(threads as usize);
        crate::prepare();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (lock, start) = (&lock, &start);
                scope.spawn(move || {
                    start.wait();
                    for burst in 0..bursts {
                        let mut done = 0;
                        while done < turns {
                            let guard = if thread == 0 { lock.try_lock() } else { Some(lock.lock()) };
                            if let Some(mut value) = guard {
                                value.0 += 1;
                                std::hint::black_box(&mut *value);
                                value.1 += 1;
                                done += 1;
                            } else {
                                std::thread::yield_now();
                            }
                        }
                        if burst % 4 == thread % 4 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        let value = lock.lock();
        assert_eq!(*value, (threads * bursts * turns, threads * bursts * turns));
    }
}
