//! Room for descriptors: who starts a test has a say in how many it may have, and many have 1024. Tests of providers
//! include this file, too.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes room for this number of descriptors, in this process and its children, up to the hard limit. Where that is
/// lower the test cannot run, and the result reports it.
pub fn descriptors(more: usize, test: &str) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count());
    let wanted = (open + more) as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return true;
    }
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        let most = limit.maximum.unwrap_or_default();
        println!("NOT RUN: {test}: it needs {wanted} descriptors, the hard limit is {most} (ulimit -Hn)");
        return false;
    }
    true
}
