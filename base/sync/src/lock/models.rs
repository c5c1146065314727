//! Models of the lock: taking and revoking it, in all interleavings of small cases.

use super::*;
use loom::cell::UnsafeCell as Cell;
use loom::sync::Arc;

/// A cell that the model checker watches. Two accesses at once fail the model, and so does one that misses earlier writes.
type Value = Lock<Cell<u32>>;

fn add(lock: &Value, me: usize) {
    lock.lock_as(me).with_mut(|value| {
        // SAFETY: the guard is held; the model fails if the lock is not exclusive.
        unsafe { *value += 1 }
    });
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// A lock whose bias owner is `me`.
fn with_owner(me: usize) -> Value {
    let lock = Lock::new(Cell::new(0));
    while lock.owner.load(Ordering::Relaxed) == 0 {
        add(&lock, me);
    }
    lock
}

fn total(lock: &Value) -> u32 {
    lock.lock_as(800).with(|value| {
        // SAFETY: the guard is held; the model fails if the lock is not exclusive.
        unsafe { *value }
    })
}

/// Tries to take it, and takes it when that did not work.
fn try_and_add(lock: &Value, me: usize) {
    match lock.try_lock_as(me) {
        // SAFETY: the guard is held; the model fails if the lock is not exclusive.
        Some(guard) => guard.with_mut(|value| unsafe { *value += 1 }),
        None => add(lock, me),
    }
}

/// The sum after thread 8 took the lock `times` times while another thread ran `part`.
fn beside(lock: Value, times: usize, part: impl FnOnce(&Value) + Send + 'static) -> u32 {
    let lock = Arc::new(lock);
    let theirs = lock.clone();
    let other = loom::thread::spawn(move || part(&theirs));
    (0..times).for_each(|_| add(&lock, 8));
    other.join().unwrap();
    total(&lock)
}

#[test]
fn bias_owner_and_another_thread() {
    model(|| {
        let added = beside(with_owner(8), 2, |lock| (0..2).for_each(|_| add(lock, 16)));
        assert_eq!(added, 2 + 4);
    });
}

#[test]
fn bias_owner_and_a_try_lock() {
    model(|| assert_eq!(beside(with_owner(8), 2, |lock| try_and_add(lock, 16)), 2 + 3));
}

/// The bias moves on: a late store of the revoked owner must not open the lock for others.
#[test]
fn bias_owner_is_replaced() {
    model(|| {
        let added = beside(with_owner(8), 1, |lock| (0..4).for_each(|_| add(lock, 16)));
        assert_eq!(added, 2 + 5);
    });
}

#[test]
fn bias_owner_and_two_others() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let lock = Arc::new(with_owner(8));
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

/// The first thread is the bias owner from its first take on, and again whenever it comes back.
#[test]
fn single_thread_policy_and_another_thread() {
    model(|| {
        let lock = Lock::single_threaded(Cell::new(0));
        add(&lock, 8);
        assert!(lock.is_biased_to(8));
        let added = beside(lock, 2, |lock| {
            add(lock, 16);
            try_and_add(lock, 16);
        });
        assert_eq!(added, 1 + 4);
    });
}

/// Both begin at once: either may be the first.
#[test]
fn single_thread_policy_with_two_first_threads() {
    model(|| {
        let lock = Lock::single_threaded(Cell::new(0));
        assert_eq!(beside(lock, 2, |lock| (0..2).for_each(|_| add(lock, 16))), 4);
    });
}

/// Two slots and three threads, two of them in turn on one real thread. The third gets the first one's slot only after the
/// first came back: its last store there must not open the lock.
#[test]
fn slot_is_reused_only_after_its_thread_came_back() {
    model(|| {
        let lock = Lock::single_threaded(Cell::new(0));
        add(&lock, 8);
        let added = beside(lock, 2, |lock| [16, 16, 24, 24, 24].into_iter().for_each(|me| add(lock, me)));
        assert_eq!(added, 1 + 7);
    });
}

/// The policy changes while other threads take the lock.
#[test]
fn policy_changes_while_the_owner_runs() {
    model(|| {
        let added = beside(with_owner(8), 2, |lock| {
            lock.set_bias(BiasPolicy::SingleThread);
            add(lock, 16);
        });
        assert_eq!(added, 2 + 3);
    });
}
