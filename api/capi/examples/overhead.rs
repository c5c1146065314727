//! What a C call costs over the same Rust call: posts and dequeues by `dat_*` functions of the shared object against the
//! engine's methods, over one plugin, turn by turn.
//!
//! `cargo build --release -p dat-capi -p dat-loopback --lib --examples`, then `target/release/examples/overhead`. Without
//! `--lib` the library and the plugin that lie there are those of an earlier build.
//!
//! Both sides do the same: an endpoint connected to another of this process, a batch of empty receives and sends posted,
//! then all completions taken. The best batch of each side counts; what differs between them is the C library.

use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::time::Instant;

use dat_engine::{ConnectOptions, Evd, Ia, IaOptions};
use dat_registry::Registry;
use dat_types::{CompletionFlags, EpAttr, EvdFlags, EventData, LmrTriplet, PspFlags, Timeout};

const BATCH: usize = 32;
/// How often, unless the first argument says otherwise.
const ROUNDS: usize = 20_000;

fn main() {
    let folder = folder();
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let mut rust = rust_side(&folder);
    let mut c = CSide::new(&folder);
    let mut best = [[f64::MAX; 3]; 2];
    for _ in 0..rounds {
        for (side, best) in [&mut rust as &mut dyn Side, &mut c].into_iter().zip(&mut best) {
            for (best, now) in best.iter_mut().zip(side.round()) {
                *best = best.min(now);
            }
        }
    }
    let [rust, c] = best;
    println!("{:<24} {:>8} {:>8} {:>8}", "ns per call", "Rust", "C", "more");
    for (i, what) in ["post_recv", "post_send", "dequeue"].into_iter().enumerate() {
        println!("{what:<24} {:>8.1} {:>8.1} {:>8.1}", rust[i], c[i], c[i] - rust[i]);
    }
}

/// Where cargo put the libraries.
fn folder() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    program.parent().and_then(Path::parent).expect("target/PROFILE/examples").to_owned()
}

/// One side of the comparison.
trait Side {
    /// Nanoseconds for each post of a receive, post of a send, dequeue.
    fn round(&mut self) -> [f64; 3];
}

/// Times a batch of calls.
fn each(mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    (0..BATCH).for_each(&mut call);
    start.elapsed().as_nanos() as f64 / BATCH as f64
}

struct RustSide {
    _ia: Ia,
    recv: Evd,
    request: Evd,
    a: dat_engine::Ep,
    b: dat_engine::Ep,
}

impl Side for RustSide {
    fn round(&mut self) -> [f64; 3] {
        let none: &[LmrTriplet] = &[];
        let flags = CompletionFlags::empty();
        let recv = each(|i| self.b.post_recv(none, i as u64, flags).expect("posted"));
        let send = each(|i| self.a.post_send(none, i as u64, flags).expect("posted"));
        let dequeue = each(|_| drop(std::hint::black_box(self.recv.dequeue().expect("an event"))));
        each(|_| drop(self.request.dequeue().expect("an event")));
        [recv, send, dequeue]
    }
}

fn rust_side(folder: &Path) -> RustSide {
    let toml =
        format!("[provider.rust]\nlibrary = {:?}\n", folder.join("libdat_loopback.so").display().to_string());
    let registry = Registry::from_str("/overhead", &toml).expect("valid");
    let opened = registry.open_device("rust").expect("the loopback plugin beside this program");
    let ia = Ia::open(opened.device, "rust", "1", IaOptions::default()).expect("opens");
    let pz = ia.pz_create().expect("a zone");
    let recv = ia.evd_create(256, EvdFlags::DTO).expect("a dispatcher");
    let request = ia.evd_create(256, EvdFlags::DTO).expect("a dispatcher");
    let connect = ia.evd_create(16, EvdFlags::CONNECTION | EvdFlags::CR).expect("a dispatcher");
    let attr = EpAttr { max_recv_dtos: 64, max_request_dtos: 64, ..EpAttr::default() };
    let ep =
        || ia.ep_create(Some(&pz), Some(&recv), Some(&request), Some(&connect), Some(&attr)).expect("one");
    let (a, b) = (ep(), ep());
    let psp = ia.psp_create_any(&connect, PspFlags::Consumer).expect("listens");
    let address = std::net::SocketAddr::new(ia.query().expect("open").address, 0);
    a.connect(&ConnectOptions::new(address, psp.conn_qual())).expect("begins");
    let mut established = 0;
    while established < 2 {
        match connect.wait(Timeout::from_millis(5000), 1).expect("an event").0.data {
            EventData::ConnectionRequest { cr, .. } => {
                ia.cr(cr).and_then(|cr| cr.accept(Some(&b), &[])).expect("accepted");
            }
            _ => established += 1,
        }
    }
    RustSide { _ia: ia, recv, request, a, b }
}

type Handle = *mut c_void;
type Post = unsafe extern "C" fn(Handle, i32, *const c_void, u64, u32) -> u32;
type Dequeue = unsafe extern "C" fn(Handle, *mut [u64; 32]) -> u32;

struct CSide {
    post_recv: Post,
    post_send: Post,
    dequeue: Dequeue,
    recv: Handle,
    request: Handle,
    a: Handle,
    b: Handle,
}

impl Side for CSide {
    fn round(&mut self) -> [f64; 3] {
        let mut event = [0u64; 32];
        let none = std::ptr::null();
        // SAFETY: functions of the library with the types of the headers, on objects made below; an event is smaller
        // than the place for it.
        unsafe {
            let recv = each(|i| assert_eq!((self.post_recv)(self.b, 0, none, i as u64, 0), 0));
            let send = each(|i| assert_eq!((self.post_send)(self.a, 0, none, i as u64, 0), 0));
            let dequeue = each(|_| assert_eq!((self.dequeue)(self.recv, &mut event), 0));
            each(|_| assert_eq!((self.dequeue)(self.request, &mut event), 0));
            [recv, send, dequeue]
        }
    }
}

/// Calls a function of the library with words.
macro_rules! call {
    ($library:expr, $name:literal $(, $argument:expr)*) => {{
        let function = symbol($library, $name);
        // SAFETY: integers and pointers only, as the function of this name takes them.
        let result = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($(call!(@word $argument)),*) -> u32>(function)(
                $($argument as u64),*
            )
        };
        assert_eq!(result, 0, "{}: {result:#x}", $name);
    }};
    (@word $argument:expr) => { u64 };
}

fn symbol(library: Handle, name: &str) -> *mut c_void {
    let name = CString::new(name).expect("no zero");
    // SAFETY: an open library and a terminated name.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?} is not exported");
    found
}

impl CSide {
    fn new(folder: &Path) -> CSide {
        let path = CString::new(folder.join("libdat2.so").display().to_string()).expect("a path");
        // SAFETY: a terminated path; the library may be loaded at any time.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} does not load");
        let (mut ia, mut async_evd, mut pz) = (0u64, 0u64, 0u64);
        let name: *const c_char = c"loopback0".as_ptr();
        call!(library, "dat_ia_openv", name, 8, &raw mut async_evd, &raw mut ia, 2, 0, 0);
        call!(library, "dat_pz_create", ia, &raw mut pz);
        let mut evds = [0u64; 3];
        for (evd, flags) in evds.iter_mut().zip([0x20, 0x20, 0x50]) {
            call!(library, "dat_evd_create", ia, 256, 0, flags, std::ptr::from_mut(evd));
        }
        let [recv, request, connect] = evds;
        let mut attr = [0u32; 32];
        // max_recv_dtos, max_request_dtos, max_recv_iov, max_request_iov
        attr[6..10].copy_from_slice(&[64, 64, 1, 1]);
        let mut eps = [0u64; 2];
        for ep in &mut eps {
            call!(
                library,
                "dat_ep_create",
                ia,
                pz,
                recv,
                request,
                connect,
                attr.as_ptr(),
                std::ptr::from_mut(ep)
            );
        }
        let (mut port, mut psp) = (0u64, 0u64);
        call!(library, "dat_psp_create_any", ia, &raw mut port, connect, 0, &raw mut psp);
        let mut address = [0u8; 16];
        address[0] = libc::AF_INET as u8;
        address[4..8].copy_from_slice(&[127, 0, 0, 1]);
        call!(library, "dat_ep_connect", eps[0], address.as_mut_ptr(), port, 5_000_000, 0, 0, 0, 0);
        let mut established = 0;
        while established < 2 {
            let (mut event, mut more) = ([0u64; 32], 0u32);
            call!(library, "dat_evd_wait", connect, 5_000_000, 1, event.as_mut_ptr(), &raw mut more);
            match event[0] as u32 {
                // The request is the fourth word of its data, which begins behind number and dispatcher.
                0x2001 => call!(library, "dat_cr_accept", event[5], eps[1], 0, 0),
                0x4001 => established += 1,
                other => panic!("event {other:#x}"),
            }
        }
        // SAFETY: functions of these names have these types.
        unsafe {
            CSide {
                post_recv: std::mem::transmute::<*mut c_void, Post>(symbol(library, "dat_ep_post_recv")),
                post_send: std::mem::transmute::<*mut c_void, Post>(symbol(library, "dat_ep_post_send")),
                dequeue: std::mem::transmute::<*mut c_void, Dequeue>(symbol(library, "dat_evd_dequeue")),
                recv: recv as Handle,
                request: request as Handle,
                a: eps[0] as Handle,
                b: eps[1] as Handle,
            }
        }
    }
}
