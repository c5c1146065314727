//! Opening `shm0` with parameters, from the plugin cargo built for these tests.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use dat::registry::Registry;
use dat::{Ia, IaBuilder, Result};

/// Parameters of `shm0` as they stand in `plugins.toml`, with a domain of their own, so that tests that run at the same
/// time do not meet.
#[derive(Clone, Debug)]
pub struct Domain {
    name: String,
    more: String,
}

impl Domain {
    /// A domain of its own, with the provider's defaults.
    pub fn new() -> Domain {
        Domain::with("")
    }

    /// The same with more parameters, as `key = value, key = value`.
    pub fn with(parameters: &str) -> Domain {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let more = if parameters.is_empty() { String::new() } else { format!(", {parameters}") };
        Domain { name, more }
    }

    /// Its name: part of the names of all sockets.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Default for Domain {
    fn default() -> Domain {
        Domain::new()
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain = \"{}\"{}", self.name, self.more)
    }
}

/// Opens `shm0` with these parameters, or, when they begin with a fabric, the libfabric provider. The plugin is found beside the test's executable, or through `DAT_PLUGIN_PATH`.
///
/// `DAT_TEST_LOG=debug`, or another level, prints the log.
pub fn open(parameters: &str) -> Result<Ia> {
    if let Ok(level) = std::env::var("DAT_TEST_LOG") {
        let told = tracing_subscriber::fmt().with_env_filter(level).with_writer(std::io::stderr);
        // Fails from the second time on: it is set up already.
        let _ = told.try_init();
    }
    let library = if parameters.starts_with("fabric") { "libdat_libfabric.so" } else { "libdat_shm.so" };
    let text = format!("[provider.shm0]\nlibrary = \"{library}\"\nparams = {{ {parameters} }}\n");
    let registry = Registry::from_str("process-tests.toml", &text)?;
    IaBuilder::new("shm0").open_in(&registry)
}
