//! From traits to tables: one `extern "C"` function per method, each with a panic guard.

use std::any::Any;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::ops::*;
use crate::provider::{Channel, Config, ConnectParam, Device, Failure, Listener, Provider, Queue, Srq};
use crate::wire::*;
use crate::{ABI_MAJOR, ABI_MINOR, PluginModule};

/// Exports a provider from a `cdylib`: the root module and the note the loader reads before it runs anything.
#[macro_export]
macro_rules! export_provider {
    ($provider:ty) => {
        #[doc(hidden)]
        #[used]
        #[unsafe(link_section = ".note.dat.plugin")]
        pub static DAT_PLUGIN_NOTE: $crate::Note = $crate::Note::of::<$provider>();

        const _: () = {
            use $crate::abi_stable::library::{CheckTypeLayout, LibHeader, RootModuleResult};

            extern "C" fn root_module() -> RootModuleResult {
                $crate::export::root_module::<$provider>()
            }

            // A name of the crate's own, so that several providers can be linked into one program, as tests do; and
            // written out rather than left to abi_stable's attribute, which asks for a dependency of the plugin's own.
            #[unsafe(export_name = concat!("dat_plugin_header_", env!("CARGO_CRATE_NAME")))]
            #[used]
            static DAT_PLUGIN_HEADER: LibHeader =
                // SAFETY: the constructor returns a `PluginModuleRef`, by the type of what it calls.
                unsafe {
                    LibHeader::from_constructor::<$crate::PluginModuleRef>(root_module, CheckTypeLayout::Yes)
                };
        };
    };
}

/// What the loader calls to get the root module of provider `P`.
pub fn root_module<P: Provider>() -> abi_stable::library::RootModuleResult {
    use abi_stable::prefix_type::PrefixTypeTrait;
    abi_stable::library::__call_root_module_loader(|| Export::<P>::module().leak_into_prefix())
}

/// The tables of provider `P`.
pub struct Export<P>(PhantomData<P>);

type Dev<P> = <P as Provider>::Device;
type Chan<P> = <Dev<P> as Device>::Channel;
type Que<P> = <Dev<P> as Device>::Queue;
type List<P> = <Dev<P> as Device>::Listener;
type Shared<P> = <Dev<P> as Device>::Srq;

impl<P: Provider> Export<P> {
    const PROVIDER: ProviderOps =
        ProviderOps { size: size_of::<ProviderOps>() as u32, reserved: 0, init, open: open::<P> };
    const DEVICE: DeviceOps = DeviceOps {
        size: size_of::<DeviceOps>() as u32,
        reserved: 0,
        poll_events: poll_events::<Dev<P>>,
        event_fd: event_fd::<Dev<P>>,
        attr: attr::<Dev<P>>,
        open_queue: open_queue::<Dev<P>>,
        open_channel: open_channel::<Dev<P>>,
        listen: listen::<Dev<P>>,
        register: register::<Dev<P>>,
        register_dmabuf: register_dmabuf::<Dev<P>>,
        deregister: deregister::<Dev<P>>,
        alloc: alloc::<Dev<P>>,
        free: free::<Dev<P>>,
        reject: reject::<Dev<P>>,
        open_srq: open_srq::<Dev<P>>,
        open_window: open_window::<Dev<P>>,
        close_window: close_window::<Dev<P>>,
        describe: describe_device::<Dev<P>>,
        close: close_device::<Dev<P>>,
    };
    const CHANNEL: ChannelOps = ChannelOps {
        size: size_of::<ChannelOps>() as u32,
        reserved: 0,
        post: post::<Chan<P>>,
        post_recv: post_recv::<Chan<P>>,
        post_list: post_list::<Chan<P>>,
        post_recv_list: post_recv_list::<Chan<P>>,
        settle: settle::<Chan<P>>,
        post_atomic: post_atomic::<Chan<P>>,
        bind: bind::<Chan<P>>,
        connect: connect::<Chan<P>>,
        accept: accept::<Chan<P>>,
        disconnect: disconnect::<Chan<P>>,
        local_port: local_port::<Chan<P>>,
        describe: describe_channel::<Chan<P>>,
        close: close_channel::<Chan<P>>,
    };
    const QUEUE: QueueOps = QueueOps {
        size: size_of::<QueueOps>() as u32,
        reserved: 0,
        poll: poll::<Que<P>>,
        arm: arm::<Que<P>>,
        disarm: disarm::<Que<P>>,
        fd: fd::<Que<P>>,
        close: close_queue::<Que<P>>,
    };
    const LISTENER: ListenerOps = ListenerOps {
        size: size_of::<ListenerOps>() as u32,
        reserved: 0,
        port: port::<List<P>>,
        close: close_listener::<List<P>>,
    };
    const SRQ: SrqOps = SrqOps {
        size: size_of::<SrqOps>() as u32,
        reserved: 0,
        post_recv: srq_post_recv::<Shared<P>>,
        arm: srq_arm::<Shared<P>>,
        resize: srq_resize::<Shared<P>>,
        close: srq_close::<Shared<P>>,
    };
    #[cfg(not(feature = "abi-minor-0"))]
    const PROBE: ProbeOps = ProbeOps { size: size_of::<ProbeOps>() as u32, reserved: 0, probe: probe::<P> };

    /// The root module.
    pub fn module() -> PluginModule {
        PluginModule {
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            name: Str::new(P::INFO.name),
            version: Str::new(P::INFO.version),
            description: Str::new(P::INFO.description),
            provider: &Self::PROVIDER,
            device: &Self::DEVICE,
            channel: &Self::CHANNEL,
            queue: &Self::QUEUE,
            srq: &Self::SRQ,
            listener: &Self::LISTENER,
            #[cfg(not(feature = "abi-minor-0"))]
            probe: &Self::PROBE,
            #[cfg(feature = "abi-minor-next")]
            next: &Self::PROBE,
        }
    }
}

/// Runs `f`; a panic becomes `panicked` and a log line, and goes no further.
#[inline(always)]
fn guard<T>(panicked: T, f: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => value,
        Err(payload) => {
            report(payload);
            panicked
        }
    }
}

/// Apart, so that the calls which do not panic need no room on the stack for it.
#[cold]
#[inline(never)]
fn report(payload: Box<dyn Any + Send>) {
    let text = payload
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into());
    // The log may be what panicked; and a payload's drop may panic too.
    let _ = catch_unwind(|| tracing::error!(target: "dat.plugin", "provider panicked: {text}"));
    std::mem::forget(payload);
}

/// The object behind `ctx`.
///
/// # Safety
/// `ctx` came from [`hand_out`] for a `T` and was not yet given to [`take_back`]: the host keeps both promises.
unsafe fn object<'a, T>(ctx: Ctx) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*ctx.cast::<T>() }
}

pub(crate) fn hand_out<T>(object: Arc<T>) -> Ctx {
    Arc::into_raw(object).cast()
}

/// # Safety
/// As [`object`], and `ctx` is not used again.
unsafe fn take_back<T>(ctx: Ctx) -> Arc<T> {
    // SAFETY: the caller's promise.
    unsafe { Arc::from_raw(ctx.cast::<T>()) }
}

/// One more owner of the object behind `ctx`, or `None` for null.
///
/// # Safety
/// As [`object`].
unsafe fn share<T>(ctx: Ctx) -> Option<Arc<T>> {
    // SAFETY: the caller's promise; the count goes up so that the host's own reference stays.
    (!ctx.is_null()).then(|| unsafe {
        Arc::increment_strong_count(ctx.cast::<T>());
        Arc::from_raw(ctx.cast::<T>())
    })
}

/// # Safety
/// `ptr` and `len` describe readable bytes for the call, or `len` is 0.
unsafe fn bytes<'a>(ptr: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(ptr, len) }
}

struct Sentence<'a>(&'a mut Message);

impl std::fmt::Write for Sentence<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.0.capacity - self.0.len;
        let mut take = text.len().min(room);
        while !text.is_char_boundary(take) {
            take -= 1;
        }
        // SAFETY: the host's buffer has `capacity` bytes, `len + take` of them are used at most.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.ptr.add(self.0.len), take) };
        self.0.len += take;
        Ok(())
    }
}

/// # Safety
/// `message` is null or valid for the call.
unsafe fn say(message: *mut Message, text: &str) {
    // SAFETY: the caller's promise.
    if let Some(message) = unsafe { message.as_mut() } {
        let _ = Sentence(message).write_str(text);
    }
}

/// Runs a fallible call: the value goes to `out`, a failure's sentence to `message`, a panic's too.
///
/// # Safety
/// `out` is valid for a write, `message` null or valid.
unsafe fn fallible<T>(out: *mut T, message: *mut Message, f: impl FnOnce() -> Result<T, Failure>) -> Status {
    let panicked = || Err(Failure::new(Status::PANICKED, "the provider panicked; its log line says where"));
    match guard(panicked(), f) {
        Ok(value) => {
            // SAFETY: the caller's promise.
            unsafe { out.write(value) };
            Status::OK
        }
        Err(failure) => {
            // SAFETY: the caller's promise.
            unsafe { say(message, &failure.message) };
            failure.status
        }
    }
}

unsafe fn config_from(raw: *const RawConfig) -> Config {
    // SAFETY: the host passes a valid configuration whose parts live for the call.
    unsafe {
        let raw = &*raw;
        let params = if raw.count == 0 { &[] } else { std::slice::from_raw_parts(raw.params, raw.count) };
        Config {
            ia_name: raw.ia_name.text().into_owned(),
            params: params
                .iter()
                .map(|param| (param.key.text().into_owned(), param.value.text().into_owned()))
                .collect(),
        }
    }
}

// In all functions below the SAFETY is the same: the host calls them with the pointers the tables ask for, and with a
// `ctx` this plugin handed out and has not got back. `host` is the only caller and keeps this by its types.

unsafe extern "C" fn init(host: *const HostOps, level: u32) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { crate::log::install(&*host, level) })
}

unsafe extern "C" fn open<P: Provider>(
    config: *const RawConfig,
    out: *mut Ctx,
    message: *mut Message,
) -> Status {
    // SAFETY: see above.
    unsafe { fallible(out, message, || P::open(&config_from(config)).map(hand_out)) }
}

#[cfg(not(feature = "abi-minor-0"))]
unsafe extern "C" fn probe<P: Provider>(config: *const RawConfig, sink: *const ProbeSink) -> Status {
    guard(Status::PANICKED, || {
        // SAFETY: see above.
        for probe in P::probe(&unsafe { config_from(config) }) {
            let (candidate, reason) = (Str::new(&probe.candidate), Str::new(&probe.reason));
            // SAFETY: see above; the texts live until the call returned.
            unsafe { ((*sink).push)((*sink).list, candidate, probe.usable as u32, reason) };
        }
        Status::OK
    })
}

unsafe extern "C" fn poll_events<D: Device>(ctx: Ctx, out: *mut Event, capacity: usize) -> usize {
    // SAFETY: see above; the host's events are initialised.
    guard(0, || unsafe {
        object::<D>(ctx).poll_events(std::slice::from_raw_parts_mut(out, capacity)).min(capacity)
    })
}

unsafe extern "C" fn event_fd<D: Device>(ctx: Ctx) -> i32 {
    // SAFETY: see above.
    guard(-1, || unsafe { object::<D>(ctx) }.event_fd())
}

unsafe extern "C" fn attr<D: Device>(ctx: Ctx, out: *mut DeviceAttr) -> Status {
    // SAFETY: see above.
    unsafe { fallible(out, std::ptr::null_mut(), || Ok(object::<D>(ctx).attr())) }
}

unsafe extern "C" fn open_queue<D: Device>(
    ctx: Ctx,
    depth: u32,
    out: *mut Ctx,
    message: *mut Message,
) -> Status {
    // SAFETY: see above.
    unsafe { fallible(out, message, || object::<D>(ctx).open_queue(depth).map(hand_out)) }
}

unsafe extern "C" fn open_channel<D: Device>(
    ctx: Ctx,
    attr: *const ChannelAttr,
    send: Ctx,
    recv: Ctx,
    srq: Ctx,
    out: *mut Ctx,
    message: *mut Message,
) -> Status {
    // SAFETY: see above.
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

unsafe extern "C" fn open_srq<D: Device>(
    ctx: Ctx,
    attr: *const SrqAttr,
    out: *mut Ctx,
    message: *mut Message,
) -> Status {
    // SAFETY: see above.
    unsafe { fallible(out, message, || object::<D>(ctx).open_srq(&*attr).map(hand_out)) }
}

unsafe extern "C" fn open_window<D: Device>(
    ctx: Ctx,
    domain: u32,
    out: *mut u64,
    message: *mut Message,
) -> Status {
    // SAFETY: see above.
    unsafe { fallible(out, message, || object::<D>(ctx).open_window(domain)) }
}

unsafe extern "C" fn close_window<D: Device>(ctx: Ctx, window: u64) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<D>(ctx) }.close_window(window))
}

unsafe extern "C" fn listen<D: Device>(
    ctx: Ctx,
    port: u64,
    user: u64,
    out: *mut Ctx,
    message: *mut Message,
) -> Status {
    // SAFETY: see above.
    unsafe { fallible(out, message, || object::<D>(ctx).listen(port, user).map(hand_out)) }
}

unsafe extern "C" fn register<D: Device>(
    ctx: Ctx,
    addr: u64,
    len: u64,
    access: Access,
    domain: u32,
    out: *mut Keys,
    message: *mut Message,
) -> Status {
    // SAFETY: see above.
    unsafe { fallible(out, message, || object::<D>(ctx).register(addr, len, access, domain)) }
}

#[allow(clippy::too_many_arguments, reason = "the interface's")]
unsafe extern "C" fn register_dmabuf<D: Device>(
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
        // SAFETY: not -1; the caller keeps the descriptor open for the call.
        let dmabuf = unsafe { BorrowedFd::borrow_raw(fd) };
        // SAFETY: see above.
        unsafe { object::<D>(ctx) }.register_dmabuf(dmabuf, offset, len, addr, access, domain)
    };
    // SAFETY: see above.
    unsafe { fallible(out, message, register) }
}

unsafe extern "C" fn deregister<D: Device>(ctx: Ctx, keys: Keys) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<D>(ctx) }.deregister(keys))
}

unsafe extern "C" fn alloc<D: Device>(ctx: Ctx, len: u64, out: *mut Block, message: *mut Message) -> Status {
    // SAFETY: see above.
    unsafe { fallible(out, message, || object::<D>(ctx).alloc(len)) }
}

unsafe extern "C" fn free<D: Device>(ctx: Ctx, block: Block) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<D>(ctx) }.free(block))
}

unsafe extern "C" fn reject<D: Device>(
    ctx: Ctx,
    request: u64,
    reason: RejectReason,
    data: *const u8,
    len: usize,
) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<D>(ctx).reject(request, reason, bytes(data, len)) })
}

unsafe extern "C" fn describe_device<D: Device>(ctx: Ctx, message: *mut Message) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe {
        say(message, &object::<D>(ctx).describe());
        Status::OK
    })
}

unsafe extern "C" fn close_device<D: Device>(ctx: Ctx) {
    // SAFETY: see above; the host never uses `ctx` again.
    guard((), || unsafe { take_back::<D>(ctx) }.close())
}

unsafe extern "C" fn post<C: Channel>(ctx: Ctx, request: *const Request) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<C>(ctx).post(&*request) })
}

unsafe extern "C" fn post_recv<C: Channel>(ctx: Ctx, request: *const RecvRequest) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<C>(ctx).post_recv(&*request) })
}

/// # Safety
/// `posted` is valid for a write.
unsafe fn list(posted: *mut usize, f: impl FnOnce() -> (usize, Status)) -> Status {
    let (done, status) = guard((0, Status::PANICKED), f);
    // SAFETY: the caller's promise.
    unsafe { posted.write(done) };
    status
}

unsafe extern "C" fn post_list<C: Channel>(
    ctx: Ctx,
    requests: *const Request,
    count: usize,
    posted: *mut usize,
) -> Status {
    // SAFETY: see above; `count` is not 0.
    unsafe { list(posted, || object::<C>(ctx).post_list(std::slice::from_raw_parts(requests, count))) }
}

unsafe extern "C" fn post_recv_list<C: Channel>(
    ctx: Ctx,
    requests: *const RecvRequest,
    count: usize,
    posted: *mut usize,
) -> Status {
    // SAFETY: see above; `count` is not 0.
    unsafe { list(posted, || object::<C>(ctx).post_recv_list(std::slice::from_raw_parts(requests, count))) }
}

unsafe extern "C" fn post_atomic<C: Channel>(ctx: Ctx, request: *const AtomicRequest) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<C>(ctx).post_atomic(&*request) })
}

unsafe extern "C" fn settle<C: Channel>(ctx: Ctx) {
    // SAFETY: see above.
    guard((), || unsafe { object::<C>(ctx) }.settle())
}

unsafe extern "C" fn bind<C: Channel>(ctx: Ctx, request: *const BindRequest, rkey: *mut u32) -> Status {
    // SAFETY: see above.
    match guard(Err(Status::PANICKED), || unsafe { object::<C>(ctx).bind(&*request) }) {
        Ok(key) => {
            // SAFETY: see above.
            unsafe { rkey.write(key) };
            Status::OK
        }
        Err(status) => status,
    }
}

unsafe extern "C" fn connect<C: Channel>(
    ctx: Ctx,
    param: *const RawConnect,
    message: *mut Message,
) -> Status {
    let mut done = ();
    // SAFETY: see above.
    unsafe {
        fallible(&raw mut done, message, || {
            let raw = &*param;
            let data = bytes(raw.data, raw.data_len as usize);
            object::<C>(ctx).connect(&ConnectParam { addr: raw.addr, port: raw.port, qos: raw.qos, data })
        })
    }
}

unsafe extern "C" fn accept<C: Channel>(
    ctx: Ctx,
    request: u64,
    data: *const u8,
    len: usize,
    message: *mut Message,
) -> Status {
    let mut done = ();
    // SAFETY: see above.
    unsafe { fallible(&raw mut done, message, || object::<C>(ctx).accept(request, bytes(data, len))) }
}

unsafe extern "C" fn disconnect<C: Channel>(ctx: Ctx) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<C>(ctx) }.disconnect())
}

unsafe extern "C" fn local_port<C: Channel>(ctx: Ctx) -> u64 {
    // SAFETY: see above.
    guard(0, || unsafe { object::<C>(ctx) }.local_port())
}

unsafe extern "C" fn describe_channel<C: Channel>(ctx: Ctx, message: *mut Message) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe {
        say(message, &object::<C>(ctx).describe());
        Status::OK
    })
}

unsafe extern "C" fn close_channel<C: Channel>(ctx: Ctx) {
    // SAFETY: see above; the host never uses `ctx` again.
    guard((), || unsafe { take_back::<C>(ctx) }.close())
}

unsafe extern "C" fn poll<Q: Queue>(ctx: Ctx, out: *mut Completion, capacity: usize) -> usize {
    // The host looks at the number; see above for the rest.
    // SAFETY: see above; the host's completions are initialised.
    guard(0, || unsafe { object::<Q>(ctx).poll(std::slice::from_raw_parts_mut(out, capacity)) })
}

unsafe extern "C" fn arm<Q: Queue>(ctx: Ctx) -> u32 {
    // SAFETY: see above.
    guard(0, || unsafe { object::<Q>(ctx) }.arm() as u32)
}

unsafe extern "C" fn disarm<Q: Queue>(ctx: Ctx) {
    // SAFETY: see above.
    guard((), || unsafe { object::<Q>(ctx) }.disarm())
}

unsafe extern "C" fn fd<Q: Queue>(ctx: Ctx) -> i32 {
    // SAFETY: see above.
    guard(-1, || unsafe { object::<Q>(ctx) }.fd())
}

unsafe extern "C" fn close_queue<Q: Queue>(ctx: Ctx) {
    // SAFETY: see above; the host never uses `ctx` again.
    guard((), || unsafe { take_back::<Q>(ctx) }.close())
}

unsafe extern "C" fn port<L: Listener>(ctx: Ctx) -> u64 {
    // SAFETY: see above.
    guard(0, || unsafe { object::<L>(ctx) }.port())
}

unsafe extern "C" fn close_listener<L: Listener>(ctx: Ctx) {
    // SAFETY: see above; the host never uses `ctx` again.
    guard((), || unsafe { take_back::<L>(ctx) }.close())
}

unsafe extern "C" fn srq_post_recv<S: Srq>(ctx: Ctx, request: *const RecvRequest) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<S>(ctx).post_recv(&*request) })
}

unsafe extern "C" fn srq_arm<S: Srq>(ctx: Ctx, limit: u32) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<S>(ctx) }.arm(limit))
}

unsafe extern "C" fn srq_resize<S: Srq>(ctx: Ctx, depth: u32) -> Status {
    // SAFETY: see above.
    guard(Status::PANICKED, || unsafe { object::<S>(ctx) }.resize(depth))
}

unsafe extern "C" fn srq_close<S: Srq>(ctx: Ctx) {
    // SAFETY: see above; the host never uses `ctx` again.
    guard((), || unsafe { take_back::<S>(ctx) }.close())
}
