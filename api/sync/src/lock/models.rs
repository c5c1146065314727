//! Models of the lock: who takes it, who revokes whom, in all interleavings of small cases.

use super::*;
use loom::cell::UnsafeCell as Cell;
use loom::sync::Arc;

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

/// Tries to take it, and takes it when that did not work.
fn try_and_add(lock: &Value, me: usize) {
    match lock.try_lock_as(me) {
        // SAFETY: as in `add`.
        Some(guard) => guard.with_mut(|value| unsafe { *value += 1 }),
        None => add(lock, me),
    }
}

/// What was added in all, when one thread took the lock as 8 so many times while another did its part.
fn beside(lock: Value, times: usize, part: impl FnOnce(&Value) + Send + 'static) -> u32 {
    let lock = Arc::new(lock);
    let theirs = lock.clone();
    let other = loom::thread::spawn(move || part(&theirs));
    (0..times).for_each(|_| add(&lock, 8));
    other.join().unwrap();
    total(&lock)
}

#[test]
fn a_favourite_and_another_thread() {
    model(|| {
        let added = beside(with_favourite(8), 2, |lock| (0..2).for_each(|_| add(lock, 16)));
        assert_eq!(added, 2 + 4);
    });
}

#[test]
fn a_favourite_and_one_that_tries() {
    model(|| assert_eq!(beside(with_favourite(8), 2, |lock| try_and_add(lock, 16)), 2 + 3));
}

/// The place goes from thread to thread: what a revoked one still writes must not open the lock for others.
#[test]
fn a_favourite_that_is_replaced() {
    model(|| {
        let added = beside(with_favourite(8), 1, |lock| (0..4).for_each(|_| add(lock, 16)));
        assert_eq!(added, 2 + 5);
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

/// The first is the favourite from its first take on, and again whenever it comes back.
#[test]
fn a_lock_for_one_thread_and_another_thread() {
    model(|| {
        let lock = Lock::for_one_thread(Cell::new(0));
        add(&lock, 8);
        assert!(lock.favours(8));
        let added = beside(lock, 2, |lock| {
            add(lock, 16);
            try_and_add(lock, 16);
        });
        assert_eq!(added, 1 + 4);
    });
}

/// Both begin at once: either may be the first.
#[test]
fn a_lock_for_one_thread_that_two_take_first() {
    model(|| {
        let lock = Lock::for_one_thread(Cell::new(0));
        assert_eq!(beside(lock, 2, |lock| (0..2).for_each(|_| add(lock, 16))), 4);
    });
}

/// There are two places, and three who take it, two of them in turn on one thread. The third gets the first one's place
/// only if that has come by since it was taken from it: its last write there must not open the lock.
#[test]
fn a_place_that_is_handed_on() {
    model(|| {
        let lock = Lock::for_one_thread(Cell::new(0));
        add(&lock, 8);
        let added = beside(lock, 2, |lock| [16, 16, 24, 24, 24].into_iter().for_each(|me| add(lock, me)));
        assert_eq!(added, 1 + 7);
    });
}

/// It changes what the lock is while others take it.
#[test]
fn a_declaration_while_the_favourite_is_at_work() {
    model(|| {
        let added = beside(with_favourite(8), 2, |lock| {
            lock.declare(true);
            add(lock, 16);
        });
        assert_eq!(added, 2 + 3);
    });
}
