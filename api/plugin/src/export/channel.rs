//! Functions of channels, queues, listeners and shared receive queues.

use super::glue::*;
use crate::abi::*;
use crate::ops::*;
use crate::provider::{Channel, ConnectParam, Listener, Queue, Srq};

exported! {
    fn settle<C: Channel>(channel) -> () { channel.settle(); panicked: () }
    fn disconnect<C: Channel>(channel) -> Status { channel.disconnect(); panicked: Status::PANICKED }
    fn local_port<C: Channel>(channel) -> u64 { channel.local_port(); panicked: 0 }
    fn arm<Q: Queue>(queue) -> u32 { queue.arm() as u32; panicked: 0 }
    fn disarm<Q: Queue>(queue) -> () { queue.disarm(); panicked: () }
    fn fd<Q: Queue>(queue) -> i32 { queue.fd(); panicked: -1 }
    fn port<L: Listener>(listener) -> u64 { listener.port(); panicked: 0 }
    fn srq_arm<S: Srq>(srq, limit: u32) -> Status { srq.arm(limit); panicked: Status::PANICKED }
    fn srq_resize<S: Srq>(srq, depth: u32) -> Status { srq.resize(depth); panicked: Status::PANICKED }
}

closing! {
    fn close_channel<C: Channel>;
    fn close_queue<Q: Queue>;
    fn close_listener<L: Listener>;
    fn close_srq<S: Srq>;
}

// The functions below take pointers besides `ctx`. The host, their only caller, passes a `ctx` of this table that it has
// not closed, and pointers that are valid for the call; each note names what else holds.

pub(super) unsafe extern "C" fn post<C: Channel>(ctx: Ctx, request: *const Request) -> Status {
    // SAFETY: the host's request and its segments are readable for the call.
    guard(Status::PANICKED, || unsafe { object::<C>(ctx).post(&*request) })
}

pub(super) unsafe extern "C" fn post_recv<C: Channel>(ctx: Ctx, request: *const RecvRequest) -> Status {
    // SAFETY: the host's request and its segments are readable for the call.
    guard(Status::PANICKED, || unsafe { object::<C>(ctx).post_recv(&*request) })
}

/// # Safety
/// `posted` is valid for a write.
unsafe fn list(posted: *mut usize, f: impl FnOnce() -> (usize, Status)) -> Status {
    let (done, status) = guard((0, Status::PANICKED), f);
    // SAFETY: the caller promises that `posted` takes the count.
    unsafe { posted.write(done) };
    status
}

pub(super) unsafe extern "C" fn post_list<C: Channel>(
    ctx: Ctx,
    requests: *const Request,
    count: usize,
    posted: *mut usize,
) -> Status {
    // SAFETY: the host's list has `count` requests, at least one, and `posted` takes the count.
    unsafe { list(posted, || object::<C>(ctx).post_list(std::slice::from_raw_parts(requests, count))) }
}

pub(super) unsafe extern "C" fn post_recv_list<C: Channel>(
    ctx: Ctx,
    requests: *const RecvRequest,
    count: usize,
    posted: *mut usize,
) -> Status {
    // SAFETY: the host's list has `count` requests, at least one, and `posted` takes the count.
    unsafe { list(posted, || object::<C>(ctx).post_recv_list(std::slice::from_raw_parts(requests, count))) }
}

pub(super) unsafe extern "C" fn post_atomic<C: Channel>(ctx: Ctx, request: *const AtomicRequest) -> Status {
    // SAFETY: the host's request is readable for the call.
    guard(Status::PANICKED, || unsafe { object::<C>(ctx).post_atomic(&*request) })
}

pub(super) unsafe extern "C" fn bind<C: Channel>(
    ctx: Ctx,
    request: *const BindRequest,
    rkey: *mut u32,
) -> Status {
    // SAFETY: the host's request is readable for the call.
    match guard(Err(Status::PANICKED), || unsafe { object::<C>(ctx).bind(&*request) }) {
        Ok(key) => {
            // SAFETY: the host's `rkey` takes the key.
            unsafe { rkey.write(key) };
            Status::OK
        }
        Err(status) => status,
    }
}

pub(super) unsafe extern "C" fn connect<C: Channel>(
    ctx: Ctx,
    param: *const RawConnect,
    message: *mut Message,
) -> Status {
    let mut done = ();
    // SAFETY: the host's parameters and their private data are readable for the call; `message` takes the sentence.
    unsafe {
        fallible(&raw mut done, message, || {
            let raw = &*param;
            let data = bytes(raw.data, raw.data_len as usize);
            object::<C>(ctx).connect(&ConnectParam { addr: raw.addr, port: raw.port, qos: raw.qos, data })
        })
    }
}

pub(super) unsafe extern "C" fn accept<C: Channel>(
    ctx: Ctx,
    request: u64,
    data: *const u8,
    len: usize,
    message: *mut Message,
) -> Status {
    let mut done = ();
    // SAFETY: the host's `data` has `len` bytes for the call; `message` takes the sentence.
    unsafe { fallible(&raw mut done, message, || object::<C>(ctx).accept(request, bytes(data, len))) }
}

pub(super) unsafe extern "C" fn describe_channel<C: Channel>(ctx: Ctx, message: *mut Message) -> Status {
    // SAFETY: the host's `message` has room for the sentence.
    guard(Status::PANICKED, || unsafe {
        say(message, &object::<C>(ctx).describe());
        Status::OK
    })
}

pub(super) unsafe extern "C" fn poll<Q: Queue>(ctx: Ctx, out: *mut Completion, capacity: usize) -> usize {
    // SAFETY: the host's `out` has room for `capacity` completions, all of them initialised. The host checks the count.
    guard(0, || unsafe { object::<Q>(ctx).poll(std::slice::from_raw_parts_mut(out, capacity)) })
}

pub(super) unsafe extern "C" fn srq_post_recv<S: Srq>(ctx: Ctx, request: *const RecvRequest) -> Status {
    // SAFETY: the host's request and its segments are readable for the call.
    guard(Status::PANICKED, || unsafe { object::<S>(ctx).post_recv(&*request) })
}
