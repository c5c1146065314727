//! Descriptors that came from another process or lead to one, and the threads that close them.
//!
//! To close a descriptor can take as long as another process likes. The last reference to a TCP socket lingers in
//! `close`, a file of a FUSE mount waits for its daemon, and a Unix socket takes the descriptors with it that lie unread
//! in its queue. So no thread that others wait for closes one: a [`ForeignFd`] is handed to a disposal thread instead.
//!
//! One thread is enough as long as it makes progress. When it does not for [`STUCK`], a spare one takes over, up to
//! [`THREADS`]. They end when there was nothing to do for [`LINGER`].

use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A descriptor whose close may block. Dropping it does not.
#[derive(Debug)]
pub(crate) struct ForeignFd(Option<OwnedFd>);

impl ForeignFd {
    /// The descriptor, once it is known that to close it cannot block.
    pub(crate) fn trusted(mut self) -> Option<OwnedFd> {
        self.0.take()
    }
}

impl From<OwnedFd> for ForeignFd {
    fn from(fd: OwnedFd) -> ForeignFd {
        ForeignFd(Some(fd))
    }
}

impl AsFd for ForeignFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Some(fd) => fd.as_fd(),
            // `trusted` and `drop` alone take it, and both end the value.
            None => unreachable!("a descriptor that was given away"),
        }
    }
}

impl Drop for ForeignFd {
    fn drop(&mut self) {
        if let Some(fd) = self.0.take() {
            dispose(fd);
        }
    }
}

/// Drops a value on a disposal thread.
pub(crate) fn dispose(value: impl Send + 'static) {
    Pool::of_this_process().put(Box::new(value));
}

/// After this time without progress a spare thread takes over.
const STUCK: Duration = Duration::from_millis(5);
/// How long a thread waits for more work before it ends.
const LINGER: Duration = Duration::from_secs(2);
/// The most threads. Each may be held up by one descriptor.
const THREADS: usize = 64;

/// The disposal threads of one process.
struct Pool {
    pid: u32,
    state: Mutex<State>,
    more: Condvar,
}

struct State {
    waiting: VecDeque<Box<dyn Any + Send>>,
    /// Threads, and those that drop something just now.
    threads: usize,
    busy: usize,
    /// When a thread last began or ended to drop something.
    progress: Instant,
}

static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());

impl Pool {
    /// A child made by fork has none of its parent's threads, and the lock may be held for ever: it gets its own pool.
    fn of_this_process() -> &'static Pool {
        let pid = std::process::id();
        let known = POOL.load(Ordering::Acquire);
        // SAFETY: pools are leaked boxes.
        if let Some(pool) = unsafe { known.as_ref() }
            && pool.pid == pid
        {
            return pool;
        }
        let state = State { waiting: VecDeque::new(), threads: 0, busy: 0, progress: Instant::now() };
        let made = Box::into_raw(Box::new(Pool { pid, state: Mutex::new(state), more: Condvar::new() }));
        match POOL.compare_exchange(known, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just leaked.
            Ok(_) => unsafe { &*made },
            Err(_) => {
                // SAFETY: nobody else saw it.
                drop(unsafe { Box::from_raw(made) });
                Pool::of_this_process()
            }
        }
    }

    fn put(&'static self, value: Box<dyn Any + Send>) {
        let mut state = self.state();
        state.waiting.push_back(value);
        self.more.notify_one();
        self.have_a_spare(state);
    }

    /// Starts a thread if all there are have something to drop.
    fn have_a_spare(&'static self, mut state: MutexGuard<'_, State>) {
        if state.threads > state.busy || state.threads == THREADS {
            return;
        }
        state.threads += 1;
        drop(state);
        let thread = std::thread::Builder::new().name("dat-shm-close".into()).stack_size(64 << 10);
        if let Err(error) = thread.spawn(move || self.run()) {
            // The next one to be dropped tries again.
            self.state().threads -= 1;
            tracing::warn!(%error, "a thread that closes descriptors");
        }
    }

    fn run(&'static self) {
        block_signals();
        let mut state = self.state();
        // A thread that made progress goes on; one that waited looks whether another makes progress.
        let mut spare = true;
        loop {
            let quiet = state.progress.elapsed();
            if state.waiting.is_empty() {
                let (back, timeout) =
                    self.more.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
                state = back;
                spare = true;
                if timeout.timed_out() && state.waiting.is_empty() {
                    state.threads -= 1;
                    return;
                }
            } else if spare && state.busy > 0 && quiet < STUCK {
                let wait = STUCK - quiet;
                state = self.more.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            } else if let Some(value) = state.waiting.pop_front() {
                state.busy += 1;
                state.progress = Instant::now();
                self.have_a_spare(state);
                drop(value);
                state = self.state();
                state.busy -= 1;
                state.progress = Instant::now();
                spare = false;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Signals are for the threads of the application.
fn block_signals() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` initialises the set, which the other call reads; both fail only for bad arguments.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    struct Slow(Duration, Arc<AtomicUsize>);

    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(self.0);
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "leaves threads behind")]
    fn what_is_slow_to_close_delays_neither_its_owner_nor_the_rest() {
        let (slow, quick) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let start = Instant::now();
        for _ in 0..4 {
            dispose(Slow(Duration::from_secs(30), slow.clone()));
        }
        for _ in 0..100 {
            dispose(Slow(Duration::ZERO, quick.clone()));
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        while quick.load(Ordering::Relaxed) < 100 {
            assert!(start.elapsed() < Duration::from_secs(20), "the rest waits");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(slow.load(Ordering::Relaxed), 0);
    }
}
