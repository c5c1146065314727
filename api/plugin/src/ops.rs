//! The op tables: what really crosses the boundary. Rust authors never write one; a C author would.
//!
//! Every table leads with its size in bytes. Every function gets the object it belongs to as `ctx`, a pointer the
//! plugin made and only the plugin looks into. Functions that can fail in a way worth a sentence take a [`Message`]
//! to write it to. A table never changes once released: what is new goes into a new table, appended to
//! [`crate::PluginModule`].

use std::ffi::c_void;

use abi_stable::StableAbi;

use crate::abi::{
    Access, AtomicRequest, BindRequest, Block, ChannelAttr, Completion, DeviceAttr, Event, Keys, RecvRequest,
    RejectReason, Request, SockAddr, SrqAttr, Status,
};

/// A plugin's object; opaque to the host.
pub type Ctx = *const c_void;

/// Borrowed text, UTF-8.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct Str {
    /// First byte; not read when `len` is 0.
    pub ptr: *const u8,
    /// Bytes.
    pub len: usize,
}

// SAFETY: the text is borrowed and never written, so any thread may read it.
unsafe impl Send for Str {}
// SAFETY: as for `Send`: several threads may read it at once.
unsafe impl Sync for Str {}

impl Str {
    /// Borrows `text`; the pointer is valid as long as the text is.
    pub const fn new(text: &str) -> Str {
        Str { ptr: text.as_ptr(), len: text.len() }
    }

    /// The text again; bytes that are no UTF-8 are replaced.
    ///
    /// # Safety
    /// The pointer and length describe readable bytes for `'a`.
    pub unsafe fn text<'a>(self) -> std::borrow::Cow<'a, str> {
        if self.len == 0 {
            return std::borrow::Cow::Borrowed("");
        }
        // SAFETY: the caller promises `len` readable bytes.
        String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(self.ptr, self.len) })
    }
}

/// A buffer of the caller's for a sentence.
#[repr(C)]
#[derive(Debug, StableAbi)]
pub struct Message {
    /// Where to write.
    pub ptr: *mut u8,
    /// How much fits, in bytes.
    pub capacity: usize,
    /// How much was written.
    pub len: usize,
}

/// One parameter of a configuration.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct Param {
    /// Name.
    pub key: Str,
    /// Value as text.
    pub value: Str,
}

/// A configuration as it crosses the boundary.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct RawConfig {
    /// The IA name.
    pub ia_name: Str,
    /// First of the parameters; not read when `count` is 0.
    pub params: *const Param,
    /// How many.
    pub count: usize,
}

/// A connect as it crosses the boundary.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
#[allow(missing_docs, reason = "the fields of crate::ConnectParam")]
pub struct RawConnect {
    pub addr: SockAddr,
    pub port: u64,
    pub data: *const u8,
    pub data_len: u32,
    pub qos: u32,
}

/// Where a plugin's log goes. Given by the host, versioned like everything else.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct HostOps {
    /// Size of this table in bytes.
    pub size: u32,
    /// [`crate::ABI_MINOR`] of the host.
    pub minor: u32,
    /// Takes one log record: level (1 error … 5 trace), target, text.
    pub log: unsafe extern "C" fn(level: u32, target: Str, text: Str),
}

/// Takes the candidates of a probe.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct ProbeSink {
    /// Handed to `push`.
    pub list: *mut c_void,
    /// Takes one candidate.
    pub push: unsafe extern "C" fn(list: *mut c_void, candidate: Str, usable: u32, reason: Str),
}

/// Entry points of the plugin.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
#[allow(missing_docs, reason = "the methods of crate::Provider")]
pub struct ProviderOps {
    /// Size of this table in bytes.
    pub size: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Called once before anything else; `level` is the most verbose log level wanted (0 off … 5 trace).
    pub init: unsafe extern "C" fn(host: *const HostOps, level: u32) -> Status,
    pub open: unsafe extern "C" fn(config: *const RawConfig, out: *mut Ctx, message: *mut Message) -> Status,
}

/// The methods of [`crate::Device`].
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
#[allow(missing_docs, reason = "the methods of crate::Device")]
pub struct DeviceOps {
    /// Size of this table in bytes.
    pub size: u32,
    /// Must be 0.
    pub reserved: u32,
    pub poll_events: unsafe extern "C" fn(ctx: Ctx, out: *mut Event, capacity: usize) -> usize,
    pub event_fd: unsafe extern "C" fn(ctx: Ctx) -> i32,
    pub attr: unsafe extern "C" fn(ctx: Ctx, out: *mut DeviceAttr) -> Status,
    pub open_queue:
        unsafe extern "C" fn(ctx: Ctx, depth: u32, out: *mut Ctx, message: *mut Message) -> Status,
    /// `srq` is null for [`crate::Device::open_channel`].
    pub open_channel: unsafe extern "C" fn(
        ctx: Ctx,
        attr: *const ChannelAttr,
        send: Ctx,
        recv: Ctx,
        srq: Ctx,
        out: *mut Ctx,
        message: *mut Message,
    ) -> Status,
    pub listen:
        unsafe extern "C" fn(ctx: Ctx, port: u64, user: u64, out: *mut Ctx, message: *mut Message) -> Status,
    pub register: unsafe extern "C" fn(
        ctx: Ctx,
        addr: u64,
        len: u64,
        access: Access,
        domain: u32,
        out: *mut Keys,
        message: *mut Message,
    ) -> Status,
    pub register_dmabuf: unsafe extern "C" fn(
        ctx: Ctx,
        fd: i32,
        offset: u64,
        len: u64,
        addr: u64,
        access: Access,
        domain: u32,
        out: *mut Keys,
        message: *mut Message,
    ) -> Status,
    pub deregister: unsafe extern "C" fn(ctx: Ctx, keys: Keys) -> Status,
    pub alloc: unsafe extern "C" fn(ctx: Ctx, len: u64, out: *mut Block, message: *mut Message) -> Status,
    pub free: unsafe extern "C" fn(ctx: Ctx, block: Block) -> Status,
    pub reject: unsafe extern "C" fn(
        ctx: Ctx,
        request: u64,
        reason: RejectReason,
        data: *const u8,
        len: usize,
    ) -> Status,
    pub open_srq:
        unsafe extern "C" fn(ctx: Ctx, attr: *const SrqAttr, out: *mut Ctx, message: *mut Message) -> Status,
    pub open_window:
        unsafe extern "C" fn(ctx: Ctx, domain: u32, out: *mut u64, message: *mut Message) -> Status,
    pub close_window: unsafe extern "C" fn(ctx: Ctx, window: u64) -> Status,
    pub describe: unsafe extern "C" fn(ctx: Ctx, message: *mut Message) -> Status,
    pub close: unsafe extern "C" fn(ctx: Ctx),
}

/// The methods of [`crate::Channel`].
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
#[allow(missing_docs, reason = "the methods of crate::Channel")]
pub struct ChannelOps {
    /// Size of this table in bytes.
    pub size: u32,
    /// Must be 0.
    pub reserved: u32,
    pub post: unsafe extern "C" fn(ctx: Ctx, request: *const Request) -> Status,
    pub post_recv: unsafe extern "C" fn(ctx: Ctx, request: *const RecvRequest) -> Status,
    /// Posts `count` requests; `posted` is how many were accepted.
    pub post_list:
        unsafe extern "C" fn(ctx: Ctx, requests: *const Request, count: usize, posted: *mut usize) -> Status,
    pub post_recv_list: unsafe extern "C" fn(
        ctx: Ctx,
        requests: *const RecvRequest,
        count: usize,
        posted: *mut usize,
    ) -> Status,
    pub settle: unsafe extern "C" fn(ctx: Ctx),
    pub post_atomic: unsafe extern "C" fn(ctx: Ctx, request: *const AtomicRequest) -> Status,
    pub bind: unsafe extern "C" fn(ctx: Ctx, request: *const BindRequest, rkey: *mut u32) -> Status,
    pub connect: unsafe extern "C" fn(ctx: Ctx, param: *const RawConnect, message: *mut Message) -> Status,
    pub accept: unsafe extern "C" fn(
        ctx: Ctx,
        request: u64,
        data: *const u8,
        len: usize,
        message: *mut Message,
    ) -> Status,
    pub disconnect: unsafe extern "C" fn(ctx: Ctx) -> Status,
    pub local_port: unsafe extern "C" fn(ctx: Ctx) -> u64,
    pub describe: unsafe extern "C" fn(ctx: Ctx, message: *mut Message) -> Status,
    pub close: unsafe extern "C" fn(ctx: Ctx),
}

/// The methods of [`crate::Queue`].
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
#[allow(missing_docs, reason = "the methods of crate::Queue")]
pub struct QueueOps {
    /// Size of this table in bytes.
    pub size: u32,
    /// Must be 0.
    pub reserved: u32,
    pub poll: unsafe extern "C" fn(ctx: Ctx, out: *mut Completion, capacity: usize) -> usize,
    /// 1 armed, 0 poll again.
    pub arm: unsafe extern "C" fn(ctx: Ctx) -> u32,
    pub disarm: unsafe extern "C" fn(ctx: Ctx),
    pub fd: unsafe extern "C" fn(ctx: Ctx) -> i32,
    pub close: unsafe extern "C" fn(ctx: Ctx),
}

/// The methods of [`crate::Listener`].
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
#[allow(missing_docs, reason = "the methods of crate::Listener")]
pub struct ListenerOps {
    /// Size of this table in bytes.
    pub size: u32,
    /// Must be 0.
    pub reserved: u32,
    pub port: unsafe extern "C" fn(ctx: Ctx) -> u64,
    pub close: unsafe extern "C" fn(ctx: Ctx),
}

/// The methods of [`crate::Srq`].
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
#[allow(missing_docs, reason = "the methods of crate::Srq")]
pub struct SrqOps {
    /// Size of this table in bytes.
    pub size: u32,
    /// Must be 0.
    pub reserved: u32,
    pub post_recv: unsafe extern "C" fn(ctx: Ctx, request: *const RecvRequest) -> Status,
    pub arm: unsafe extern "C" fn(ctx: Ctx, limit: u32) -> Status,
    pub resize: unsafe extern "C" fn(ctx: Ctx, depth: u32) -> Status,
    pub close: unsafe extern "C" fn(ctx: Ctx),
}

/// Probing, in the interface since 1.1.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
#[allow(missing_docs, reason = "the method of crate::Provider")]
pub struct ProbeOps {
    /// Size of this table in bytes.
    pub size: u32,
    /// Must be 0.
    pub reserved: u32,
    pub probe: unsafe extern "C" fn(config: *const RawConfig, sink: *const ProbeSink) -> Status,
}

/// The root of a plugin in C, which `const struct datp_module *dat_plugin_c_root(void)` returns: what
/// [`crate::PluginModule`] is for plugins in Rust.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CModule {
    /// Size of this table in bytes.
    pub size: u32,
    /// [`crate::ABI_MAJOR`] the plugin was built with; the same as in its note.
    pub abi_major: u32,
    /// [`crate::ABI_MINOR`] the plugin was built with; the same as in its note.
    pub abi_minor: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Short name.
    pub name: Str,
    /// Version of the plugin.
    pub version: Str,
    /// One line for people.
    pub description: Str,
    /// Entry points.
    pub provider: *const ProviderOps,
    /// Devices.
    pub device: *const DeviceOps,
    /// Channels.
    pub channel: *const ChannelOps,
    /// Queues.
    pub queue: *const QueueOps,
    /// Shared receive queues; without [`crate::Caps::SRQ`] none of its functions is called, yet none is null.
    pub srq: *const SrqOps,
    /// Listeners.
    pub listener: *const ListenerOps,
    /// Probing; may be null.
    pub probe: *const ProbeOps,
}
