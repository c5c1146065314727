//! The two halves of an asymmetric barrier between threads of this process.

pub(crate) use crate::membarrier::light;
pub use crate::membarrier::process_joined as available;

/// The expensive half: a full barrier in every thread of the process. Only after [`available`] was true.
#[cold]
pub(crate) fn heavy() {
    if !crate::membarrier::process_barrier() {
        // It worked before, so a filter of system calls was installed since. No thread becomes a bias owner any more.
        // For a present owner this wait is enough: a store leaves its processor within microseconds, and a thread
        // that does not run has no store under way.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Lets locks have bias owners from now on, where the system has `membarrier`. Call it when an adapter is opened: it may
/// take milliseconds in a process with several threads.
pub fn prepare() {
    crate::membarrier::join_process();
}
