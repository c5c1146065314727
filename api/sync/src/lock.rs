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

/// How many threads can be known as a lock's favourite of now or before. A place is handed on once its thread was seen
/// to be out of it; a thread that finds none takes the lock with an exchange, as all do of an ordinary one.
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
    #[cfg(all(test, not(loom)))]
    spent: tests::Spent,
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
    /// By place, a bit each: it was taken from the favourite, which did not come this way since and may be about to write
    /// to its `inside`.
    unseen: u8,
    /// Declared to be for one thread.
    single: bool,
    /// Place of the favourite of now, or of the last one.
    owner: u8,
}

/// Nobody was the favourite.
const NOBODY: u8 = PLACES as u8;

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
        let history = History {
            last: 0,
            row: 0,
            wanted: FIRST,
            threads: [0; PLACES],
            unseen: 0,
            single: false,
            owner: NOBODY,
        };
        Lock {
            favourite: AtomicUsize::new(0),
            inside: std::array::from_fn(|_| AtomicBool::new(false)),
            held: AtomicBool::new(false),
            history: UnsafeCell::new(history),
            #[cfg(all(test, not(loom)))]
            spent: Default::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// An open lock that one thread takes, says its user, and others seldom if at all: see [`Lock::declare`].
    pub fn for_one_thread(value: T) -> Lock<T> {
        let mut lock = Lock::new(value);
        lock.history.get_mut().single = true;
        lock
    }

    /// Says whether one thread takes the lock, and others seldom if at all. Then the first that takes it is its favourite
    /// from that on, and when it was taken from it, again as soon as it comes back; another one must take it some times
    /// in a row, as at first, which never becomes more. Where that is wrong it costs time: each time another thread comes,
    /// it makes a barrier in all threads. The calling thread must not hold the lock.
    pub fn declare(&self, single: bool) {
        let mut looks = 0;
        while !self.hold() {
            relax(&mut looks);
        }
        // SAFETY: `held` is the caller's. The favourite does not look at the history.
        let history = unsafe { &mut *self.history.get() };
        history.single = single;
        history.wanted = FIRST;
        self.held.store(false, Ordering::Release);
    }

    /// Whether the calling thread takes it without exchange.
    pub fn is_favourite(&self) -> bool {
        self.favours(thread::current())
    }

    fn favours(&self, me: usize) -> bool {
        self.favourite.load(Ordering::Relaxed) ^ me < PLACES
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
            None => self.guard(self.lock_slowly(me)),
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

    /// Takes it, when nobody else is inside. The flag is the one to be cleared.
    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, me: usize) -> &AtomicBool {
        let mut looks = 0;
        while !self.hold() {
            relax(&mut looks);
        }
        self.revoke();
        while self.is_inside() {
            relax(&mut looks);
        }
        self.taken(me)
    }

    #[inline(never)]
    fn try_slowly(&self, me: usize) -> Option<Guard<'_, T>> {
        if !self.hold() {
            return None;
        }
        self.revoke();
        if self.is_inside() {
            self.held.store(false, Ordering::Release);
            return None;
        }
        Some(self.guard(self.taken(me)))
    }

    /// Takes `held`.
    fn hold(&self) -> bool {
        #[cfg(all(test, not(loom)))]
        self.spent.exchanges.fetch_add(1, Ordering::Relaxed);
        // Not an exchange without condition: one that fails must not write, or holders and waiters fight for the line.
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// A favourite of now or before has it, or is just finding out that it is none.
    fn is_inside(&self) -> bool {
        self.inside.iter().any(|inside| inside.load(Ordering::Acquire))
    }

    /// From here on there is no favourite. The caller has `held`.
    fn revoke(&self) {
        let favourite = self.favourite.load(Ordering::Relaxed);
        if favourite == 0 {
            return;
        }
        self.favourite.store(0, Ordering::Relaxed);
        barrier::heavy();
        #[cfg(all(test, not(loom)))]
        self.spent.barriers.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `held` is the caller's.
        let history = unsafe { &mut *self.history.get() };
        history.unseen |= 1 << (favourite & PLACE);
        if !history.single {
            history.wanted = history.wanted.saturating_mul(2).min(MOST);
        }
    }

    /// Notes that `me` took it, and appoints it when it is time. The caller has `held`, and nobody is inside. The result
    /// is what keeps others out: `held` still, or, so that a favourite that takes it twice is found out from the start,
    /// its `inside`.
    fn taken(&self, me: usize) -> &AtomicBool {
        // SAFETY: `held` is the caller's.
        let history = unsafe { &mut *self.history.get() };
        if history.last != me {
            history.last = me;
            history.row = 0;
        }
        history.row += 1;
        let own = history.threads.iter().position(|thread| *thread == me);
        if let Some(own) = own {
            history.unseen &= !(1 << own);
        }
        let returns = own == Some(history.owner.into()) || history.owner == NOBODY;
        if history.row <= history.wanted && !(history.single && returns) {
            return &self.held;
        }
        history.row = 0;
        match own.or_else(|| history.free()).filter(|_| barrier::available()) {
            None => &self.held,
            Some(place) => {
                history.threads[place] = me;
                history.owner = place as u8;
                let inside = &self.inside[place];
                inside.store(true, Ordering::Relaxed);
                self.favourite.store(me | place, Ordering::Relaxed);
                // Who comes next sees `inside` with it.
                self.held.store(false, Ordering::Release);
                inside
            }
        }
    }
}

impl History {
    /// A place for a thread that has none: one that was never given away, or one whose thread came this way after it was
    /// taken from it. That thread read then that it is not the favourite, and cannot read any more that it was.
    fn free(&self) -> Option<usize> {
        let never = self.threads.iter().position(|thread| *thread == 0);
        never.or_else(|| (0..PLACES).find(|place| self.unseen & (1 << place) == 0))
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
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
