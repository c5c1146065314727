//! Interface adapter instances.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use dat_plugin::host::{Device, Memory, SpanTable};
use dat_plugin::{DeviceAttr, Event};
use dat_types::{AsyncReason, Comm, IaCounter, ObjectId, Result, Subtype};
use parking_lot::Mutex;

use super::objects::Objects;
use super::pending_memory::PendingMemory;
use super::progress::mailbox::Progress;
use crate::base::context::{Context, object_calls};
use crate::base::counters::IaCounts;
use crate::base::deferred::DeferredList;
use crate::base::error;
use crate::base::segments::MAX_IOV;

/// An open interface adapter: one provider's device, and all objects made from it. Dropping it closes it abruptly.
pub struct Ia {
    pub(crate) inner: Arc<IaInner>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

/// How to open an IA.
#[derive(Clone, Copy, Debug)]
pub struct IaOptions {
    /// Events the async dispatcher holds at least.
    pub async_evd_min_qlen: i32,
    /// How long a wait polls before it sleeps.
    pub spin: Duration,
    /// Which rules hold where the specification and the reference library differ.
    pub rules: Rules,
}

/// Which rules hold where the specification and the reference library differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Those of the specification.
    #[default]
    Specification,
    /// Those of the reference library, because programs of the field need them. The C library uses these:
    /// - Completion streams of one dispatcher may differ in their completion flags, and other streams may feed it too.
    /// - The last byte of an RDMA write becomes visible after all others, for peers that poll their memory. A provider's
    ///   own parameter may turn this off.
    /// - An endpoint with a shared receive queue reports its last receive by `EpTransferToError` when its connection
    ///   is over.
    Reference,
}

impl Default for IaOptions {
    fn default() -> IaOptions {
        IaOptions { async_evd_min_qlen: 16, spin: Duration::from_micros(100), rules: Rules::Specification }
    }
}

pub(crate) struct IaInner {
    pub(crate) id: ObjectId,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) device: Mutex<Option<Device>>,
    pub(crate) attr: DeviceAttr,
    pub(crate) closed: AtomicBool,
    pub(crate) spans: Arc<SpanTable>,
    pub(crate) objects: Mutex<Objects>,
    pub(crate) pending_memory: PendingMemory,
    /// Service points come, go and take requests one at a time: before the locks of endpoints.
    pub(crate) ports: Mutex<()>,
    pub(crate) progress: Progress,
    pub(crate) spin: Duration,
    pub(crate) rules: Rules,
    /// Where asynchronous errors go.
    pub(crate) async_sink: OnceLock<Arc<dyn AsyncSink>>,
    /// What is done with an event of the provider.
    pub(crate) on_event: fn(&Arc<IaInner>, &Event),
    /// The async dispatcher goes with the IA.
    pub(crate) async_owned: bool,
    /// The consumer may know the async dispatcher.
    pub(crate) async_scope: bool,
    pub(crate) context: Context,
    pub(crate) counts: IaCounts,
}

impl Ia {
    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.inner.id
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the device is made of, for people.
    pub fn describe(&self) -> Result<String> {
        Ok(self.device("dat_ia_query")?.describe())
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

/// What takes the asynchronous errors of an adapter: a dispatcher.
pub(crate) trait AsyncSink: Send + Sync {
    /// Queues the event. If it does not fit, nothing more is taken.
    fn raise(&self, object: ObjectId, reason: AsyncReason);

    /// The dispatcher itself.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl IaInner {
    pub(crate) fn async_sink(&self) -> Arc<dyn AsyncSink> {
        self.async_sink.get().expect("set when opened").clone()
    }

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

    /// The device in any state of the IA, for closing.
    pub(crate) fn open_device(&self) -> Option<Device> {
        self.device.lock().clone()
    }

    /// Read without a lock: another thread of the parent may have held it when the process forked.
    pub(crate) fn in_own_process(&self) -> bool {
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

    /// The default communicator of connections by socket address.
    pub(crate) fn comm(&self) -> Comm {
        Comm::of(self.address())
    }

    pub(crate) fn max_qlen(&self) -> u32 {
        self.attr.max_queue_depth
    }

    pub(crate) fn max_iov(&self) -> u32 {
        self.attr.max_segments.min(MAX_IOV as u32)
    }

    /// Raises an asynchronous event. If it does not fit, the async dispatcher is dead (spec: events).
    pub(crate) fn raise(&self, object: ObjectId, reason: AsyncReason) {
        self.count(IaCounter::AsyncError);
        match reason {
            AsyncReason::EvdOverflow => self.count(IaCounter::AsyncCqError),
            AsyncReason::EpTransferToError => self.count(IaCounter::AsyncQpError),
            _ => {}
        }
        if let Some(sink) = self.async_sink.get() {
            sink.raise(object, reason);
        }
    }

    /// Keeps the memory of a freed region until all work outstanding now has completed.
    pub(crate) fn keep_memory(&self, memory: Memory) {
        let eps: Vec<_> = self.objects.lock().eps.values().cloned().collect();
        self.pending_memory.keep(memory, eps.into_iter().flat_map(|ep| ep.rings()));
        self.pending_memory.release();
    }

    /// Has the IA's thread perform deferred that were found under an endpoint's lock.
    pub(crate) fn later(&self, deferred: DeferredList) {
        self.progress.later(deferred);
    }
}

impl std::fmt::Debug for Ia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ia({}, {:?})", self.inner.id, self.inner.name)
    }
}
