//! Interface adapter instances.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use dat_plugin::DeviceAttr;
use dat_plugin::host::{Device, SpanTable};
use dat_types::{AsyncReason, CloseFlags, Comm, EvdFlags, EventData, IaCounter, ObjectId, Result, Subtype};
use parking_lot::Mutex;

use crate::async_evd::{self, AsyncEvd};
use crate::cno::Cno;
use crate::context::{Context, object_calls};
use crate::counters::IaCounts;
use crate::cr::Cr;
use crate::ep::EpInner;
use crate::error;
use crate::evd::Evd;
use crate::lmr::{Grave, Lmr};
use crate::progress::Progress;
use crate::pz::Pz;
use crate::rmr::Rmr;
use crate::sequel::Sequels;
use crate::service_point::Point;
use crate::srq::Srq;

/// An open interface adapter: one provider's device, and all objects made from it. Dropping it closes it abruptly.
pub struct Ia {
    pub(crate) inner: Arc<IaInner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How to open an IA.
#[derive(Clone, Copy, Debug)]
pub struct IaOptions {
    /// Events the async dispatcher holds at least.
    pub async_evd_min_qlen: i32,
    /// How long a wait looks before it sleeps.
    pub spin: Duration,
    /// Whether an endpoint with a shared receive queue says by `EpTransferToError` that it took its last receive, when
    /// its connection is over. The contract has no such event; programs written for the reference wait for it.
    pub tell_last_receive: bool,
}

impl Default for IaOptions {
    fn default() -> IaOptions {
        IaOptions { async_evd_min_qlen: 16, spin: Duration::from_micros(100), tell_last_receive: false }
    }
}

pub(crate) struct IaInner {
    pub(crate) id: ObjectId,
    name: String,
    version: String,
    device: Mutex<Option<Device>>,
    attr: DeviceAttr,
    closed: AtomicBool,
    pub(crate) spans: Arc<SpanTable>,
    pub(crate) objects: Mutex<Objects>,
    pub(crate) graveyard: Mutex<Vec<Grave>>,
    /// Bound memory windows by their context.
    pub(crate) windows: Mutex<HashMap<u32, Rmr>>,
    /// Service points come, go and take requests one at a time: before the locks of endpoints.
    pub(crate) ports: Mutex<()>,
    pub(crate) progress: Progress,
    pub(crate) spin: Duration,
    pub(crate) tell_last_receive: bool,
    async_evd: OnceLock<Evd>,
    /// The async dispatcher goes with the IA.
    async_owned: bool,
    /// The consumer may know the async dispatcher.
    async_scope: bool,
    context: Context,
    pub(crate) counts: IaCounts,
}

/// Everything alive on an IA.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) pzs: HashMap<ObjectId, Pz>,
    pub(crate) lmrs: HashMap<ObjectId, Lmr>,
    pub(crate) rmrs: HashMap<ObjectId, Rmr>,
    pub(crate) srqs: HashMap<ObjectId, Srq>,
    pub(crate) evds: HashMap<ObjectId, Evd>,
    pub(crate) cnos: HashMap<ObjectId, Cno>,
    pub(crate) eps: HashMap<ObjectId, Arc<EpInner>>,
    pub(crate) points: HashMap<ObjectId, Arc<Point>>,
    pub(crate) crs: HashMap<ObjectId, Cr>,
    /// Connection attempts and connections under way: what the provider's events name.
    pub(crate) attempts: HashMap<u64, Arc<EpInner>>,
}

impl Ia {
    /// `dat_ia_open`, from an open device on, with an async dispatcher of its own. `name` is the IA name, `version` the
    /// provider's.
    pub fn open(device: Device, name: &str, version: &str, options: IaOptions) -> Result<Ia> {
        Ia::open_with(device, name, version, options, AsyncEvd::Own)
    }

    /// `dat_ia_open` with a choice of async dispatcher (contract section 12.4).
    pub fn open_with(
        device: Device,
        name: &str,
        version: &str,
        options: IaOptions,
        async_evd: AsyncEvd,
    ) -> Result<Ia> {
        const CALL: &str = "dat_ia_open";
        let attr = *device.attr();
        let owned = matches!(async_evd, AsyncEvd::Own);
        let async_scope = !matches!(async_evd, AsyncEvd::Exists);
        let given = match async_evd {
            AsyncEvd::Own if options.async_evd_min_qlen <= 0 => {
                let message =
                    format!("an async queue of {} events; at least 1 is needed", options.async_evd_min_qlen);
                return Err(error::parameter(CALL, Subtype::Arg2, message));
            }
            AsyncEvd::Own if options.async_evd_min_qlen as u32 > attr.max_queue_depth => {
                let (asked, max) = (options.async_evd_min_qlen, attr.max_queue_depth);
                let message = format!("an async queue of {asked} events; the IA has at most {max}");
                return Err(error::resources(CALL, Subtype::ResourceTevd, message));
            }
            AsyncEvd::Own => None,
            AsyncEvd::Exists => Some(async_evd::existing(CALL, name)?),
            AsyncEvd::Shared(evd) => {
                async_evd::check(CALL, name, &evd)?;
                Some(evd)
            }
        };
        dat_sync::prepare();
        let progress = Progress::new(&device).map_err(|source| {
            error::resources(CALL, Subtype::ResourceDevice, "no descriptors for the IA's thread")
                .with_source(source)
        })?;
        let inner = Arc::new(IaInner {
            id: crate::next_id(),
            name: name.to_owned(),
            version: version.to_owned(),
            device: Mutex::new(Some(device)),
            attr,
            closed: AtomicBool::new(false),
            spans: Arc::new(SpanTable::new()),
            objects: Mutex::default(),
            graveyard: Mutex::default(),
            windows: Mutex::default(),
            ports: Mutex::default(),
            progress,
            spin: if cfg!(miri) { Duration::ZERO } else { options.spin },
            tell_last_receive: options.tell_last_receive,
            async_evd: OnceLock::new(),
            async_owned: owned,
            async_scope,
            context: Context::default(),
            counts: IaCounts::default(),
        });
        let async_evd = given
            .unwrap_or_else(|| Evd::new(&inner, options.async_evd_min_qlen as u32, EvdFlags::ASYNC, None));
        async_evd.pin();
        let _ = inner.async_evd.set(async_evd.clone());
        let for_thread = inner.clone();
        let thread = std::thread::Builder::new()
            .name(format!("dat-{name}"))
            .spawn(move || crate::progress::run(&for_thread))
            .map_err(|source| {
                async_evd.unpin();
                error::resources(CALL, Subtype::ResourceDevice, "no thread for the IA").with_source(source)
            })?;
        async_evd::announce(name, &async_evd);
        Ok(Ia { inner, thread: Mutex::new(Some(thread)) })
    }

    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.inner.id
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The dispatcher of asynchronous errors.
    pub fn async_evd(&self) -> Evd {
        self.inner.async_evd.get().expect("set when opened").clone()
    }

    /// What the device is made of, for people.
    pub fn describe(&self) -> Result<String> {
        Ok(self.device("dat_ia_query")?.describe())
    }

    /// `dat_pz_create`.
    pub fn pz_create(&self) -> Result<Pz> {
        self.device("dat_pz_create")?;
        let pz = Pz::new(&self.inner);
        self.inner.objects.lock().pzs.insert(pz.id(), pz.clone());
        self.inner.count(IaCounter::PzCreate);
        Ok(pz)
    }

    /// A connection request by the id its event carried.
    pub fn cr(&self, id: ObjectId) -> Result<Cr> {
        const CALL: &str = "dat_cr_query";
        self.device(CALL)?;
        let cr = self.inner.objects.lock().crs.get(&id).cloned();
        cr.ok_or_else(|| error::freed(CALL, Subtype::HandleCr, "connection request", id))
    }

    /// `dat_ia_close`. Graceful: `DAT_INVALID_STATE` while any object but connection requests is left. Abrupt: ends
    /// everything (contract section 1.3), and closes the provider's device, whatever handles are left, unless some keep
    /// memory that is the device's.
    pub fn close(&self, flags: CloseFlags) -> Result<()> {
        const CALL: &str = "dat_ia_close";
        self.device(CALL)?;
        if flags == CloseFlags::Graceful {
            let objects = self.inner.objects.lock();
            let left = objects.left();
            if !left.is_empty() {
                let message = format!("{left} are left; free them first or close abruptly");
                return Err(error::state(CALL, Subtype::IaInUse, message));
            }
        }
        if self.inner.closed.swap(true, Ordering::AcqRel) {
            return Err(error::freed(CALL, Subtype::HandleIa, "IA", self.inner.id));
        }
        self.inner.end_all();
        self.inner.progress.stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
        let async_evd = self.async_evd();
        async_evd.unpin();
        if self.inner.async_owned {
            async_evd.kill();
        }
        // What nobody can call any more is told that the adapter is gone.
        self.inner.progress.call_agents();
        self.inner.graveyard.lock().clear();
        self.inner.device.lock().take();
        Ok(())
    }

    pub(crate) fn device(&self, call: &'static str) -> Result<Device> {
        self.inner.device(call)
    }

    fn checked(&self, call: &'static str) -> Result<&Context> {
        self.device(call)?;
        Ok(&self.inner.context)
    }
}

object_calls!(Ia, Ia);

impl Drop for Ia {
    fn drop(&mut self) {
        if !self.inner.closed.load(Ordering::Acquire) && self.inner.in_own_process() {
            let _ = self.close(CloseFlags::Abrupt);
        }
    }
}

impl IaInner {
    /// The device; `DAT_INVALID_HANDLE` once closed, `DAT_INVALID_STATE` in a child made by fork.
    pub(crate) fn device(&self, call: &'static str) -> Result<Device> {
        if self.closed.load(Ordering::Acquire) {
            return Err(error::freed(call, Subtype::HandleIa, "IA", self.id));
        }
        if !self.in_own_process() {
            return Err(error::forked(call));
        }
        let device = self.device.lock().clone();
        device.ok_or_else(|| error::freed(call, Subtype::HandleIa, "IA", self.id))
    }

    /// The device whatever the IA's state, for the way down.
    pub(crate) fn open_device(&self) -> Option<Device> {
        self.device.lock().clone()
    }

    /// Read without a lock: another thread of the parent may have held it when the process forked.
    fn in_own_process(&self) -> bool {
        self.progress.is_own_process()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn async_in_scope(&self) -> bool {
        self.async_scope
    }

    pub(crate) fn attr(&self) -> &DeviceAttr {
        &self.attr
    }

    /// The address peers reach it by.
    pub(crate) fn address(&self) -> IpAddr {
        self.attr.address.to_std().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip())
    }

    /// What connections by socket address use unless told otherwise.
    pub(crate) fn comm(&self) -> Comm {
        Comm::of(self.address())
    }

    pub(crate) fn max_qlen(&self) -> u32 {
        self.attr.max_queue_depth
    }

    pub(crate) fn max_iov(&self) -> u32 {
        self.attr.max_segments.min(crate::ep::MAX_IOV as u32)
    }

    /// Raises an asynchronous event. One that does not fit makes the async dispatcher dead (contract section 6.3).
    pub(crate) fn raise(&self, object: ObjectId, reason: AsyncReason) {
        self.count(IaCounter::AsyncError);
        match reason {
            AsyncReason::EvdOverflow => self.count(IaCounter::AsyncCqError),
            AsyncReason::EpTransferToError => self.count(IaCounter::AsyncQpError),
            _ => {}
        }
        let Some(evd) = self.async_evd.get() else { return };
        if !evd.0.push(EventData::Async { object, reason }) {
            evd.0.overflowed();
        }
    }

    /// Has the IA's thread perform sequels that were found under an endpoint's lock.
    pub(crate) fn later(&self, sequels: Sequels) {
        self.progress.later(sequels);
    }

    /// The cascade of an abrupt close, in the contract's order.
    fn end_all(&self) {
        // A request is delivered before, and ended with the rest, or refused.
        let ports = self.ports.lock();
        let objects = std::mem::take(&mut *self.objects.lock());
        drop(ports);
        for rmr in objects.rmrs.values() {
            rmr.kill();
        }
        let (reserved, listening): (Vec<_>, Vec<_>) =
            objects.points.values().partition(|point| point.is_reserved());
        for point in reserved {
            point.kill();
        }
        for ep in objects.eps.values() {
            ep.kill();
        }
        for lmr in objects.lmrs.values() {
            lmr.kill();
        }
        for point in listening {
            point.kill();
        }
        for cr in objects.crs.values() {
            cr.abandon();
        }
        for srq in objects.srqs.values() {
            srq.kill();
        }
        for pz in objects.pzs.values() {
            pz.kill();
        }
        for evd in objects.evds.values() {
            evd.kill();
        }
        for cno in objects.cnos.values() {
            cno.kill();
        }
    }
}

impl Objects {
    /// What the consumer made and did not free, in words; empty when there is nothing.
    fn left(&self) -> String {
        let counts = [
            ("endpoints", self.eps.values().filter(|ep| !ep.is_tentative()).count()),
            ("memory regions", self.lmrs.len()),
            ("memory windows", self.rmrs.len()),
            ("shared receive queues", self.srqs.len()),
            ("protection zones", self.pzs.len()),
            ("event dispatchers", self.evds.len()),
            ("notification objects", self.cnos.len()),
            ("service points", self.points.len()),
        ];
        let parts: Vec<String> =
            counts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect();
        parts.join(", ")
    }
}

impl std::fmt::Debug for Ia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ia({}, {:?})", self.inner.id, self.inner.name)
    }
}
