//! The lock.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{backoff::Backoff, barrier, thread};

/// How many times in a row a thread takes a lock before it becomes the bias owner: at first, and at most.
const FIRST: u32 = if cfg!(any(loom, miri)) { 1 } else { 128 };
const MOST: u32 = 1 << 22;

/// How many threads can be known as bias owners, of now or before. A slot is reused only after its thread was seen to have
/// left it. A thread without a slot takes the lock with an atomic exchange, as in an ordinary lock.
const SLOTS: usize = if cfg!(loom) { 2 } else { 4 };

/// Bits of a thread's number that hold its slot.
const SLOT: usize = 7;

/// A biased lock around a value. It is held for a handful of instructions, or for one call that does not block.
///
/// Not re-entrant: a thread that takes a lock it holds waits forever.
///
/// A waiter spins, then yields its processor, then sleeps 50 us at a time. So a real-time thread that waits cannot keep a
/// holder of normal priority off their common processor. It waits long in that case: give the threads that share a lock,
/// the adapter's event thread among them, one scheduling policy.
#[repr(align(64))]
pub struct Lock<T> {
    /// Number and slot of the thread that takes the lock without an exchange; 0 for none. Written while `held`.
    owner: AtomicUsize,
    /// By slot: the bias owner has the lock. Only the slot's thread writes it, also after a revocation: the thread may have
    /// been stopped in the middle of [`Lock::try_lock_biased`].
    inside: [AtomicBool; SLOTS],
    /// Another thread has the lock, or the bias owner took it before it became one.
    held: AtomicBool,
    /// Accessed while `held`.
    history: UnsafeCell<History>,
    #[cfg(all(test, not(loom)))]
    spent: tests::Spent,
    value: UnsafeCell<T>,
}

/// Which threads took the lock.
struct History {
    last: usize,
    /// How many times in a row the last thread took it.
    row: u32,
    /// How many times in a row it takes to become the bias owner.
    threshold: u32,
    /// The thread of each slot.
    threads: [usize; SLOTS],
    /// By slot, a bit each: revoked, and its thread has not come back since. That thread may still write its `inside`.
    unseen: u8,
    policy: BiasPolicy,
    /// Slot of the present bias owner, or of the last one.
    slot: u8,
}

/// No slot: there was no bias owner yet.
const NO_SLOT: u8 = SLOTS as u8;

// SAFETY: at most one guard exists at a time (see the crate's documentation), so one thread at a time accesses the value.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: an owned lock has no guard, which would borrow it.
unsafe impl<T: Send> Send for Lock<T> {}

/// Which thread becomes the bias owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BiasPolicy {
    /// A thread that takes the lock often enough in a row. Each revocation doubles that number.
    Adaptive,
    /// The first thread that takes the lock, and the same thread again after each revocation. Any other thread has to take
    /// it 128 times in a row. A wrong choice costs time only: a barrier for each visit of another thread.
    SingleThread,
}

/// The locked value.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// The flag that unlocking clears.
    flag: &'a AtomicBool,
    /// Not `Send`: the thread that took the lock drops the guard.
    _here: PhantomData<*const ()>,
}

impl<T> Lock<T> {
    /// An open lock.
    pub fn new(value: T) -> Lock<T> {
        let history = History {
            last: 0,
            row: 0,
            threshold: FIRST,
            threads: [0; SLOTS],
            unseen: 0,
            policy: BiasPolicy::Adaptive,
            slot: NO_SLOT,
        };
        Lock {
            owner: AtomicUsize::new(0),
            inside: std::array::from_fn(|_| AtomicBool::new(false)),
            held: AtomicBool::new(false),
            history: UnsafeCell::new(history),
            #[cfg(all(test, not(loom)))]
            spent: Default::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// An open lock with [`BiasPolicy::SingleThread`].
    pub fn single_threaded(value: T) -> Lock<T> {
        let mut lock = Lock::new(value);
        lock.history.get_mut().policy = BiasPolicy::SingleThread;
        lock
    }

    /// Chooses which thread becomes the bias owner. The calling thread must not hold the lock.
    pub fn set_bias(&self, policy: BiasPolicy) {
        let mut backoff = Backoff::default();
        while !self.hold() {
            backoff.wait();
        }
        // SAFETY: this thread has `held`, under which alone the history is accessed.
        let history = unsafe { &mut *self.history.get() };
        history.policy = policy;
        history.threshold = FIRST;
        self.held.store(false, Ordering::Release);
    }

    /// Whether the calling thread is the bias owner.
    pub fn is_bias_owner(&self) -> bool {
        self.is_biased_to(thread::current())
    }

    fn is_biased_to(&self, me: usize) -> bool {
        self.owner.load(Ordering::Relaxed) ^ me < SLOTS
    }

    /// The value, as soon as no other thread has it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.lock_as(thread::current())
    }

    /// The value, if no thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.try_lock_as(thread::current())
    }

    /// The value, if the calling thread is the bias owner and does not have it. Makes no call, so that a caller that gives
    /// up otherwise keeps nothing across one.
    #[inline]
    pub fn try_lock_biased(&self) -> Option<Guard<'_, T>> {
        self.try_lock_biased_as(thread::current())
    }

    #[inline]
    fn lock_as(&self, me: usize) -> Guard<'_, T> {
        loop {
            // The second step waits, so this does not come round.
            if let Some(guard) = self.try_lock_biased_as(me) {
                return guard;
            }
            if let Some(flag) = self.lock_unbiased(me, true) {
                return self.guard(flag);
            }
        }
    }

    #[inline]
    fn try_lock_as(&self, me: usize) -> Option<Guard<'_, T>> {
        match self.try_lock_biased_as(me) {
            Some(guard) => Some(guard),
            None => self.lock_unbiased(me, false).map(|flag| self.guard(flag)),
        }
    }

    /// Without an atomic exchange. Pairs with [`Lock::revoke`]: `inside` is written before `owner` is read again.
    #[inline]
    fn try_lock_biased_as(&self, me: usize) -> Option<Guard<'_, T>> {
        let owner = self.owner.load(Ordering::Relaxed);
        let slot = owner ^ me;
        if slot >= SLOTS {
            return None;
        }
        let inside = &self.inside[slot];
        if inside.load(Ordering::Relaxed) {
            // This very thread has it.
            return None;
        }
        inside.store(true, Ordering::Relaxed);
        barrier::light();
        if self.owner.load(Ordering::Relaxed) == owner {
            return Some(self.guard(inside));
        }
        inside.store(false, Ordering::Release);
        None
    }

    #[inline]
    fn guard<'a>(&'a self, flag: &'a AtomicBool) -> Guard<'a, T> {
        Guard { lock: self, flag, _here: PhantomData }
    }

    /// With an atomic exchange, and a revocation where another thread is the bias owner. Gives the flag that unlocking
    /// clears; `None` only without `wait`, when another thread has the lock.
    #[cold]
    fn lock_unbiased(&self, me: usize, wait: bool) -> Option<&AtomicBool> {
        let mut backoff = Backoff::default();
        while !self.hold() {
            if !wait {
                return None;
            }
            backoff.wait();
        }
        self.revoke();
        while self.is_inside() {
            if !wait {
                self.held.store(false, Ordering::Release);
                return None;
            }
            backoff.wait();
        }
        Some(self.taken(me))
    }

    /// Takes `held`.
    fn hold(&self) -> bool {
        #[cfg(all(test, not(loom)))]
        self.spent.exchanges.fetch_add(1, Ordering::Relaxed);
        // A plain swap would write when it fails, and waiters would take the cache line from the holder.
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// A bias owner, of now or before, has the lock or is about to find that it was revoked.
    fn is_inside(&self) -> bool {
        self.inside.iter().any(|inside| inside.load(Ordering::Acquire))
    }

    /// From here on there is no bias owner. The caller has `held`.
    fn revoke(&self) {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == 0 {
            return;
        }
        self.owner.store(0, Ordering::Relaxed);
        barrier::heavy();
        #[cfg(all(test, not(loom)))]
        self.spent.barriers.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller has `held`, under which alone the history is accessed.
        let history = unsafe { &mut *self.history.get() };
        history.unseen |= 1 << (owner & SLOT);
        if history.policy == BiasPolicy::Adaptive {
            history.threshold = history.threshold.saturating_mul(2).min(MOST);
        }
    }

    /// Counts that `me` took the lock, and makes it the bias owner when it is time. The caller has `held`, and no thread is
    /// inside. Gives the flag that keeps other threads out: `held`, or the new owner's `inside`, so that a second attempt
    /// of that thread fails from the start.
    fn taken(&self, me: usize) -> &AtomicBool {
        // SAFETY: the caller has `held`, under which alone the history is accessed.
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
        let returns = own == Some(history.slot.into()) || history.slot == NO_SLOT;
        let at_once = history.policy == BiasPolicy::SingleThread && returns;
        if history.row <= history.threshold && !at_once {
            return &self.held;
        }
        history.row = 0;
        match own.or_else(|| history.free_slot()).filter(|_| barrier::available()) {
            None => &self.held,
            Some(slot) => {
                history.threads[slot] = me;
                history.slot = slot as u8;
                let inside = &self.inside[slot];
                inside.store(true, Ordering::Relaxed);
                self.owner.store(me | slot, Ordering::Relaxed);
                // Release: the next thread that takes `held` sees `inside`.
                self.held.store(false, Ordering::Release);
                inside
            }
        }
    }
}

impl History {
    /// A slot for a thread that has none: an unused one, or one whose thread came back after its revocation. That thread
    /// has read that it is not the owner, and cannot read the old value any more.
    fn free_slot(&self) -> Option<usize> {
        let unused = self.threads.iter().position(|thread| *thread == 0);
        unused.or_else(|| (0..SLOTS).find(|slot| self.unseen & (1 << slot) == 0))
    }
}

const _: () = assert!(SLOTS <= SLOT + 1, "a slot fits into the low bits of a thread's number");

impl<T: Default> Default for Lock<T> {
    fn default() -> Lock<T> {
        Lock::new(T::default())
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one of its lock, so no other thread accesses the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one of its lock, and it is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
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

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
