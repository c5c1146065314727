//! The open interface adapter: what its channels, queues and listeners share.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dat_kit::{EventFd, Timer};
use dat_plugin::{Caps, DeviceAttr, Event, Failure, Status};
use rdma_sys::verbs::*;
use rustix::event::epoll;

use crate::data::ring::MAX_WORK;
use crate::data::sge::MAX_SEGMENTS;
use crate::data::work_id::CqSlot;
use crate::memory::Memory;
use crate::params::Params;
use crate::sys::cm::EventChannel;
use crate::sys::context::Context;

pub(crate) struct Adapter {
    pub(crate) cm: Arc<EventChannel>,
    pub(crate) memory: Memory,
    pub(crate) context: Arc<Context>,
    pub(crate) params: Params,
    pub(crate) attr: ibv_device_attr,
    pub(crate) max_message: u64,
    pub(crate) link: &'static str,
    /// A connection ends with its queue pair (iWARP): an orderly end looks like a failure of the queue pair.
    pub(crate) is_iwarp: bool,
    pub(crate) name: String,
    pub(crate) port: u8,
    pub(crate) address: SocketAddr,
    pub(crate) epoll: OwnedFd,
    pub(crate) wakeup: EventFd,
    pub(crate) timer: Timer,
    /// Events for the engine. Those of a channel are dropped once its flag shows it closed.
    pub(crate) events: Mutex<VecDeque<(Option<Arc<AtomicBool>>, Event)>>,
    /// Channels that met a failure, by token.
    pub(crate) faults: Mutex<Vec<u64>>,
    /// Channels whose work the device still holds, by token.
    pub(crate) stopping: Mutex<Vec<u64>>,
    pub(crate) lost: AtomicBool,
    tokens: AtomicU64,
    channels: AtomicU32,
}

/// Numbers of the descriptors in the epoll set.
pub(crate) const WAKEUP: u64 = 0;
pub(crate) const TIMER: u64 = 1;
pub(crate) const CM: u64 = 2;
pub(crate) const ASYNC: u64 = 3;

/// The first look at a channel whose work the device still holds, and the longest time between two looks.
pub(crate) const FIRST_LOOK: Duration = Duration::from_micros(50);
pub(crate) const SLOWEST_LOOK: Duration = Duration::from_millis(1);

/// The number of the identifier that is bound to the device's address. Tokens count up from there.
pub(crate) const ANCHOR: u64 = 0;

/// What [`Adapter::new`] is made of: the open device and its attributes.
pub(crate) struct AdapterParts {
    pub(crate) cm: Arc<EventChannel>,
    pub(crate) context: Arc<Context>,
    pub(crate) params: Params,
    pub(crate) attr: ibv_device_attr,
    pub(crate) port_attr: ibv_port_attr,
    pub(crate) name: String,
    pub(crate) port: u8,
    pub(crate) address: SocketAddr,
}

/// The kernel's attributes of the device. A device that it does not list does not exist.
fn is_iwarp(name: &str) -> bool {
    const RNIC: &str = "4:";
    let node = std::fs::read_to_string(format!("/sys/class/infiniband/{name}/node_type"));
    node.is_ok_and(|node| node.starts_with(RNIC))
}

impl Adapter {
    pub(crate) fn new(parts: AdapterParts) -> Result<Adapter, Failure> {
        let os = |what: &'static str| move |error: std::io::Error| Failure::os(what, &error);
        let port = &parts.port_attr;
        let adapter = Adapter {
            cm: parts.cm,
            memory: Memory::new(&parts.context)?,
            attr: parts.attr,
            max_message: u64::from(port.max_msg_sz).min(1 << 31),
            link: if port.link_layer == IBV_LINK_LAYER_ETHERNET { "RoCE" } else { "InfiniBand" },
            is_iwarp: is_iwarp(&parts.name),
            name: parts.name,
            port: parts.port,
            address: parts.address,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| os("epoll")(error.into()))?,
            wakeup: EventFd::new().map_err(os("eventfd"))?,
            timer: Timer::new().map_err(os("timerfd"))?,
            events: Mutex::default(),
            faults: Mutex::default(),
            stopping: Mutex::default(),
            lost: AtomicBool::new(false),
            tokens: AtomicU64::new(ANCHOR + 1),
            channels: AtomicU32::new(0),
            context: parts.context,
            params: parts.params,
        };
        // SAFETY: the adapter owns the event channel and the context, whose descriptors stay open until it is dropped.
        let (cm, events) = unsafe {
            (BorrowedFd::borrow_raw(adapter.cm.fd()), BorrowedFd::borrow_raw(adapter.context.async_fd()))
        };
        let watched =
            [(adapter.wakeup.as_fd(), WAKEUP), (adapter.timer.as_fd(), TIMER), (cm, CM), (events, ASYNC)];
        for (fd, number) in watched {
            epoll::add(&adapter.epoll, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
                .map_err(|error| os("epoll")(error.into()))?;
        }
        Ok(adapter)
    }

    pub(crate) fn forked(&self) -> bool {
        self.context.guard.forked()
    }

    pub(crate) fn check_fork(&self) -> Result<(), Failure> {
        if !self.forked() {
            return Ok(());
        }
        let message =
            "this process is a child made by fork from the one that opened the adapter; open it anew";
        Err(Failure::new(Status::FORKED, message))
    }

    pub(crate) fn new_token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands an event to the engine.
    pub(crate) fn push_event(&self, closed: Option<&Arc<AtomicBool>>, event: Event) {
        lock(&self.events).push_back((closed.cloned(), event));
        self.wakeup.signal();
    }

    /// Has the event thread end the connection of a channel that met a failure.
    pub(crate) fn report_fault(&self, token: u64) {
        lock(&self.faults).push(token);
        self.wakeup.signal();
    }

    /// Has the event thread look after a channel whose work the device still holds.
    pub(crate) fn watch(&self, token: u64) {
        let mut stopping = lock(&self.stopping);
        if !stopping.contains(&token) {
            stopping.push(token);
        }
        drop(stopping);
        self.set_timer(FIRST_LOOK);
    }

    pub(crate) fn unwatch(&self, token: u64) {
        lock(&self.stopping).retain(|other| *other != token);
    }

    pub(crate) fn set_timer(&self, time: Duration) {
        if let Err(error) = self.timer.set(time) {
            tracing::error!(%error, "timerfd refuses a time; looking again at once");
            self.wakeup.signal();
        }
    }

    pub(crate) fn count_channel(&self) -> Result<(), Failure> {
        let most = self.device_attr().max_channels;
        if self.channels.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(());
        }
        self.channel_closed();
        let message =
            format!("{}: {most} channels are open, which is the limit; close one first", self.params.ia_name);
        Err(Failure::new(Status::NO_RESOURCE, message))
    }

    pub(crate) fn channel_closed(&self) {
        self.channels.fetch_sub(1, Ordering::Relaxed);
    }

    /// What peers may do through a queue pair; each registration decides the rest.
    pub(crate) fn remote_rights(&self) -> u32 {
        let atomic = if self.has_atomics() { IBV_ACCESS_REMOTE_ATOMIC } else { 0 };
        (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | atomic) as u32
    }

    /// Reads a channel may have under way, each way.
    pub(crate) fn max_reads(&self) -> u8 {
        self.attr.max_qp_rd_atom.min(self.attr.max_qp_init_rd_atom).clamp(1, 254) as u8
    }

    fn has_atomics(&self) -> bool {
        self.attr.atomic_cap != IBV_ATOMIC_NONE
    }

    pub(crate) fn device_attr(&self) -> DeviceAttr {
        let attr = &self.attr;
        let params = &self.params;
        let count = |number: i32, most: u32| (number.max(0) as u32).min(most);
        let has = |flag: u32| attr.device_cap_flags & flag != 0;
        let mut caps = Caps::ALLOC | Caps::INTER_PROCESS | Caps::INTER_HOST | Caps::IMMEDIATE;
        for (there, cap) in [
            (params.rnr_retry == 7, Caps::RECEIVER_WAITS),
            (params.write_ordered, Caps::WRITE_ORDERED),
            (self.has_atomics(), Caps::ATOMICS),
            (attr.max_srq > 0, Caps::SRQ),
            (has(IBV_DEVICE_MEM_WINDOW) && attr.max_mw > 0, Caps::WINDOWS),
            (params.dmabuf && self.context.lib.verbs.ibv_reg_dmabuf_mr.is_some(), Caps::DMABUF),
        ] {
            if there {
                caps = caps | cap;
            }
        }
        let work = count(attr.max_qp_wr, MAX_WORK).saturating_sub(2).max(1);
        let segments = count(attr.max_sge, MAX_SEGMENTS as u32);
        DeviceAttr {
            caps,
            address: self.address.ip().into(),
            max_channels: count(attr.max_qp, params.max_channels).min(CqSlot::MOST),
            max_queues: count(attr.max_cq, u32::MAX),
            max_queue_depth: count(attr.max_cqe, u32::MAX),
            max_regions: count(attr.max_mr, u32::MAX),
            max_requests_per_channel: work,
            max_recvs_per_channel: work,
            max_segments: segments,
            max_read_segments: count(attr.max_sge_rd, segments).max(1),
            max_write_segments: segments,
            max_reads_per_channel: self.max_reads().into(),
            max_message: self.max_message,
            max_rdma: self.max_message,
            max_region: attr.max_mr_size,
            max_private_data: params.style.limit() as u32,
            qos: 0,
            alignment: 64,
            max_srqs: count(attr.max_srq, u32::MAX),
            max_srq_depth: count(attr.max_srq_wr, MAX_WORK),
            max_srq_segments: count(attr.max_srq_sge, MAX_SEGMENTS as u32),
            max_windows: if caps.contains(Caps::WINDOWS) { count(attr.max_mw, u32::MAX) } else { 0 },
            ..DeviceAttr::default()
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
