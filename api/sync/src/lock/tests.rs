//! The lock on the machine.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;

/// What taking a lock took, but for plain loads and stores.
#[derive(Default)]
pub(super) struct Spent {
    pub(super) exchanges: AtomicU32,
    pub(super) barriers: AtomicU32,
}

impl Spent {
    fn so_far(&self) -> (u32, u32) {
        (self.exchanges.load(Ordering::Relaxed), self.barriers.load(Ordering::Relaxed))
    }
}

/// Takes it on a thread of its own, which ends.
fn elsewhere<T: Send>(lock: &Lock<T>, times: u32) {
    std::thread::scope(|scope| {
        scope.spawn(|| (0..times).for_each(|_| drop(lock.lock())));
    });
}

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

#[test]
fn the_one_thread_makes_one_exchange() {
    crate::prepare();
    let lock = Lock::for_one_thread(0);
    for turn in 0..1000 {
        *lock.lock() += 1;
        assert_eq!(lock.is_favourite(), barrier::available(), "turn {turn}");
    }
    if barrier::available() {
        assert_eq!(lock.spent.so_far(), (1, 0));
        assert_eq!(lock.lock_at_once().map(|value| *value), Some(1000));
    }
    assert_eq!(*lock.try_lock().unwrap(), 1000);
}

#[test]
fn the_one_thread_is_back_at_once_however_often_others_come() {
    crate::prepare();
    let lock = Lock::for_one_thread(());
    drop(lock.lock());
    if !barrier::available() {
        return;
    }
    for turn in 1..=20 {
        elsewhere(&lock, FIRST.min(3));
        assert!(!lock.is_favourite(), "taken from it at turn {turn}");
        (0..100).for_each(|_| drop(lock.lock()));
        assert!(lock.is_favourite(), "turn {turn}");
        // One of its own each time, and one barrier, which the other made.
        assert_eq!(lock.spent.so_far(), (1 + turn * (FIRST.min(3) + 1), turn));
    }
}

#[test]
fn a_thread_that_takes_over_a_lock_for_one_thread_pays_the_first_price() {
    crate::prepare();
    let lock = Lock::for_one_thread(());
    drop(lock.lock_as(8));
    for me in [16, 24, 16, 8] {
        (0..FIRST).for_each(|_| drop(lock.lock_as(me)));
        assert!(!lock.favours(me), "{me}: too early");
        drop(lock.lock_as(me));
        assert_eq!(lock.favours(me), barrier::available(), "{me}");
    }
}

#[test]
fn a_place_is_handed_on_when_its_thread_was_seen_out_of_it() {
    crate::prepare();
    let lock = Lock::for_one_thread(());
    let often = |me| {
        (0..=FIRST).for_each(|_| drop(lock.lock_as(me)));
        lock.favours(me)
    };
    let first: Vec<usize> = (1..=PLACES).map(|thread| thread * 8).collect();
    for me in &first {
        assert_eq!(often(*me), barrier::available());
    }
    let (late, later) = (800, 808);
    // Each of the first may still be about to write to its flag, the last one as well, now that it is none any more.
    assert!(!often(late));
    if !barrier::available() {
        return;
    }
    drop(lock.lock_as(first[1]));
    assert!(often(late), "the place of one that was seen");
    assert!(!often(later), "there was one");
    // Who lost its place gets another one like anybody else.
    assert!(!often(first[1]));
    drop(lock.lock_as(first[0]));
    assert!(often(first[1]));
    drop(lock.lock_as(late));
    assert!(often(later));
}

#[test]
fn a_declaration_can_be_made_and_taken_back() {
    crate::prepare();
    let lock = Lock::new(());
    lock.declare(true);
    drop(lock.lock());
    assert_eq!(lock.is_favourite(), barrier::available());
    lock.declare(false);
    elsewhere(&lock, 1);
    drop(lock.lock());
    assert!(!lock.is_favourite());
    elsewhere(&lock, 1);
    favour(&lock);
    favour(&lock);
    assert_eq!(lock.is_favourite(), barrier::available());
}

#[test]
fn the_favourite_cannot_take_it_twice_when_it_has_just_become_one() {
    crate::prepare();
    let lock = Lock::for_one_thread(1);
    let held = lock.lock();
    assert!(lock.lock_at_once().is_none());
    assert!(lock.try_lock().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_lock().is_none()));
    });
    drop(held);
    assert_eq!(*lock.try_lock().unwrap(), 1);
}

#[test]
fn threads_exclude_each_other() {
    exclude(Lock::new((0, 0)));
}

#[test]
fn threads_that_all_take_a_lock_for_one_thread_exclude_each_other() {
    exclude(Lock::for_one_thread((0, 0)));
}

/// Threads that come in bursts, so that each becomes the favourite and is revoked in the middle; more than there are places.
fn exclude(lock: Lock<(u64, u64)>) {
    let (threads, bursts, turns) = if cfg!(miri) { (3, 2, 4) } else { (5, 40, 3000) };
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
