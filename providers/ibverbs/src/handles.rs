//! Owners of libibverbs' objects; those of librdmacm are in `cm`. Each keeps alive what it was made from and gives
//! itself back when dropped; in a child made by fork nothing is given back, because the kernel's objects are the
//! parent's.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use dat_plugin::host::ForkGuard;
use rdma_sys::verbs::*;
use rdma_sys::{Libraries, Verbs};

macro_rules! shareable {
    ($($name:ident),*) => {$(
        // SAFETY: the libraries may be called from any thread, for one object from several at a time; ibv_fork_init(3)
        // and the manual's section on thread safety say so.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    )*};
}
pub(crate) use shareable;
shareable!(Context, Pd, Mr, Window, CompletionChannel, Cq, SharedQueue, Qp);

/// The last error of the operating system.
pub(crate) fn last() -> io::Error {
    io::Error::last_os_error()
}

/// The result of a function that returns an error number.
fn number(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.abs())) }
}

/// The result of a function that returns -1 and sets `errno`.
pub(crate) fn minus_one(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(last()) }
}

/// Gives an object back, unless it is the parent's. A failure leaves nothing to be done: the device may be gone.
pub(crate) fn give_back(guard: ForkGuard, what: &str, f: impl FnOnce() -> c_int) {
    if !guard.forked() {
        let code = f();
        if code != 0 {
            tracing::debug!(code, "{what} was not given back in order");
        }
    }
}

/// An open device.
pub(crate) struct Context {
    pub(crate) lib: &'static Libraries,
    ptr: NonNull<ibv_context>,
    pub(crate) guard: ForkGuard,
}

impl Context {
    /// Opens the device of this name.
    pub(crate) fn open(lib: &'static Libraries, name: &str) -> io::Result<Arc<Context>> {
        let verbs = &lib.verbs;
        let mut count = 0;
        // SAFETY: plain calls; the list is freed below, after the device was opened from it.
        unsafe {
            let list = (verbs.ibv_get_device_list)(&raw mut count);
            if list.is_null() {
                return Err(last());
            }
            let found =
                (0..count as usize).map(|i| *list.add(i)).find(|device| device_name(verbs, *device) == name);
            let opened = match found {
                None => Err(io::Error::from(io::ErrorKind::NotFound)),
                Some(device) => NonNull::new((verbs.ibv_open_device)(device)).ok_or_else(last),
            };
            (verbs.ibv_free_device_list)(list);
            opened.map(|ptr| Arc::new(Context { lib, ptr, guard: ForkGuard::new() }))
        }
    }

    pub(crate) fn attr(&self) -> io::Result<ibv_device_attr> {
        // SAFETY: all-zero is a value of the structure; the call fills it.
        unsafe {
            let mut attr = std::mem::zeroed();
            number((self.lib.verbs.ibv_query_device)(self.ptr.as_ptr(), &raw mut attr))?;
            Ok(attr)
        }
    }

    pub(crate) fn port(&self, port: u8) -> io::Result<ibv_port_attr> {
        // SAFETY: as above.
        unsafe {
            let mut attr = std::mem::zeroed();
            number((self.lib.verbs.ibv_query_port)(self.ptr.as_ptr(), port, &raw mut attr))?;
            Ok(attr)
        }
    }

    pub(crate) fn async_fd(&self) -> RawFd {
        // SAFETY: the context is open.
        unsafe { (*self.ptr.as_ptr()).async_fd }
    }

    /// The next asynchronous event, acknowledged; what it concerns is the number given when that was made.
    pub(crate) fn async_event(&self) -> io::Result<(c_int, u64)> {
        // SAFETY: all-zero is a value of the structure, the call fills it. The pointer in it is good until the event is
        // acknowledged: destroying its object waits for that.
        unsafe {
            let mut event: ibv_async_event = std::mem::zeroed();
            minus_one((self.lib.verbs.ibv_get_async_event)(self.ptr.as_ptr(), &raw mut event))?;
            let user = match event.event_type {
                IBV_EVENT_QP_FATAL
                | IBV_EVENT_QP_REQ_ERR
                | IBV_EVENT_QP_ACCESS_ERR
                | IBV_EVENT_COMM_EST
                | IBV_EVENT_SQ_DRAINED
                | IBV_EVENT_PATH_MIG
                | IBV_EVENT_PATH_MIG_ERR
                | IBV_EVENT_QP_LAST_WQE_REACHED => (*event.element.qp).qp_context as u64,
                IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => (*event.element.srq).srq_context as u64,
                IBV_EVENT_CQ_ERR => (*event.element.cq).cq_context as u64,
                _ => event.element.port_num as u64,
            };
            let kind = event.event_type;
            (self.lib.verbs.ibv_ack_async_event)(&raw mut event);
            Ok((kind, user))
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: open, and everything made from it is gone: they all hold it.
        give_back(self.guard, "a device", || unsafe { (self.lib.verbs.ibv_close_device)(self.ptr.as_ptr()) });
    }
}

/// A device's name.
///
/// # Safety
/// `device` is of a list that is not freed, or of an open context.
pub(crate) unsafe fn device_name(verbs: &Verbs, device: *mut ibv_device) -> String {
    // SAFETY: the caller's promise; the library gives a string that ends.
    unsafe { std::ffi::CStr::from_ptr((verbs.ibv_get_device_name)(device)) }.to_string_lossy().into_owned()
}

/// A protection domain.
pub(crate) struct Pd {
    pub(crate) context: Arc<Context>,
    ptr: NonNull<ibv_pd>,
}

impl Pd {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<Arc<Pd>> {
        // SAFETY: an open context.
        let ptr = unsafe { (context.lib.verbs.ibv_alloc_pd)(context.ptr.as_ptr()) };
        Ok(Arc::new(Pd { context: context.clone(), ptr: NonNull::new(ptr).ok_or_else(last)? }))
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        let dealloc = self.context.lib.verbs.ibv_dealloc_pd;
        // SAFETY: made by `new`; everything made from it is gone.
        give_back(self.context.guard, "a protection domain", || unsafe { dealloc(self.ptr.as_ptr()) });
    }
}

/// A registration.
pub(crate) struct Mr {
    pd: Arc<Pd>,
    ptr: NonNull<ibv_mr>,
}

impl Mr {
    /// Registers memory.
    ///
    /// # Safety
    /// The range stays valid until the result was dropped.
    pub(crate) unsafe fn new(pd: &Arc<Pd>, addr: u64, len: u64, access: c_int) -> io::Result<Mr> {
        let reg = pd.context.lib.verbs.ibv_reg_mr;
        // SAFETY: the caller's promise.
        let ptr = unsafe { reg(pd.ptr.as_ptr(), addr as *mut c_void, len as usize, access) };
        Ok(Mr { pd: pd.clone(), ptr: NonNull::new(ptr).ok_or_else(last)? })
    }

    /// Registers memory of another device, which holds it by itself until the registration ends.
    pub(crate) fn of_dmabuf(
        pd: &Arc<Pd>,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        addr: u64,
        access: c_int,
    ) -> io::Result<Mr> {
        let verbs = &pd.context.lib.verbs;
        let reg = verbs.ibv_reg_dmabuf_mr.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        // SAFETY: the domain lives as long as the result; the kernel takes a reference of its own to the memory.
        let ptr = unsafe { reg(pd.ptr.as_ptr(), offset, len as usize, addr, dmabuf.as_raw_fd(), access) };
        Ok(Mr { pd: pd.clone(), ptr: NonNull::new(ptr).ok_or_else(last)? })
    }

    pub(crate) fn keys(&self) -> (u32, u32) {
        // SAFETY: registered until drop.
        unsafe { (self.ptr.as_ref().lkey, self.ptr.as_ref().rkey) }
    }

    /// Ends the registration; gives it back when a window is still bound to it.
    pub(crate) fn end(self) -> Result<(), (io::Error, Mr)> {
        if self.pd.context.guard.forked() {
            return Ok(());
        }
        // SAFETY: registered, and forgotten when the call succeeded.
        match number(unsafe { (self.pd.context.lib.verbs.ibv_dereg_mr)(self.ptr.as_ptr()) }) {
            Ok(()) => {
                // The registration is gone, its domain is not.
                // SAFETY: the field is read once; the rest of `self` is never used again.
                drop(unsafe { std::ptr::read(&raw const self.pd) });
                std::mem::forget(self);
                Ok(())
            }
            Err(error) => Err((error, self)),
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let dereg = self.pd.context.lib.verbs.ibv_dereg_mr;
        // SAFETY: registered.
        give_back(self.pd.context.guard, "a registration", || unsafe { dereg(self.ptr.as_ptr()) });
    }
}

/// A memory window of type 1.
pub(crate) struct Window {
    pd: Arc<Pd>,
    ptr: NonNull<ibv_mw>,
    /// What it is bound to, with a length of 0, to end what it was bound to: some drivers take no null there.
    nothing: Mr,
    page: Box<Page>,
}

/// A page of this process.
#[repr(align(4096))]
pub(crate) struct Page(#[allow(dead_code, reason = "the device knows its address")] pub(crate) [u8; 4096]);

impl Window {
    pub(crate) fn new(pd: &Arc<Pd>) -> io::Result<Window> {
        let page = Box::new(Page([0; 4096]));
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
        // SAFETY: the page is dropped after the registration, being the later field.
        let nothing = unsafe { Mr::new(pd, &raw const *page as u64, 4096, access)? };
        // SAFETY: a live domain.
        let ptr = unsafe { ibv_alloc_mw(pd.ptr.as_ptr(), IBV_MW_TYPE_1) };
        Ok(Window { pd: pd.clone(), ptr: NonNull::new(ptr).ok_or_else(last)?, nothing, page })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: made by `new`.
        give_back(self.pd.context.guard, "a window", || unsafe { ibv_dealloc_mw(self.ptr.as_ptr()) });
    }
}

/// A descriptor on which completion queues report.
pub(crate) struct CompletionChannel {
    context: Arc<Context>,
    ptr: NonNull<ibv_comp_channel>,
}

impl CompletionChannel {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<CompletionChannel> {
        // SAFETY: an open context.
        let ptr = unsafe { (context.lib.verbs.ibv_create_comp_channel)(context.ptr.as_ptr()) };
        let channel =
            CompletionChannel { context: context.clone(), ptr: NonNull::new(ptr).ok_or_else(last)? };
        never_blocks(channel.fd())?;
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: lives until drop.
        unsafe { self.ptr.as_ref().fd }
    }

    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: open until drop.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }

    /// Takes all reports.
    pub(crate) fn drain(&self) {
        let verbs = &self.context.lib.verbs;
        let (mut cq, mut user) = (null_mut(), null_mut());
        // SAFETY: lives; the descriptor does not block. The queue reported is alive until its report is acknowledged.
        unsafe {
            while (verbs.ibv_get_cq_event)(self.ptr.as_ptr(), &raw mut cq, &raw mut user) == 0 {
                (verbs.ibv_ack_cq_events)(cq, 1);
            }
        }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        let destroy = self.context.lib.verbs.ibv_destroy_comp_channel;
        // SAFETY: its queues are gone: they hold it.
        give_back(self.context.guard, "a completion channel", || unsafe { destroy(self.ptr.as_ptr()) });
    }
}

/// A completion queue, with a channel of its own.
pub(crate) struct Cq {
    pub(crate) channel: CompletionChannel,
    ptr: NonNull<ibv_cq>,
}

impl Cq {
    pub(crate) fn new(context: &Arc<Context>, depth: u32, user: u64) -> io::Result<Cq> {
        let channel = CompletionChannel::new(context)?;
        let create = context.lib.verbs.ibv_create_cq;
        let user = user as *mut c_void;
        // SAFETY: an open context and its channel.
        let ptr = unsafe { create(context.ptr.as_ptr(), depth as c_int, user, channel.ptr.as_ptr(), 0) };
        Ok(Cq { channel, ptr: NonNull::new(ptr).ok_or_else(last)? })
    }

    /// How many completions it holds.
    pub(crate) fn depth(&self) -> u32 {
        // SAFETY: lives until drop; changed by `resize` alone, whose callers hold the queue's lock.
        unsafe { self.ptr.as_ref().cqe as u32 }
    }

    pub(crate) fn resize(&self, depth: u32) -> io::Result<()> {
        // SAFETY: lives.
        number(unsafe { (self.channel.context.lib.verbs.ibv_resize_cq)(self.ptr.as_ptr(), depth as c_int) })
    }

    /// Takes completions; the result is how many of `out` were filled. Negative is a device that is gone, of which the
    /// device's own events tell.
    #[inline(always)]
    pub(crate) fn poll(&self, out: &mut [std::mem::MaybeUninit<ibv_wc>]) -> c_int {
        // SAFETY: lives; `out` has the room that is said.
        unsafe { ibv_poll_cq(self.ptr.as_ptr(), out.len() as c_int, out.as_mut_ptr().cast()) }
    }

    /// Has the next completion reported on the channel.
    pub(crate) fn request_report(&self) {
        // SAFETY: lives.
        unsafe { ibv_req_notify_cq(self.ptr.as_ptr(), 0) };
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        let context = &self.channel.context;
        if !context.guard.forked() {
            self.channel.drain();
        }
        // SAFETY: its queue pairs are gone, its reports acknowledged.
        give_back(context.guard, "a completion queue", || unsafe {
            (context.lib.verbs.ibv_destroy_cq)(self.ptr.as_ptr())
        });
    }
}

/// A shared receive queue.
pub(crate) struct SharedQueue {
    pd: Arc<Pd>,
    ptr: NonNull<ibv_srq>,
}

impl SharedQueue {
    pub(crate) fn new(pd: &Arc<Pd>, depth: u32, segments: u32, user: u64) -> io::Result<SharedQueue> {
        let attr = ibv_srq_attr { max_wr: depth, max_sge: segments, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: user as *mut c_void, attr };
        // SAFETY: a live domain.
        let ptr = unsafe { (pd.context.lib.verbs.ibv_create_srq)(pd.ptr.as_ptr(), &raw mut init) };
        Ok(SharedQueue { pd: pd.clone(), ptr: NonNull::new(ptr).ok_or_else(last)? })
    }

    pub(crate) fn set_limit(&self, limit: u32) -> io::Result<()> {
        self.modify(ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit }, IBV_SRQ_LIMIT)
    }

    pub(crate) fn resize(&self, depth: u32) -> io::Result<()> {
        self.modify(ibv_srq_attr { max_wr: depth, max_sge: 0, srq_limit: 0 }, IBV_SRQ_MAX_WR)
    }

    fn modify(&self, mut attr: ibv_srq_attr, mask: c_int) -> io::Result<()> {
        // SAFETY: lives.
        number(unsafe { (self.pd.context.lib.verbs.ibv_modify_srq)(self.ptr.as_ptr(), &raw mut attr, mask) })
    }

    /// Posts one receive; the result is an error number.
    ///
    /// # Safety
    /// The segments are registered, and stay so until the receive completed.
    #[inline]
    pub(crate) unsafe fn post(&self, wr: &mut ibv_recv_wr) -> c_int {
        let mut bad = null_mut();
        // SAFETY: lives; the caller's promise.
        unsafe { ibv_post_srq_recv(self.ptr.as_ptr(), wr, &raw mut bad) }
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        let destroy = self.pd.context.lib.verbs.ibv_destroy_srq;
        // SAFETY: its queue pairs are gone: they hold it.
        give_back(self.pd.context.guard, "a shared queue", || unsafe { destroy(self.ptr.as_ptr()) });
    }
}

/// A queue pair.
pub(crate) struct Qp {
    pd: Arc<Pd>,
    ptr: NonNull<ibv_qp>,
    pub(crate) max_inline: u32,
}

/// What a queue pair is made of.
pub(crate) struct QpParts<'a> {
    pub(crate) send: &'a Cq,
    pub(crate) recv: &'a Cq,
    pub(crate) srq: Option<&'a SharedQueue>,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) user: u64,
}

impl Qp {
    /// # Safety
    /// The parts outlive the result.
    pub(crate) unsafe fn new(pd: &Arc<Pd>, parts: &QpParts<'_>) -> io::Result<Qp> {
        let mut init = ibv_qp_init_attr {
            qp_context: parts.user as *mut c_void,
            send_cq: parts.send.ptr.as_ptr(),
            recv_cq: parts.recv.ptr.as_ptr(),
            srq: parts.srq.map_or(null_mut(), |srq| srq.ptr.as_ptr()),
            cap: parts.cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: live objects of one device.
        let ptr = unsafe { (pd.context.lib.verbs.ibv_create_qp)(pd.ptr.as_ptr(), &raw mut init) };
        let ptr = NonNull::new(ptr).ok_or_else(last)?;
        Ok(Qp { pd: pd.clone(), ptr, max_inline: init.cap.max_inline_data })
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: lives until drop.
        unsafe { self.ptr.as_ref().qp_num }
    }

    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: c_int) -> io::Result<()> {
        // SAFETY: lives.
        number(unsafe { (self.pd.context.lib.verbs.ibv_modify_qp)(self.ptr.as_ptr(), attr, mask) })
    }

    pub(crate) fn set_state(&self, state: c_int) -> io::Result<()> {
        let mut attr = blank_attr();
        attr.qp_state = state;
        self.modify(&mut attr, IBV_QP_STATE)
    }

    /// Posts requests; the result is an error number, and with it the first that was not taken is in `bad`.
    ///
    /// # Safety
    /// `wr` heads a list of requests that are written as far as their operations go. Segments are registered, and stay so
    /// until the requests completed or the queue pair was stopped.
    #[inline(always)]
    pub(crate) unsafe fn post_send(&self, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
        // SAFETY: lives; the caller's promise.
        unsafe { ibv_post_send(self.ptr.as_ptr(), wr, bad) }
    }

    /// # Safety
    /// As [`Qp::post_send`].
    #[inline(always)]
    pub(crate) unsafe fn post_recv(&self, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
        // SAFETY: lives; the caller's promise.
        unsafe { ibv_post_recv(self.ptr.as_ptr(), wr, bad) }
    }

    /// Posts the binding of `window`, or its end; the result is an error number, and the key.
    pub(crate) fn bind(
        &self,
        window: &Window,
        wr_id: u64,
        send_flags: u32,
        range: Option<(&Mr, u64, u64, c_int)>,
    ) -> (c_int, u32) {
        let (mr, addr, length, access) =
            range.unwrap_or((&window.nothing, &raw const *window.page as u64, 0, 0));
        let bind_info =
            ibv_mw_bind_info { mr: mr.ptr.as_ptr(), addr, length, mw_access_flags: access as u32 };
        let mut bind = ibv_mw_bind { wr_id, send_flags, bind_info };
        // SAFETY: all three live.
        unsafe {
            let code = ibv_bind_mw(self.ptr.as_ptr(), window.ptr.as_ptr(), &raw mut bind);
            (code, window.ptr.as_ref().rkey)
        }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let destroy = self.pd.context.lib.verbs.ibv_destroy_qp;
        // SAFETY: lives; nobody posts to it any more.
        give_back(self.pd.context.guard, "a queue pair", || unsafe { destroy(self.ptr.as_ptr()) });
    }
}

/// Attributes of a queue pair, none set.
pub(crate) fn blank_attr() -> ibv_qp_attr {
    // SAFETY: all-zero is a value of every field.
    unsafe { std::mem::zeroed() }
}

/// Reads of the descriptor return at once.
pub(crate) fn never_blocks(fd: RawFd) -> io::Result<()> {
    // SAFETY: a descriptor of a live object; the calls change its flags only.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(last());
        }
    }
    Ok(())
}
