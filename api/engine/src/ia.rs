//! Interface adapter instances.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use dat_plugin::host::{Device, SpanTable};
use dat_plugin::{Caps, DeviceAttr};
use dat_types::{
    AsyncReason, CloseFlags, CompletionFlags, EpCreator, EvdFlags, EventData, IaAttr, MemTypes, ObjectId,
    ProviderAttr, Qos, Result, Subtype,
};
use parking_lot::Mutex;

use crate::cr::Cr;
use crate::ep::EpInner;
use crate::error;
use crate::evd::Evd;
use crate::lmr::{Grave, Lmr};
use crate::progress::Progress;
use crate::pz::Pz;
use crate::sequel::Sequels;
use crate::service_point::Psp;

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
}

impl Default for IaOptions {
    fn default() -> IaOptions {
        IaOptions { async_evd_min_qlen: 16, spin: Duration::from_micros(100) }
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
    pub(crate) progress: Progress,
    pub(crate) spin: Duration,
    async_evd: OnceLock<Evd>,
}

/// Everything alive on an IA.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) pzs: HashMap<ObjectId, Pz>,
    pub(crate) lmrs: HashMap<ObjectId, Lmr>,
    pub(crate) evds: HashMap<ObjectId, Evd>,
    pub(crate) eps: HashMap<ObjectId, Arc<EpInner>>,
    pub(crate) psps: HashMap<ObjectId, Psp>,
    pub(crate) crs: HashMap<ObjectId, Cr>,
    /// Connection attempts and connections under way: what the provider's events name.
    pub(crate) attempts: HashMap<u64, Arc<EpInner>>,
}

impl Ia {
    /// `dat_ia_open`, from an open device on. `name` is the IA name, `version` the provider's.
    pub fn open(device: Device, name: &str, version: &str, options: IaOptions) -> Result<Ia> {
        const CALL: &str = "dat_ia_open";
        let attr = *device.attr();
        if options.async_evd_min_qlen <= 0 {
            let message =
                format!("an async queue of {} events; at least 1 is needed", options.async_evd_min_qlen);
            return Err(error::parameter(CALL, Subtype::Arg2, message));
        }
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
            progress,
            spin: if cfg!(miri) { Duration::ZERO } else { options.spin },
            async_evd: OnceLock::new(),
        });
        let async_evd = Evd::new(&inner, options.async_evd_min_qlen as u32, EvdFlags::ASYNC, None);
        async_evd.pin();
        let _ = inner.async_evd.set(async_evd);
        let for_thread = inner.clone();
        let thread = std::thread::Builder::new()
            .name(format!("dat-{name}"))
            .spawn(move || crate::progress::run(&for_thread))
            .map_err(|source| {
                error::resources(CALL, Subtype::ResourceDevice, "no thread for the IA").with_source(source)
            })?;
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
        self.inner.objects.lock().pzs.insert(pz.0.id, pz.clone());
        Ok(pz)
    }

    /// A connection request by the id its event carried.
    pub fn cr(&self, id: ObjectId) -> Result<Cr> {
        const CALL: &str = "dat_cr_query";
        self.device(CALL)?;
        let cr = self.inner.objects.lock().crs.get(&id).cloned();
        cr.ok_or_else(|| error::freed(CALL, Subtype::HandleCr, "connection request", id))
    }

    /// `dat_ia_query`: the adapter's attributes.
    pub fn query(&self) -> Result<IaAttr> {
        self.device("dat_ia_query")?;
        let attr = &self.inner.attr;
        let address = attr.address.to_std().map_or_else(|| [0, 0, 0, 0].into(), |addr| addr.ip());
        Ok(IaAttr {
            adapter_name: self.inner.name.clone(),
            vendor_name: self.inner.version.clone(),
            address,
            max_eps: attr.max_channels,
            max_dto_per_ep: attr.max_requests_per_channel.min(attr.max_recvs_per_channel),
            max_rdma_read_per_ep_in: attr.max_reads_per_channel,
            max_rdma_read_per_ep_out: attr.max_reads_per_channel,
            max_evds: attr.max_queues,
            max_evd_qlen: attr.max_queue_depth,
            max_iov_segments_per_dto: self.inner.max_iov(),
            max_iov_segments_per_rdma_read: attr.max_read_segments.min(crate::ep::MAX_IOV as u32),
            max_iov_segments_per_rdma_write: attr.max_write_segments.min(crate::ep::MAX_IOV as u32),
            max_lmrs: attr.max_regions.min(SpanTable::CAPACITY as u32),
            max_lmr_block_size: attr.max_region,
            max_pzs: u32::MAX,
            max_message_size: attr.max_message,
            max_rdma_size: attr.max_rdma,
            max_rmrs: 0,
            max_srqs: 0,
        })
    }

    /// `dat_ia_query`: the provider's attributes.
    pub fn provider_query(&self) -> Result<ProviderAttr> {
        self.device("dat_ia_query")?;
        let attr = &self.inner.attr;
        let has = |caps: Caps| if attr.caps.contains(caps) { "TRUE" } else { "FALSE" }.to_owned();
        Ok(ProviderAttr {
            provider_name: self.inner.name.clone(),
            provider_version: self.inner.version.clone(),
            lmr_mem_types_supported: MemTypes::empty(),
            qos_supported: Qos(attr.qos),
            completion_flags_supported: CompletionFlags::all(),
            is_thread_safe: true,
            max_private_data_size: attr.max_private_data,
            supports_multipath: false,
            ep_creator: EpCreator::IfAsked,
            optimal_buffer_alignment: attr.alignment,
            srq_supported: false,
            lmr_sync_req: false,
            dto_async_return_guaranteed: true,
            is_signal_safe: false,
            evd_stream_merging_supported: [[true; 6]; 6],
            provider_specific: vec![
                ("DAT_RECEIVER_WAITS".into(), has(Caps::RECEIVER_WAITS)),
                ("DAT_WRITE_ORDERED".into(), has(Caps::WRITE_ORDERED)),
                ("DAT_INTER_PROCESS".into(), has(Caps::INTER_PROCESS)),
                ("DAT_INTER_HOST".into(), has(Caps::INTER_HOST)),
            ],
        })
    }

    /// `dat_ia_close`. Graceful: `DAT_INVALID_STATE` while any object but connection requests is left. Abrupt: ends
    /// everything (contract section 1.3).
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
        self.inner.async_evd.get().expect("set when opened").kill();
        self.inner.graveyard.lock().clear();
        self.inner.device.lock().take();
        Ok(())
    }

    pub(crate) fn device(&self, call: &'static str) -> Result<Device> {
        self.inner.device(call)
    }
}

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

    pub(crate) fn attr(&self) -> &DeviceAttr {
        &self.attr
    }

    pub(crate) fn max_qlen(&self) -> u32 {
        self.attr.max_queue_depth
    }

    pub(crate) fn max_iov(&self) -> u32 {
        self.attr.max_segments.min(crate::ep::MAX_IOV as u32)
    }

    /// Raises an asynchronous event. One that does not fit makes the async dispatcher dead (contract section 6.3).
    pub(crate) fn raise(&self, object: ObjectId, reason: AsyncReason) {
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
        let objects = std::mem::take(&mut *self.objects.lock());
        for ep in objects.eps.values() {
            ep.kill();
        }
        for lmr in objects.lmrs.values() {
            lmr.kill();
        }
        for psp in objects.psps.values() {
            psp.kill();
        }
        for cr in objects.crs.values() {
            cr.abandon();
        }
        for pz in objects.pzs.values() {
            pz.kill();
        }
        for evd in objects.evds.values() {
            evd.kill();
        }
    }
}

impl Objects {
    /// What the consumer made and did not free, in words; empty when there is nothing.
    fn left(&self) -> String {
        let counts = [
            ("endpoints", self.eps.values().filter(|ep| !ep.is_tentative()).count()),
            ("memory regions", self.lmrs.len()),
            ("protection zones", self.pzs.len()),
            ("event dispatchers", self.evds.len()),
            ("service points", self.psps.len()),
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
