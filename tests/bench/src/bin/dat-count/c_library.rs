//! The C library by its exported functions, as a program in C calls them. It is loaded, as its versioned symbols cannot be
//! linked into a program in Rust.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

use dat_types::{LmrTriplet, Privileges};
use libloading::{Library, Symbol};

use crate::layers::{BATCH, Layer};

type Handle = *mut c_void;
type Return = u32;
type Post = unsafe extern "C" fn(Handle, i32, *const LmrTriplet, u64, u32) -> Return;
type Dequeue = unsafe extern "C" fn(Handle, *mut Event) -> Return;
type Close = unsafe extern "C" fn(Handle, u32) -> Return;

/// More than an event has: its number, its dispatcher, and what it is about.
type Event = [u64; 32];

const TIMEOUT: u32 = 10_000_000;
const EVENT_DTO: u32 = 0x1;
const EVENT_REQUEST: u32 = 0x2001;
const EVENT_ESTABLISHED: u32 = 0x4001;
/// `DAT_QUEUE_EMPTY`, as `dat_evd_dequeue` answers it.
const QUEUE_EMPTY: u32 = 0x000D_0000;
/// For data transfers, requests to connect, and connections.
const EVD_FLAGS: u32 = 0x10 | 0x20 | 0x40;
const ABRUPT: u32 = 0;
const ADDRESS_FIELD: u64 = 0x40;

pub(crate) struct C {
    sides: [Side; 2],
    post_recv: Post,
    post_send: Post,
    dequeue: Dequeue,
    close: Close,
}

struct Side {
    ia: Handle,
    ep: Handle,
    evd: Handle,
    iov: [LmrTriplet; 1],
}

/// The address's place in the attributes of an IA.
#[repr(C)]
struct IaAttr {
    names: [[c_char; 256]; 2],
    versions: [u32; 4],
    address: *mut c_void,
    rest: [u64; 64],
}

/// The first attributes of an endpoint; the others may be 0.
#[repr(C)]
#[derive(Default)]
struct EpAttr {
    service: u32,
    max_message: u32,
    max_rdma: u32,
    qos: u32,
    completion_flags: [u32; 2],
    max_recvs: u32,
    max_requests: u32,
    max_recv_segments: u32,
    max_request_segments: u32,
    rest: [u64; 16],
}

/// A function of the headers, with the type it has there.
unsafe fn function<'a, T>(library: &'a Library, name: &CStr) -> Symbol<'a, T> {
    // SAFETY: the caller's.
    unsafe { library.get(name.to_bytes_with_nul()) }.unwrap_or_else(|error| panic!("{error}"))
}

/// Calls a function of integers and pointers, which must succeed.
macro_rules! call {
    ($library:expr, $name:literal $(, $argument:expr => $type:ty)*) => {{
        let function = function::<unsafe extern "C" fn($($type),*) -> Return>($library, $name);
        let result = function($($argument),*);
        assert_eq!(result, 0, "{:?}: {result:#x}", $name);
    }};
}

impl Side {
    unsafe fn new(library: &Library, name: &CStr) -> Side {
        let (mut ia, mut errors, mut pz, mut evd) = (null_mut(), null_mut(), null_mut(), null_mut());
        let memory = Box::leak(Box::new([0u8; 4096])).as_mut_ptr();
        let (mut lmr, mut context, mut ep) = (null_mut(), 0, null_mut());
        let attr = EpAttr {
            max_message: 1 << 20,
            max_rdma: 1 << 20,
            max_recvs: 2 * BATCH as u32,
            max_requests: 2 * BATCH as u32,
            max_recv_segments: 4,
            max_request_segments: 4,
            ..EpAttr::default()
        };
        // SAFETY: the types are those of the headers, the objects those made before; the memory is never freed. The
        // region's description is two words, passed as such.
        unsafe {
            call!(library, c"dat_ia_openv", name.as_ptr() => *const c_char, 8 => i32, &mut errors => &mut Handle,
                &mut ia => &mut Handle, 2 => u32, 0 => u32, 1 => u32);
            call!(library, c"dat_pz_create", ia => Handle, &mut pz => &mut Handle);
            call!(library, c"dat_evd_create", ia => Handle, 8 * BATCH as i32 => i32, null_mut() => Handle,
                EVD_FLAGS => u32, &mut evd => &mut Handle);
            call!(library, c"dat_lmr_create", ia => Handle, 0 => u32, memory => *mut u8, 0 => u64, 4096 => u64,
                pz => Handle, Privileges::ALL.bits() => u32, 0 => u32, &mut lmr => &mut Handle,
                &mut context => &mut u32, null_mut() => *mut u32, null_mut() => *mut u64, null_mut() => *mut u64);
            call!(library, c"dat_ep_create", ia => Handle, pz => Handle, evd => Handle, evd => Handle, evd => Handle,
                &attr => &EpAttr, &mut ep => &mut Handle);
        }
        Side { ia, ep, evd, iov: [LmrTriplet { address: memory as u64, length: 8, context }] }
    }

    unsafe fn next(&self, library: &Library) -> Event {
        let (mut event, mut more) = ([0; 32], 0);
        // SAFETY: as above; there is room for an event.
        unsafe {
            call!(library, c"dat_evd_wait", self.evd => Handle, TIMEOUT => u32, 1 => i32, &mut event => &mut Event,
                &mut more => &mut i32);
        }
        event
    }
}

impl C {
    /// The library in this folder, over two adapters of this name.
    pub(crate) fn new(folder: &Path, name: &CStr) -> C {
        // SAFETY: the library built with this program, which may be loaded at any time; it is never unloaded, for its
        // threads may outlive this. Functions have the types of the headers, as for `Side`.
        unsafe {
            let library = Library::new(folder.join("libdat2.so")).expect("the C library loads");
            let library: &Library = Box::leak(Box::new(library));
            let sides = [0; 2].map(|_| Side::new(library, name));
            let [asks, answers] = &sides;
            let (mut port, mut psp) = (0u64, null_mut());
            call!(library, c"dat_psp_create_any", answers.ia => Handle, &mut port => &mut u64, answers.evd => Handle,
                0 => u32, &mut psp => &mut Handle);
            let mut attr: IaAttr = std::mem::zeroed();
            call!(library, c"dat_ia_query", answers.ia => Handle, null_mut() => *mut Handle, ADDRESS_FIELD => u64,
                &mut attr => &mut IaAttr, 0 => u64, null_mut() => *mut c_void);
            call!(library, c"dat_ep_connect", asks.ep => Handle, attr.address => *mut c_void, port => u64,
                TIMEOUT => u32, 0 => i32, null() => *const c_void, 0 => u32, 0 => u32);
            let event = answers.next(library);
            assert_eq!(event[0] as u32, EVENT_REQUEST, "a request to connect");
            // The fourth word of its data, which begins behind number and dispatcher.
            let request = event[5] as Handle;
            call!(library, c"dat_cr_accept", request => Handle, answers.ep => Handle, 0 => i32,
                null() => *const c_void);
            for side in &sides {
                assert_eq!(side.next(library)[0] as u32, EVENT_ESTABLISHED, "a connection");
            }
            let post_recv = *function::<Post>(library, c"dat_ep_post_recv");
            let post_send = *function::<Post>(library, c"dat_ep_post_send");
            let dequeue = *function::<Dequeue>(library, c"dat_evd_dequeue");
            let close = *function::<Close>(library, c"dat_ia_close");
            C { sides, post_recv, post_send, dequeue, close }
        }
    }

    #[inline]
    fn poll(&self, side: usize) -> Return {
        let mut event = std::mem::MaybeUninit::<Event>::uninit();
        // SAFETY: the dispatcher lives, there is room for an event, which is written when there was one.
        unsafe {
            let result = (self.dequeue)(self.sides[side].evd, event.as_mut_ptr());
            if result == 0 {
                let number = event.as_ptr().cast::<u32>().read();
                assert_eq!(number, EVENT_DTO, "a data transfer completed");
            }
            result
        }
    }

    fn take(&self, side: usize) {
        let mut left = BATCH;
        while left > 0 {
            if self.poll(side) == 0 {
                left -= 1;
            }
        }
    }

    fn post(&self, post: Post, side: usize) {
        let side = &self.sides[side];
        for cookie in 0..BATCH as u64 {
            // SAFETY: the endpoint lives; its memory is never freed.
            assert_eq!(unsafe { post(side.ep, 1, side.iov.as_ptr(), cookie, 0) }, 0, "a post");
        }
    }
}

impl Drop for C {
    fn drop(&mut self) {
        for side in &self.sides {
            // SAFETY: opened by this value, and nothing of it is used again.
            unsafe { (self.close)(side.ia, ABRUPT) };
        }
    }
}

impl Layer for C {
    fn name(&self) -> &'static str {
        "c"
    }

    fn post_recvs(&mut self) {
        self.post(self.post_recv, 1);
    }

    fn post_sends(&mut self) {
        self.post(self.post_send, 0);
    }

    fn take_recvs(&mut self) {
        self.take(1);
    }

    fn take_sends(&mut self) {
        self.take(0);
    }

    fn poll_nothing(&mut self) {
        for _ in 0..BATCH {
            assert_eq!(self.poll(1), QUEUE_EMPTY);
        }
    }

    fn idle(&mut self, side: usize) {
        assert_eq!(self.poll(side), QUEUE_EMPTY);
    }
}
