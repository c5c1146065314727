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
        // Not `then_some`: that would make a guard, and drop it, also when somebody else holds the lock.
        (!self.held.swap(true, Ordering::Acquire)).then(|| Guard(self))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_try_does_not_open_the_lock() {
        let lock = Lock::new(1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none());
        drop(held);
        assert_eq!(*lock.try_lock().unwrap(), 1);
    }

    #[test]
    fn threads_exclude_each_other() {
        let lock = Lock::new(0u64);
        let turns = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let lock = &lock;
                scope.spawn(move || {
                    let mut done = 0;
                    while done < turns {
                        let guard = if thread == 0 { lock.try_lock() } else { Some(lock.lock()) };
                        if let Some(mut value) = guard {
                            *value += 1;
                            done += 1;
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 3 * turns);
    }
}
