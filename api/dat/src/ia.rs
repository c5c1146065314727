//! Opening an interface adapter by name.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dat_engine::{AsyncEvd, IaOptions};
use dat_registry::{Opened, Registry, Step};
use dat_types::{CloseFlags, Comm, EvdFlags, IaAttr, IaCounter, ObjectId, ProviderAttr, PspFlags, Result};

use crate::{Cno, CnoFd, Csp, Ep, EpBuilder, Evd, Psp, Pz, Rsp};

/// Opens the interface adapter of this name (or the first of a chain of this name that opens).
///
/// Errors: `DAT_PROVIDER_NOT_FOUND` with three different sentences for a name nobody configured, a plugin that cannot
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

    /// How many asynchronous events are kept at least; 16 unless told otherwise.
    pub fn async_events(mut self, count: i32) -> IaBuilder {
        self.options.async_evd_min_qlen = count;
        self
    }

    /// Takes asynchronous errors on this dispatcher, of another open of the same adapter, in place of one of its own
    /// (contract section 12.4).
    pub fn share_async(mut self, evd: &Evd) -> IaBuilder {
        self.async_evd = AsyncEvd::Shared(evd.engine().clone());
        self
    }

    /// How long a wait looks before it sleeps; 100 µs unless told otherwise. Looking costs a processor, sleeping costs
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

    /// A new protection zone.
    pub fn pz(&self) -> Result<Pz> {
        Pz::new(self)
    }

    /// A dispatcher of `qlen` events of every kind but asynchronous ones (`dat_evd_create`).
    pub fn evd(&self, qlen: u32) -> Result<Evd> {
        self.evd_of(qlen, EvdFlags::DEFAULT.difference(EvdFlags::ASYNC) | EvdFlags::SOFTWARE)
    }

    /// A dispatcher of `qlen` events of these kinds.
    pub fn evd_of(&self, qlen: u32, kinds: EvdFlags) -> Result<Evd> {
        let qlen = i32::try_from(qlen).unwrap_or(i32::MAX);
        Ok(Evd::new(self, self.engine.evd_create(qlen, kinds)?))
    }

    /// The dispatcher of asynchronous errors.
    pub fn async_evd(&self) -> Evd {
        Evd::borrowed(self, self.engine.async_evd())
    }

    /// Begins to describe an endpoint in this zone.
    pub fn ep(&self, pz: &Pz) -> EpBuilder {
        EpBuilder::new(self, pz)
    }

    /// Listens on a connection qualifier: requests arrive on `evd`, acceptors name the endpoint.
    pub fn listen(&self, conn_qual: u64, evd: &Evd) -> Result<Psp> {
        Ok(Psp::new(self, evd, self.engine.psp_create(conn_qual, evd.engine(), PspFlags::Consumer)?))
    }

    /// Listens on a free connection qualifier; [`Psp::conn_qual`] tells which.
    pub fn listen_any(&self, evd: &Evd) -> Result<Psp> {
        Ok(Psp::new(self, evd, self.engine.psp_create_any(evd.engine(), PspFlags::Consumer)?))
    }

    /// Reserves `ep` for one request to this connection qualifier, which it alone can accept
    /// ([`crate::Request::accept_reserved`]). Keep the endpoint until that request is decided.
    pub fn reserve(&self, conn_qual: u64, ep: &Ep, evd: &Evd) -> Result<Rsp> {
        Ok(Rsp::new(self, ep, evd, self.engine.rsp_create(conn_qual, Some(ep.inner()), evd.engine())?))
    }

    /// Listens on the port of a socket address of this host, for [`Ep::connect_to`]; port 0 stands for a free one.
    pub fn listen_on(&self, address: SocketAddr, evd: &Evd) -> Result<Csp> {
        let comm = Comm::of(address.ip());
        Ok(Csp::new(self, evd, self.engine.csp_create(comm, address, evd.engine())?))
    }

    /// A notification object.
    pub fn cno(&self) -> Result<Cno> {
        Cno::new(self)
    }

    /// A notification object with a descriptor.
    pub fn cno_fd(&self) -> Result<CnoFd> {
        CnoFd::new(self)
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
    pub fn engine(&self) -> &dat_engine::Ia {
        &self.engine
    }
}
