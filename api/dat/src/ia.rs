//! Opening an interface adapter by name.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dat_engine::{AsyncEvd, IaOptions};
use dat_registry::{Opened, Registry, Step};
use dat_types::{CloseFlags, IaAttr, IaCounter, ObjectId, ProviderAttr, Result};

/// Opens the interface adapter of this name (or the first of a chain of this name that opens).
///
/// Errors: `DAT_PROVIDER_NOT_FOUND` with three different sentences for a name that is not configured, a plugin that cannot
/// be loaded, and the return code of the provider for a plugin without a device. Thread-safe; blocks for the loading.
pub fn open(name: &str) -> Result<Ia> {
    IaBuilder::new(name).open()
}

/// An open interface adapter. Cheap to clone; it closes when the last clone and the last object made from it are gone.
#[derive(Clone, Debug)]
pub struct Ia {
    pub(crate) engine: Arc<dat_engine::Ia>,
    steps: Arc<[Step]>,
}

/// How to open an interface adapter.
#[derive(Clone, Debug)]
pub struct IaBuilder {
    name: String,
    plugins: Option<PathBuf>,
    options: IaOptions,
    async_evd: AsyncEvd,
}

impl IaBuilder {
    /// Opens `name` with the registry's layered lookup.
    pub fn new(name: &str) -> IaBuilder {
        IaBuilder {
            name: name.to_owned(),
            plugins: None,
            options: IaOptions::default(),
            async_evd: AsyncEvd::Own,
        }
    }

    /// Looks the name up in this file alone.
    pub fn plugins(mut self, file: impl Into<PathBuf>) -> IaBuilder {
        self.plugins = Some(file.into());
        self
    }

    /// How many asynchronous events are kept at least; 16 by default.
    pub fn async_events(mut self, count: i32) -> IaBuilder {
        self.options.async_evd_min_qlen = count;
        self
    }

    pub(crate) fn async_evd(mut self, evd: AsyncEvd) -> IaBuilder {
        self.async_evd = evd;
        self
    }

    /// How long a wait polls before it sleeps; 100 µs by default. Polling costs a processor, sleeping costs
    /// tens of microseconds.
    pub fn spin(mut self, spin: Duration) -> IaBuilder {
        self.options.spin = spin;
        self
    }

    /// Opens it.
    pub fn open(&self) -> Result<Ia> {
        let registry = match &self.plugins {
            Some(file) => Registry::from_file(file)?,
            None => Registry::open()?,
        };
        self.open_in(&registry)
    }

    /// Opens it from a registry read before.
    pub fn open_in(&self, registry: &Registry) -> Result<Ia> {
        let Opened { device, plugin, ia_name, steps } = registry.open_device(&self.name)?;
        let version = format!("{} {}", plugin.name(), plugin.version());
        let engine =
            dat_engine::Ia::open_with(device, &ia_name, &version, self.options, self.async_evd.clone())?;
        Ok(Ia { engine: Arc::new(engine), steps: steps.into() })
    }
}

impl Ia {
    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.engine.id()
    }

    /// The name that opened: what was asked for, or the step of a chain.
    pub fn name(&self) -> &str {
        self.engine.name()
    }

    /// What was tried to open it, in order; more than one entry for a chain.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Its address, for peers to connect to.
    pub fn address(&self) -> Result<IpAddr> {
        Ok(self.engine.query()?.address)
    }

    /// The adapter's attributes (`dat_ia_query`).
    pub fn attr(&self) -> Result<IaAttr> {
        self.engine.query()
    }

    /// The provider's attributes (`dat_ia_query`).
    pub fn provider_attr(&self) -> Result<ProviderAttr> {
        self.engine.provider_query()
    }

    /// What the device is made of, for people.
    pub fn describe(&self) -> Result<String> {
        self.engine.describe()
    }

    /// What happened on it since it was opened or the counters were last reset.
    pub fn counters(&self, reset: bool) -> Result<Vec<(IaCounter, u64)>> {
        let counts = self.engine.counters(reset)?;
        Ok(IaCounter::ALL.iter().copied().zip(counts).collect())
    }

    /// Ends everything on it at once (`dat_ia_close` abrupt): connections break, waits return `DAT_ABORT`, every object
    /// made from it is invalid.
    pub fn close(&self) -> Result<()> {
        self.engine.close(CloseFlags::Abrupt)
    }

    /// The layer below.
    ///
    /// ```compile_fail,E0133
    /// # fn example(ia: &dat::Ia) {
    /// ia.engine(); // posts of the engine can name any memory that is registered
    /// # }
    /// ```
    ///
    /// # Safety
    /// The calls of the engine believe addresses and contexts. Operations posted on objects that are reached from here
    /// name only memory that the caller registered, and that no other part of the program uses meanwhile.
    pub unsafe fn engine(&self) -> &dat_engine::Ia {
        &self.engine
    }
}
