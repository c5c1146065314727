//! Under limits of the system: what is exhausted is said, with the code for it, and nothing is ended by a signal.

mod support;

use support::limited;

/// From too few for the provider to too few for the engine. How many that is, who started this test has a say in:
/// descriptors are inherited.
#[test]
fn descriptors_that_are_used_up_are_resources() {
    let mut refused = 0;
    for descriptors in 3..64 {
        let done = limited(&format!("-n {descriptors}"), &["info", "shm0"]);
        match done.status.code() {
            Some(0) => break,
            // The loader of programs itself had too few.
            Some(127) => assert_eq!(refused, 0, "{descriptors}: {}", done.err),
            Some(1) => {
                refused += 1;
                assert!(done.err.contains("DAT_INSUFFICIENT_RESOURCES"), "{descriptors}: {}", done.err);
                assert!(done.err.contains("Too many open files"), "{descriptors}: {}", done.err);
            }
            _ => panic!("{descriptors}: {}: {}", done.status, done.err),
        }
    }
    assert!((4..40).contains(&refused), "refused with {refused} numbers of descriptors");
}

/// The system ends a process that makes a file longer than it may, shared memory included.
#[test]
fn a_limit_of_files_is_an_error_and_no_signal() {
    for blocks in [0, 1, 64] {
        let done = limited(&format!("-f {blocks}"), &["ping", "shm0"]).failed();
        assert!(done.err.contains("limit of a file's size"), "{blocks}: {}", done.err);
    }
}
