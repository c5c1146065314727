//! libfabric called directly, as a program without DAT does: what the libfabric provider cannot be cheaper than.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use libfabric_sys::Library;
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::types::*;

use crate::layers::{BATCH, Layer};

pub(crate) struct Fabric {
    endpoints: [*mut fid_ep; 2],
    queues: [*mut fid_cq; 2],
    segments: [libc::iovec; 2],
    number: usize,
}

/// What all objects of the two ends are opened on.
struct World {
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    events: *mut fid_eq,
}

impl Fabric {
    /// Two connected endpoints of the first fabric the library has.
    pub(crate) fn new() -> Fabric {
        let library = Library::get().expect("libfabric");
        let none = null_mut();
        let mut world = World { fabric: null_mut(), domain: null_mut(), events: null_mut() };
        let mut queues = [null_mut(); 2];
        let memory = || Box::leak(Box::new([0u8; 4096])).as_mut_ptr().cast::<c_void>();
        let segments = [0; 2].map(|_| libc::iovec { iov_base: memory(), iov_len: 8 });
        // SAFETY: plain calls in the order of the manual; nothing is closed before the process ends.
        let endpoints = unsafe {
            let mut info = null_mut();
            let version = fi_version(1, 17);
            done(library.getinfo(version, null(), null(), 0, null(), &mut info));
            done(library.fabric((*info).fabric_attr, &mut world.fabric));
            done(fi_domain(world.fabric, info, &mut world.domain, none));
            let mut attr = fi_eq_attr {
                size: 64,
                flags: 0,
                wait_obj: FI_WAIT_NONE,
                signaling_vector: 0,
                wait_set: none,
            };
            done(fi_eq_open(world.fabric, &mut attr, &mut world.events, none));
            for queue in &mut queues {
                let mut attr = fi_cq_attr {
                    size: 4 * BATCH,
                    flags: 0,
                    format: FI_CQ_FORMAT_DATA,
                    wait_obj: FI_WAIT_NONE,
                    signaling_vector: 0,
                    wait_cond: 0,
                    wait_set: none,
                };
                done(fi_cq_open(world.domain, &mut attr, queue, none));
            }
            world.connect(info, queues)
        };
        Fabric { endpoints, queues, segments, number: 0 }
    }

    #[inline]
    fn poll(&self, side: usize) -> usize {
        let mut out = MaybeUninit::<fi_cq_data_entry>::uninit();
        // SAFETY: the queue lives, there is room for one entry of its format.
        let n = unsafe { fi_cq_read(self.queues[side], out.as_mut_ptr().cast(), 1) };
        assert!(n == 1 || n == -libc::EAGAIN as isize, "a failure: {n}");
        n.max(0) as usize
    }

    fn take(&self, side: usize) {
        let mut left = BATCH;
        while left > 0 {
            left -= self.poll(side);
        }
    }

    fn message(&mut self, side: usize) -> fi_msg {
        self.number += 1;
        fi_msg {
            msg_iov: &raw const self.segments[side],
            desc: null_mut(),
            iov_count: 1,
            addr: FI_ADDR_UNSPEC,
            context: self.number as *mut c_void,
            data: 0,
        }
    }
}

impl World {
    /// An endpoint with these completions.
    unsafe fn endpoint(&self, info: *mut fi_info, queue: *mut fid_cq) -> *mut fid_ep {
        let mut endpoint = null_mut();
        // SAFETY: the caller's open objects.
        unsafe {
            done(fi_endpoint(self.domain, info, &mut endpoint, null_mut()));
            done(fi_bind(endpoint.cast(), self.events.cast(), 0));
            done(fi_bind(endpoint.cast(), queue.cast(), FI_SEND | FI_RECV));
            done(fi_enable(endpoint));
        }
        endpoint
    }

    unsafe fn connect(&self, info: *mut fi_info, queues: [*mut fid_cq; 2]) -> [*mut fid_ep; 2] {
        let mut listener = null_mut();
        let mut address = [0u8; 128];
        let mut len = address.len();
        // SAFETY: the caller's open objects, and those made here; room of the given length.
        unsafe {
            done(fi_passive_ep(self.fabric, info, &mut listener, null_mut()));
            done(fi_bind(listener.cast(), self.events.cast(), 0));
            done(fi_listen(listener));
            done(fi_getname(listener.cast(), address.as_mut_ptr().cast(), &mut len));
            let asks = self.endpoint(info, queues[0]);
            done(fi_connect(asks, address.as_ptr().cast(), null(), 0));
            let request = self.event(FI_CONNREQ);
            let answers = self.endpoint(request.info, queues[1]);
            done(fi_accept(answers, null(), 0));
            self.event(FI_CONNECTED);
            self.event(FI_CONNECTED);
            [asks, answers]
        }
    }

    /// The next event, which is to be of this kind.
    unsafe fn event(&self, wanted: u32) -> fi_eq_cm_entry {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut kind = 0;
        let mut out = MaybeUninit::<fi_eq_cm_entry>::uninit();
        loop {
            assert!(Instant::now() < deadline, "event {wanted} did not come within 10 s");
            let len = size_of::<fi_eq_cm_entry>();
            // SAFETY: an open queue and room of the given length; the entry is filled if the call succeeds.
            unsafe {
                match fi_eq_read(self.events, &mut kind, out.as_mut_ptr().cast(), len, 0) {
                    n if n == len as isize => {
                        assert_eq!(kind, wanted, "kind of event");
                        return out.assume_init();
                    }
                    n => assert_eq!(n, -libc::EAGAIN as isize, "an event queue's answer"),
                }
            }
        }
    }
}

fn done(result: i32) {
    assert_eq!(result, 0, "a call of libfabric's failed");
}

impl Layer for Fabric {
    fn name(&self) -> &'static str {
        "fabric"
    }

    fn post_recvs(&mut self) {
        for _ in 0..BATCH {
            let message = self.message(1);
            // SAFETY: the endpoint lives, the request does for the call, its memory is never freed.
            assert_eq!(unsafe { fi_recvmsg(self.endpoints[1], &message, FI_COMPLETION) }, 0);
        }
    }

    fn post_sends(&mut self) {
        for _ in 0..BATCH {
            let message = self.message(0);
            // SAFETY: as above.
            assert_eq!(unsafe { fi_sendmsg(self.endpoints[0], &message, FI_COMPLETION) }, 0);
        }
    }

    fn take_recvs(&mut self) {
        self.take(1);
    }

    fn take_sends(&mut self) {
        self.take(0);
    }

    fn poll_nothing(&mut self) {
        for _ in 0..BATCH {
            assert_eq!(self.poll(1), 0);
        }
    }
}
