//! A spin lock for the data path: taken by one exchange, released by a plain store. It is held for a copy at most, and
//! contended only when an application polls and posts one channel from several threads, or when the event thread
//! works for an application that is away.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value behind a spin lock.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `held` lets one guard exist at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The locked value.
pub(crate) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, if nobody holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        (!self.held.swap(true, Ordering::Acquire)).then_some(Guard(self))
    }

    /// The value. Spins, and gives the processor away when its holder seems to have lost it.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        self.lock_slowly()
    }

    #[cold]
    fn lock_slowly(&self) -> Guard<'_, T> {
        let mut looks = 0u32;
        loop {
            while self.held.load(Ordering::Relaxed) {
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(64) {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so `held` is ours.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}
