//! What loading a plugin costs, and that it is paid once.

mod support;

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dat_plugin::host::Plugin;
use dat_registry::Registry;
use support::plugin;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};

/// Below a millisecond is promised, and is what an idle machine needs; the bound is for a busy one.
const BOUND: Duration = Duration::from_millis(20);

#[test]
fn loading_a_plugin_takes_less_than_anybody_notices() {
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

#[test]
fn layouts_are_compared_once_whoever_opens_and_however_often() {
    let library = plugin("panics-in-post").display().to_string();
    let text = format!("[provider.x]\nlibrary = {library:?}\n[provider.y]\nlibrary = {library:?}\n");
    let compared = tracing::subscriber::with_default(Compared, || {
        for _ in 0..3 {
            let registry = Registry::from_str("test.toml", &text).expect("valid");
            for name in ["x", "y", "x"] {
                registry.open_device(name).expect("opens");
                assert_eq!(registry.explain(name).candidates.len(), 1);
            }
            assert_eq!(registry.status().len(), 2);
        }
        let count = Compared::count();
        // That it is counted at all: another path is another library.
        let folder = tempfile::tempdir().expect("a folder");
        let copy = folder.path().join("libcopy.so");
        fs::copy(&library, &copy).expect("copied");
        support::registry_of(&copy, "").open_device("x").expect("opens");
        assert_eq!(Compared::count(), count + 1);
        count
    });
    assert_eq!(compared, 1);
}

/// Counts, of its thread, how often layouts are compared.
struct Compared;

static COUNT: Mutex<usize> = Mutex::new(0);

impl Compared {
    fn count() -> usize {
        *COUNT.lock().expect("no test panics with it")
    }
}

impl tracing::Subscriber for Compared {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "dat.plugin"
    }
    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(bool);
        impl Visit for Message {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0 |= field.name() == "message" && format!("{value:?}") == "layout compared";
            }
        }
        let mut message = Message(false);
        event.record(&mut message);
        *COUNT.lock().expect("no test panics with it") += usize::from(message.0);
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
