//! What loading a plugin costs.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use dat_plugin::host::Plugin;
use support::plugin;

/// An idle machine needs less than the promised millisecond; the bound allows for a busy one.
const BOUND: Duration = Duration::from_millis(20);

#[test]
fn loading_a_plugin_takes_a_few_milliseconds_at_most() {
    let library = plugin("panics-in-post");
    let folder = tempfile::tempdir().expect("a folder");
    // Each copy is another library to the loader, which remembers those it has by their file.
    let mut times: Vec<Duration> = (0..21)
        .map(|nth| {
            let copy = folder.path().join(format!("libcopy{nth}.so"));
            fs::copy(&library, &copy).expect("copied");
            let start = Instant::now();
            let loaded = Plugin::load(&copy).expect("loads");
            let took = start.elapsed();
            assert_eq!(loaded.path(), Some(copy.as_path()));
            took
        })
        .collect();
    times.sort();
    let [first, median, last] = [times[0], times[times.len() / 2], times[times.len() - 1]];
    println!("loading, layouts compared: {first:?} at best, {median:?} at the median, {last:?} at worst");
    assert!(median < BOUND, "{times:?}");
}
