//! Functions of providers and devices.

use std::os::fd::BorrowedFd;

use super::glue::*;
use crate::abi::*;
use crate::ops::*;
use crate::provider::{Device, Failure, Provider};

pub(super) unsafe extern "C" fn init(host: *const HostOps, level: u32) -> Status {
    // SAFETY: the host passes its own table, which lives for ever.
    guard(Status::PANICKED, || unsafe { crate::log::install(&*host, level) })
}

pub(super) unsafe extern "C" fn open<P: Provider>(
    config: *const RawConfig,
    out: *mut Ctx,
    message: *mut Message,
) -> Status {
    // SAFETY: the host's configuration and places for the answers are valid for the call.
    unsafe { fallible(out, message, || P::open(&config_from(config)).map(hand_out)) }
}

#[cfg(not(feature = "abi-minor-0"))]
pub(super) unsafe extern "C" fn probe<P: Provider>(
    config: *const RawConfig,
    sink: *const ProbeSink,
) -> Status {
    guard(Status::PANICKED, || {
        // SAFETY: the host's configuration is valid for the call.
        for probe in P::probe(&unsafe { config_from(config) }) {
            let (candidate, reason) = (Str::new(&probe.candidate), Str::new(&probe.reason));
            // SAFETY: the host's sink is valid for the call, and the texts outlive this push.
            unsafe { ((*sink).push)((*sink).list, candidate, probe.usable as u32, reason) };
        }
        Status::OK
    })
}

exported! {
    fn event_fd<D: Device>(device) -> i32 { device.event_fd(); panicked: -1 }
    fn close_window<D: Device>(device, window: u64) -> Status {
        device.close_window(window); panicked: Status::PANICKED
    }
    fn deregister<D: Device>(device, keys: Keys) -> Status { device.deregister(keys); panicked: Status::PANICKED }
    fn free<D: Device>(device, block: Block) -> Status { device.free(block); panicked: Status::PANICKED }
}

closing! {
    fn close_device<D: Device>;
}

// The functions below take pointers besides `ctx`. The host, their only caller, passes a `ctx` of this table that it has
// not closed, and pointers that are valid for the call; each note names what else holds.

pub(super) unsafe extern "C" fn poll_events<D: Device>(ctx: Ctx, out: *mut Event, capacity: usize) -> usize {
    guard(0, || {
        // SAFETY: the host's `out` has room for `capacity` events, all of them initialised.
        let (device, out) = unsafe { (object::<D>(ctx), std::slice::from_raw_parts_mut(out, capacity)) };
        device.poll_events(out).min(capacity)
    })
}

pub(super) unsafe extern "C" fn attr<D: Device>(ctx: Ctx, out: *mut DeviceAttr) -> Status {
    // SAFETY: the host's `out` takes the attributes; a null message is allowed.
    unsafe { fallible(out, std::ptr::null_mut(), || Ok(object::<D>(ctx).attr())) }
}

pub(super) unsafe extern "C" fn open_queue<D: Device>(
    ctx: Ctx,
    depth: u32,
    out: *mut Ctx,
    message: *mut Message,
) -> Status {
    // SAFETY: the host's `out` and `message` take the answers.
    unsafe { fallible(out, message, || object::<D>(ctx).open_queue(depth).map(hand_out)) }
}

pub(super) unsafe extern "C" fn open_channel<D: Device>(
    ctx: Ctx,
    attr: *const ChannelAttr,
    send: Ctx,
    recv: Ctx,
    srq: Ctx,
    out: *mut Ctx,
    message: *mut Message,
) -> Status {
    // SAFETY: the host's `attr` is readable, its queues are null or open queues of this device, and `out` and `message`
    // take the answers.
    unsafe {
        fallible(out, message, || {
            let (send, recv) = (share::<D::Queue>(send), share::<D::Queue>(recv));
            let (send, recv) = (send.as_ref(), recv.as_ref());
            match share::<D::Srq>(srq) {
                None => object::<D>(ctx).open_channel(&*attr, send, recv).map(hand_out),
                Some(srq) => object::<D>(ctx).open_channel_srq(&*attr, send, recv, &srq).map(hand_out),
            }
        })
    }
}

pub(super) unsafe extern "C" fn open_srq<D: Device>(
    ctx: Ctx,
    attr: *const SrqAttr,
    out: *mut Ctx,
    message: *mut Message,
) -> Status {
    // SAFETY: the host's `attr` is readable; its `out` and `message` take the answers.
    unsafe { fallible(out, message, || object::<D>(ctx).open_srq(&*attr).map(hand_out)) }
}

pub(super) unsafe extern "C" fn open_window<D: Device>(
    ctx: Ctx,
    domain: u32,
    out: *mut u64,
    message: *mut Message,
) -> Status {
    // SAFETY: the host's `out` and `message` take the answers.
    unsafe { fallible(out, message, || object::<D>(ctx).open_window(domain)) }
}

pub(super) unsafe extern "C" fn listen<D: Device>(
    ctx: Ctx,
    port: u64,
    user: u64,
    out: *mut Ctx,
    message: *mut Message,
) -> Status {
    // SAFETY: the host's `out` and `message` take the answers.
    unsafe { fallible(out, message, || object::<D>(ctx).listen(port, user).map(hand_out)) }
}

pub(super) unsafe extern "C" fn register<D: Device>(
    ctx: Ctx,
    addr: u64,
    len: u64,
    access: Access,
    domain: u32,
    out: *mut Keys,
    message: *mut Message,
) -> Status {
    // SAFETY: the host's `out` and `message` take the answers; it keeps the range until the registration ended.
    unsafe { fallible(out, message, || object::<D>(ctx).register(addr, len, access, domain)) }
}

#[allow(clippy::too_many_arguments, reason = "the interface's")]
pub(super) unsafe extern "C" fn register_dmabuf<D: Device>(
    ctx: Ctx,
    fd: i32,
    offset: u64,
    len: u64,
    addr: u64,
    access: Access,
    domain: u32,
    out: *mut Keys,
    message: *mut Message,
) -> Status {
    let register = || {
        if fd < 0 {
            return Err(Failure::new(Status::INVALID, format!("{fd} is no descriptor of a dma-buf")));
        }
        // SAFETY: not -1; the host keeps the descriptor open for the call.
        let dmabuf = unsafe { BorrowedFd::borrow_raw(fd) };
        // SAFETY: the host has not closed `ctx`.
        unsafe { object::<D>(ctx) }.register_dmabuf(dmabuf, offset, len, addr, access, domain)
    };
    // SAFETY: the host's `out` and `message` take the answers.
    unsafe { fallible(out, message, register) }
}

pub(super) unsafe extern "C" fn alloc<D: Device>(
    ctx: Ctx,
    len: u64,
    out: *mut Block,
    message: *mut Message,
) -> Status {
    // SAFETY: the host's `out` and `message` take the answers.
    unsafe { fallible(out, message, || object::<D>(ctx).alloc(len)) }
}

pub(super) unsafe extern "C" fn reject<D: Device>(
    ctx: Ctx,
    request: u64,
    reason: RejectReason,
    data: *const u8,
    len: usize,
) -> Status {
    // SAFETY: the host's `data` has `len` bytes for the call.
    guard(Status::PANICKED, || unsafe { object::<D>(ctx).reject(request, reason, bytes(data, len)) })
}

pub(super) unsafe extern "C" fn describe_device<D: Device>(ctx: Ctx, message: *mut Message) -> Status {
    // SAFETY: the host's `message` has room for the sentence.
    guard(Status::PANICKED, || unsafe {
        say(message, &object::<D>(ctx).describe());
        Status::OK
    })
}
