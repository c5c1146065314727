//! Under limits of the system, errors name the exhausted resource and have its code. No signal ends a process.

mod support;

use std::fs;

use support::limited;

/// Descriptors that children of this test inherit, besides the three usual ones.
fn inherited() -> Vec<u64> {
    const CLOEXEC: u64 = 0o2_000_000;
    let entries = fs::read_dir("/proc/self/fdinfo").expect("these tests need /proc");
    let handed_on = |number: &u64| {
        // The descriptor that is gone was the folder's.
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        flags
            .is_some_and(|flags| u64::from_str_radix(flags.trim(), 8).is_ok_and(|flags| flags & CLOEXEC == 0))
    };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| *number > 2 && handed_on(number)).collect()
}

/// From too few for the provider to too few for the engine: one more with each try, beside the inherited ones.
#[test]
fn descriptors_that_are_used_up_are_resources() {
    let inherited = inherited();
    let mut refused = 0;
    for descriptors in (3..).filter(|descriptors| !inherited.contains(&(descriptors - 1))).take(60) {
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
