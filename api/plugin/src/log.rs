//! `tracing` keeps its dispatcher in a static of each shared object, so a plugin's events would vanish. The plugin's
//! side of this module forwards them to the host; the host's side hands them to its own `tracing`.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

use crate::abi::Status;
use crate::ops::{HostOps, Str};

static SINK: OnceLock<HostOps> = OnceLock::new();
static LEVEL: AtomicU32 = AtomicU32::new(0);

/// Plugin side: forwards this shared object's events to `host` from now on. In the host itself there is nothing to
/// forward: its dispatcher is the one the host logs to.
pub(crate) fn install(host: &HostOps, level: u32) -> Status {
    LEVEL.store(level, Ordering::Relaxed);
    if host.log as usize == sink as *const () as usize {
        return Status::OK;
    }
    let _ = SINK.set(*host);
    // A dispatcher that is there already is this one (a second open) or the author's own choice.
    let _ = tracing::subscriber::set_global_default(Forward);
    Status::OK
}

struct Forward;

impl Subscriber for Forward {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        number(metadata.level()) <= LEVEL.load(Ordering::Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match LEVEL.load(Ordering::Relaxed) {
            0 => LevelFilter::OFF,
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let Some(host) = SINK.get() else { return };
        let mut text = Text(String::new());
        event.record(&mut text);
        let metadata = event.metadata();
        // SAFETY: the host's function, given with the promise to live as long as the process; the texts live until it
        // returned.
        unsafe { (host.log)(number(metadata.level()), Str::new(metadata.target()), Str::new(&text.0)) };
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let gap = if self.0.is_empty() { "" } else { " " };
        let _ = match field.name() {
            "message" => write!(self.0, "{gap}{value:?}"),
            name => write!(self.0, "{gap}{name}={value:?}"),
        };
    }
}

fn number(level: &Level) -> u32 {
    match *level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

/// Host side: the most verbose level anybody listens to.
pub(crate) fn host_level() -> u32 {
    LevelFilter::current().into_level().as_ref().map_or(0, number)
}

/// Host side: takes a plugin's record.
pub(crate) unsafe extern "C" fn sink(level: u32, target: Str, text: Str) {
    // SAFETY: the plugin passes texts that live for the call.
    let (plugin, text) = unsafe { (target.text(), text.text()) };
    let (plugin, text) = (plugin.as_ref(), text.as_ref());
    match level {
        1 => tracing::error!(target: "dat.plugin", plugin, "{text}"),
        2 => tracing::warn!(target: "dat.plugin", plugin, "{text}"),
        3 => tracing::info!(target: "dat.plugin", plugin, "{text}"),
        4 => tracing::debug!(target: "dat.plugin", plugin, "{text}"),
        _ => tracing::trace!(target: "dat.plugin", plugin, "{text}"),
    }
}

/// The table handed to plugins.
pub(crate) static HOST: HostOps =
    HostOps { size: size_of::<HostOps>() as u32, minor: crate::ABI_MINOR, log: sink };
