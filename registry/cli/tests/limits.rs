//! Under limits of the system: what is exhausted is said, with the code for it, and nothing is ended by a signal.

mod support;

use support::limited;

#[test]
fn descriptors_that_are_used_up_are_resources() {
    // From too few for the provider to too few for the engine.
    for descriptors in 5..=12 {
        let done = limited(&format!("-n {descriptors}"), &["info", "shm0"]).failed();
        assert!(done.err.contains("DAT_INSUFFICIENT_RESOURCES"), "{descriptors}: {}", done.err);
        assert!(done.err.contains("Too many open files"), "{descriptors}: {}", done.err);
    }
}

/// The system ends a process that makes a file longer than it may, shared memory included.
#[test]
fn a_limit_of_files_is_an_error_and_no_signal() {
    for blocks in [0, 1, 64] {
        let done = limited(&format!("-f {blocks}"), &["ping", "shm0"]).failed();
        assert!(done.err.contains("limit of a file's size"), "{blocks}: {}", done.err);
    }
}
