//! The lock on the machine.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;

/// What taking a lock cost besides plain loads and stores.
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

/// Takes the lock on another thread, which ends.
fn elsewhere<T: Send>(lock: &Lock<T>, times: u32) {
    std::thread::scope(|scope| {
        scope.spawn(|| (0..times).for_each(|_| drop(lock.lock())));
    });
}

fn make_owner<T>(lock: &Lock<T>) {
    crate::prepare();
    for _ in 0..=FIRST {
        drop(lock.lock());
    }
}

/// Whether bias owners exist here. A test that needs them prints NOT RUN otherwise.
fn has_membarrier() -> bool {
    let available = barrier::available();
    if !available {
        println!("NOT RUN: this system has no membarrier, so no thread becomes bias owner");
    }
    available
}

#[test]
fn a_thread_that_keeps_taking_the_lock_becomes_bias_owner() {
    let lock = Lock::new(0);
    drop(lock.lock());
    assert_eq!(lock.owner.load(Ordering::Relaxed), 0);
    make_owner(&lock);
    let expected = if barrier::available() { thread::current() } else { 0 };
    assert_eq!(lock.owner.load(Ordering::Relaxed), expected);
    let guard = lock.lock();
    assert_eq!(lock.inside[0].load(Ordering::Relaxed), expected != 0);
    drop(guard);
}

#[test]
fn the_bias_owner_cannot_take_the_lock_twice() {
    let lock = Lock::new(1);
    make_owner(&lock);
    let held = lock.lock();
    assert!(lock.try_lock().is_none());
    assert!(lock.try_lock().is_none());
    drop(held);
    assert_eq!(*lock.try_lock().unwrap(), 1);
}

#[test]
fn a_failed_try_does_not_open_the_lock() {
    let lock = Lock::new(1);
    make_owner(&lock);
    let held = lock.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_lock().is_none() && lock.try_lock().is_none()));
    });
    assert!(lock.try_lock().is_none());
    drop(held);
    assert_eq!(*lock.try_lock().unwrap(), 1);
}

#[test]
fn the_rebias_threshold_doubles_after_a_revocation() {
    let lock = Lock::new(());
    make_owner(&lock);
    if !has_membarrier() {
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| drop(lock.lock()));
    });
    assert_eq!(lock.owner.load(Ordering::Relaxed), 0);
    make_owner(&lock);
    assert_eq!(lock.owner.load(Ordering::Relaxed), 0, "too early");
    make_owner(&lock);
    assert_ne!(lock.owner.load(Ordering::Relaxed), 0);
}

#[test]
fn single_thread_policy_costs_one_exchange() {
    crate::prepare();
    let lock = Lock::single_threaded(0);
    for turn in 0..1000 {
        *lock.lock() += 1;
        assert_eq!(lock.is_bias_owner(), barrier::available(), "turn {turn}");
    }
    if barrier::available() {
        assert_eq!(lock.spent.so_far(), (1, 0));
        assert_eq!(lock.try_lock_biased().map(|value| *value), Some(1000));
    }
    assert_eq!(*lock.try_lock().unwrap(), 1000);
}

#[test]
fn single_thread_owner_is_back_with_its_next_take() {
    crate::prepare();
    let lock = Lock::single_threaded(());
    drop(lock.lock());
    if !has_membarrier() {
        return;
    }
    for turn in 1..=20 {
        elsewhere(&lock, FIRST.min(3));
        assert!(!lock.is_bias_owner(), "revoked at turn {turn}");
        (0..100).for_each(|_| drop(lock.lock()));
        assert!(lock.is_bias_owner(), "turn {turn}");
        // Each turn costs this thread one exchange, and the other thread one barrier.
        assert_eq!(lock.spent.so_far(), (1 + turn * (FIRST.min(3) + 1), turn));
    }
}

#[test]
fn a_new_single_thread_owner_needs_the_first_threshold() {
    crate::prepare();
    let lock = Lock::single_threaded(());
    drop(lock.lock_as(8));
    for me in [16, 24, 16, 8] {
        (0..FIRST).for_each(|_| drop(lock.lock_as(me)));
        assert!(!lock.is_biased_to(me), "{me}: too early");
        drop(lock.lock_as(me));
        assert_eq!(lock.is_biased_to(me), barrier::available(), "{me}");
    }
}

#[test]
fn revoked_owner_slot_is_reused_only_after_it_came_back() {
    crate::prepare();
    let lock = Lock::single_threaded(());
    let often = |me| {
        (0..=FIRST).for_each(|_| drop(lock.lock_as(me)));
        lock.is_biased_to(me)
    };
    let first: Vec<usize> = (1..=SLOTS).map(|thread| thread * 8).collect();
    for me in &first {
        assert_eq!(often(*me), barrier::available());
    }
    let (late, later) = (800, 808);
    // Each of the first threads may still be about to write its flag.
    assert!(!often(late));
    if !has_membarrier() {
        return;
    }
    drop(lock.lock_as(first[1]));
    assert!(often(late), "the slot of a thread that came back");
    assert!(!often(later), "only one slot was free");
    // A thread that lost its slot gets another one like any new thread.
    assert!(!often(first[1]));
    drop(lock.lock_as(first[0]));
    assert!(often(first[1]));
    drop(lock.lock_as(late));
    assert!(often(later));
}

#[test]
fn the_bias_policy_can_be_changed_and_restored() {
    crate::prepare();
    let lock = Lock::new(());
    lock.set_bias(BiasPolicy::SingleThread);
    drop(lock.lock());
    assert_eq!(lock.is_bias_owner(), barrier::available());
    lock.set_bias(BiasPolicy::Adaptive);
    elsewhere(&lock, 1);
    drop(lock.lock());
    assert!(!lock.is_bias_owner());
    elsewhere(&lock, 1);
    make_owner(&lock);
    make_owner(&lock);
    assert_eq!(lock.is_bias_owner(), barrier::available());
}

#[test]
fn a_new_bias_owner_cannot_take_the_lock_twice() {
    crate::prepare();
    let lock = Lock::single_threaded(1);
    let held = lock.lock();
    assert!(lock.try_lock_biased().is_none());
    assert!(lock.try_lock().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_lock().is_none()));
    });
    drop(held);
    assert_eq!(*lock.try_lock().unwrap(), 1);
}

/// A waiter that burns its processor would keep a preempted holder of lower priority from running.
#[test]
#[cfg_attr(miri, ignore = "miri has no clock of a thread's processor time")]
fn a_long_wait_sleeps() {
    const HELD: std::time::Duration = std::time::Duration::from_millis(300);
    let lock = Lock::new(());
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.lock();
            start.wait();
            std::thread::sleep(HELD);
            drop(guard);
        });
        start.wait();
        let before = processor_time();
        drop(lock.lock());
        let burnt = processor_time() - before;
        // A spinner takes all of it. Sleeps of 50 us leave a fraction that depends on the machine.
        assert!(burnt < HELD / 2, "{burnt:?} of processor time in {HELD:?}");
    });
}

#[cfg(not(miri))]
fn processor_time() -> std::time::Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(miri)]
fn processor_time() -> std::time::Duration {
    unreachable!("the test is ignored")
}

#[test]
fn threads_exclude_each_other() {
    exclude(Lock::new((0, 0)));
}

#[test]
fn threads_exclude_each_other_under_the_single_thread_policy() {
    exclude(Lock::single_threaded((0, 0)));
}

/// More threads than slots, in bursts, so that each becomes bias owner and is revoked in the middle.
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
