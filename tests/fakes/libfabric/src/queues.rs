//! Completion and event queues, and the descriptors to sleep on.
//!
//! # Safety
//! All of the functions in tables have the promises of their manual pages: pointers are of this library's making, and live.
#![allow(clippy::missing_safety_doc, reason = "see the manual pages")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::mem::size_of;
use std::ptr::null_mut;

use libc::ssize_t;
use libfabric_sys::consts::*;
use libfabric_sys::ops::{fi_ops, fi_ops_cq, fi_ops_eq};
use libfabric_sys::types::*;

use crate::common::{event_fd, signal, take};
use crate::head::{basics, class, head};
use crate::info::fi_freeinfo;
use crate::world::lock;

/// What a sleeper is woken by. Rung once after it was listened to, so that queues without a sleeper make no system calls.
pub struct Bell {
    fd: c_int,
    listened: bool,
}

impl Bell {
    fn new() -> Bell {
        Bell { fd: event_fd(), listened: true }
    }

    fn ring(&mut self) {
        if std::mem::replace(&mut self.listened, false) {
            signal(self.fd);
        }
    }

    /// Whether one may sleep now.
    fn listen(&mut self, nothing_there: bool) -> bool {
        if nothing_there && !std::mem::replace(&mut self.listened, true) {
            take(self.fd);
        }
        nothing_there
    }
}

/// A completion queue.
#[repr(C)]
pub struct Completions {
    base: fid_cq,
    format: u32,
    done: VecDeque<Done>,
    bell: Bell,
}

/// A completion; with an error number other than 0 of a failure.
struct Done {
    entry: fi_cq_tagged_entry,
    error: c_int,
}

impl Completions {
    pub fn push(&mut self, context: *mut c_void, flags: u64, len: usize, data: u64, error: c_int) {
        let entry = fi_cq_tagged_entry { op_context: context, flags, len, buf: null_mut(), data, tag: 0 };
        self.done.push_back(Done { entry, error });
        self.bell.ring();
    }
}

static COMPLETIONS_FID: fi_ops = basics(close_completions, None, Some(control_completions));
static COMPLETIONS: fi_ops_cq = fi_ops_cq {
    size: size_of::<fi_ops_cq>(),
    read: Some(read),
    readfrom: None,
    readerr: Some(read_error),
    sread: None,
    sreadfrom: None,
    signal: None,
    strerror: Some(words),
};

pub unsafe extern "C" fn open_completions(
    _domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    out: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe {
        let format = (*attr).format;
        // A queue that is waited for by its sockets would have to have some.
        if !matches!(format, FI_CQ_FORMAT_DATA | FI_CQ_FORMAT_TAGGED)
            || !matches!((*attr).wait_obj, FI_WAIT_NONE | FI_WAIT_FD)
        {
            return -libc::ENOSYS;
        }
        let base = fid_cq {
            fid: head(class::COMPLETIONS, context, &COMPLETIONS_FID),
            ops: (&raw const COMPLETIONS).cast_mut(),
        };
        let done = VecDeque::with_capacity((*attr).size.max(1));
        *out = Box::into_raw(Box::new(Completions { base, format, done, bell: Bell::new() })).cast();
    }
    0
}

unsafe extern "C" fn close_completions(queue: *mut fid) -> c_int {
    // SAFETY: made above; its endpoints are gone.
    unsafe {
        let queue = Box::from_raw(queue.cast::<Completions>());
        libc::close(queue.bell.fd);
    }
    0
}

unsafe extern "C" fn control_completions(queue: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the queue lives; the command writes a descriptor.
    unsafe { descriptor((*queue.cast::<Completions>()).bell.fd, command, arg) }
}

unsafe fn descriptor(fd: c_int, command: c_int, arg: *mut c_void) -> c_int {
    if command != FI_GETWAIT {
        return -libc::ENOSYS;
    }
    // SAFETY: the callers'.
    unsafe { arg.cast::<c_int>().write(fd) };
    0
}

unsafe extern "C" fn read(queue: *mut fid_cq, out: *mut c_void, count: usize) -> ssize_t {
    let world = lock();
    // SAFETY: the queue lives; there is room for `count` entries of its format. The short format is the start of the long one.
    let taken = unsafe {
        let queue = &mut *queue.cast::<Completions>();
        let size = match queue.format {
            FI_CQ_FORMAT_DATA => size_of::<fi_cq_data_entry>(),
            _ => size_of::<fi_cq_tagged_entry>(),
        };
        let mut taken = 0;
        while taken < count
            && let Some(done) = queue.done.front()
            && done.error == 0
        {
            let place = out.cast::<u8>().add(taken * size);
            std::ptr::copy_nonoverlapping((&raw const done.entry).cast::<u8>(), place, size);
            queue.done.pop_front();
            taken += 1;
        }
        match (taken, queue.done.is_empty()) {
            (0, true) => -libc::EAGAIN as ssize_t,
            (0, false) => -FI_EAVAIL as ssize_t,
            _ => taken as ssize_t,
        }
    };
    drop(world);
    taken
}

unsafe extern "C" fn read_error(queue: *mut fid_cq, out: *mut fi_cq_err_entry, _flags: u64) -> ssize_t {
    let _locked = lock();
    // SAFETY: the queue lives, and so does what the answer goes to.
    unsafe {
        let queue = &mut *queue.cast::<Completions>();
        let Some(Done { entry, error }) = queue.done.pop_front_if(|done| done.error != 0) else {
            return -libc::EAGAIN as ssize_t;
        };
        let out = &mut *out;
        out.op_context = entry.op_context;
        out.flags = entry.flags;
        (out.len, out.olen) = (entry.len, 0);
        (out.buf, out.data, out.tag) = (entry.buf, entry.data, entry.tag);
        (out.err, out.prov_errno) = (error, error);
        out.err_data_size = 0;
    }
    1
}

unsafe extern "C" fn words(
    _queue: *mut fid_cq,
    errno: c_int,
    _data: *const c_void,
    _out: *mut c_char,
    _len: usize,
) -> *const c_char {
    // SAFETY: any number is answered.
    unsafe { libc::strerror(errno) }
}

/// An event queue.
#[repr(C)]
pub struct Events {
    base: fid_eq,
    events: VecDeque<Event>,
    bell: Bell,
}

/// The event of an endpoint or listener; with an error number other than 0 that it has failed.
pub struct Event {
    pub kind: u32,
    pub of: *mut fid,
    /// The reader's to free.
    pub info: *mut fi_info,
    pub data: Vec<u8>,
    pub error: c_int,
}

impl Event {
    pub fn new(kind: u32) -> Event {
        Event { kind, of: null_mut(), info: null_mut(), data: Vec::new(), error: 0 }
    }
}

impl Events {
    pub fn push(&mut self, event: Event) {
        self.events.push_back(event);
        self.bell.ring();
    }

    /// Drops unread events and unseen requests of an object that goes.
    pub fn forget(&mut self, of: *mut fid) -> Vec<*mut fid> {
        let mut requests = Vec::new();
        self.events.retain(|event| {
            if event.of == of {
                // SAFETY: null or made by this library, and not yet reported.
                unsafe {
                    requests.extend(event.info.as_ref().map(|info| info.handle));
                    fi_freeinfo(event.info);
                }
            }
            event.of != of
        });
        requests
    }
}

static EVENTS_FID: fi_ops = basics(close_events, None, Some(control_events));
static EVENTS: fi_ops_eq = fi_ops_eq {
    size: size_of::<fi_ops_eq>(),
    read: Some(read_event),
    readerr: Some(read_failure),
    write: None,
    sread: None,
    strerror: None,
};

pub unsafe extern "C" fn open_events(
    _fabric: *mut fid_fabric,
    _attr: *mut fi_eq_attr,
    out: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    let base = fid_eq { fid: head(class::EVENTS, context, &EVENTS_FID), ops: (&raw const EVENTS).cast_mut() };
    // SAFETY: the caller's pointer.
    unsafe {
        *out = Box::into_raw(Box::new(Events { base, events: VecDeque::new(), bell: Bell::new() })).cast();
    }
    0
}

unsafe extern "C" fn close_events(queue: *mut fid) -> c_int {
    // SAFETY: made above; the objects of its events are gone.
    unsafe {
        let queue = Box::from_raw(queue.cast::<Events>());
        libc::close(queue.bell.fd);
        queue.events.iter().for_each(|event| fi_freeinfo(event.info));
    }
    0
}

unsafe extern "C" fn control_events(queue: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: as for completions.
    unsafe { descriptor((*queue.cast::<Events>()).bell.fd, command, arg) }
}

unsafe extern "C" fn read_event(
    queue: *mut fid_eq,
    kind: *mut u32,
    out: *mut c_void,
    len: usize,
    _flags: u64,
) -> ssize_t {
    let _locked = lock();
    // SAFETY: the queue lives; there is room of the given length.
    unsafe {
        let queue = &mut *queue.cast::<Events>();
        let Some(event) = queue.events.pop_front_if(|event| event.error == 0) else {
            let error = if queue.events.is_empty() { libc::EAGAIN } else { FI_EAVAIL };
            return -error as ssize_t;
        };
        let size = size_of::<fi_eq_cm_entry>();
        if len < size {
            queue.events.push_front(event);
            return -FI_ETOOSMALL as ssize_t;
        }
        *kind = event.kind;
        let entry = fi_eq_cm_entry { fid: event.of, info: event.info, data: [] };
        out.cast::<fi_eq_cm_entry>().write_unaligned(entry);
        let told = event.data.len().min(len - size);
        std::ptr::copy_nonoverlapping(event.data.as_ptr(), out.cast::<u8>().add(size), told);
        (size + told) as ssize_t
    }
}

unsafe extern "C" fn read_failure(queue: *mut fid_eq, out: *mut fi_eq_err_entry, _flags: u64) -> ssize_t {
    let _locked = lock();
    // SAFETY: the queue lives; the entry's buffer is as long as it says, or null.
    unsafe {
        let queue = &mut *queue.cast::<Events>();
        let Some(event) = queue.events.pop_front_if(|event| event.error != 0) else {
            return -libc::EAGAIN as ssize_t;
        };
        let out = &mut *out;
        (out.fid, out.context, out.data) = (event.of, null_mut(), 0);
        (out.err, out.prov_errno) = (event.error, event.error);
        let told = if out.err_data.is_null() { 0 } else { event.data.len().min(out.err_data_size) };
        std::ptr::copy_nonoverlapping(event.data.as_ptr(), out.err_data.cast(), told);
        out.err_data_size = told;
    }
    size_of::<fi_eq_err_entry>() as ssize_t
}

/// Whether one may sleep on the descriptors of all of these.
pub unsafe extern "C" fn try_wait(_fabric: *mut fid_fabric, queues: *mut *mut fid, count: c_int) -> c_int {
    let _locked = lock();
    let mut quiet = true;
    for at in 0..count.max(0) as usize {
        // SAFETY: `count` open queues, of either kind.
        quiet &= unsafe {
            let queue = *queues.add(at);
            match (*queue).fclass {
                class::COMPLETIONS => {
                    let queue = &mut *queue.cast::<Completions>();
                    queue.bell.listen(queue.done.is_empty())
                }
                class::EVENTS => {
                    let queue = &mut *queue.cast::<Events>();
                    queue.bell.listen(queue.events.is_empty())
                }
                _ => return -libc::EINVAL,
            }
        };
    }
    if quiet { 0 } else { -libc::EAGAIN }
}
