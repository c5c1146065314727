//! What loading a plugin costs.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use dat_plugin::host::Plugin;
use sha2::{Digest as _, Sha256};
use support::{plugin, registry_of};

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

/// A library is loaded once. The digest is that of the present file, which must be the loaded one.
#[test]
fn a_file_that_was_replaced_after_it_was_loaded_is_not_taken_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("libreplaced.so");
    let mut bytes = fs::read(plugin("panics-in-post")).expect("read");
    let open = |bytes: &[u8]| {
        // A new file, as package managers do it: the old one stays as it is where it is mapped.
        let fresh = folder.path().join("fresh");
        fs::write(&fresh, bytes).expect("written");
        fs::rename(&fresh, &path).expect("renamed");
        let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = format!("sha256 = {digest:?}");
        [digest.as_str(), ""].map(|more| registry_of(&path, more).open_device("x").map(drop))
    };
    assert!(open(&bytes).iter().all(Result::is_ok));
    bytes.push(0);
    let [by_digest, by_path] = open(&bytes);
    let said = by_digest.expect_err("what runs is another file").to_string();
    assert!(said.contains("replaced after this process loaded it"), "{said}");
    assert!(by_path.is_ok(), "without a digest it is the plugin of this path");
}
