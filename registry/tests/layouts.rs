//! A library's layouts are compared once in a process. This is the only test of its program. The logger decides at the
//! first event of a kind whether anybody wants it, so a test in another thread could switch these events off.

mod support;

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_registry::Registry;
use support::plugin;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};

#[test]
fn layouts_are_compared_once_for_each_library() {
    let library = plugin("panics-in-post").display().to_string();
    let text = format!("[provider.x]\nlibrary = {library:?}\n[provider.y]\nlibrary = {library:?}\n");
    tracing::subscriber::with_default(Comparisons, || {
        for _ in 0..3 {
            let registry = Registry::from_str("test.toml", &text).expect("valid");
            for name in ["x", "y", "x"] {
                registry.open_device(name).expect("opens");
                assert_eq!(registry.explain(name).candidates.len(), 1);
            }
            assert_eq!(registry.status().len(), 2);
            assert_eq!(Comparisons::count(), 1);
        }
        // Another path is another library.
        let folder = tempfile::tempdir().expect("a folder");
        let copy = folder.path().join("libcopy.so");
        fs::copy(&library, &copy).expect("copied");
        support::registry_of(&copy, "").open_device("x").expect("opens");
        assert_eq!(Comparisons::count(), 2);
    });
}

/// Counts comparisons by the line that each logs.
struct Comparisons;

static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Comparisons {
    fn count() -> usize {
        COUNT.load(Ordering::SeqCst)
    }
}

impl tracing::Subscriber for Comparisons {
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
        COUNT.fetch_add(usize::from(message.0), Ordering::SeqCst);
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
