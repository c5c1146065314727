//! Providers that programs run on, and how long to wait for them.

use std::time::Duration;

use dat_engine::Plugin;
use dat_plugin::Config;

/// How long a run waits before it says that something does not happen.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For an event that must come.
    pub event: Duration,
    /// For a call to return.
    pub call: Duration,
}

impl Patience {
    /// For a verdict: nothing takes that long on a busy machine either.
    pub const FULL: Patience = Patience { event: Duration::from_secs(5), call: Duration::from_secs(10) };
    /// For the runs that shrink a failing program; most of them would use up the full time limit.
    pub const SHRINKING: Patience =
        Patience { event: Duration::from_millis(1200), call: Duration::from_secs(2) };
}

/// A provider: both adapters of a program are in this process.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name in reports.
    pub label: String,
    /// The plugin.
    pub plugin: Plugin,
    /// How to open it.
    pub config: Config,
    /// Leave out the known faults of the Soft-RoCE driver, also where the provider reports the feature.
    pub soft_roce: bool,
}
