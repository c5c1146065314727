//! Posting to an endpoint: a connection's own endpoint, or the device's datagram endpoint.

use std::ffi::c_void;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::ptr;

use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::ops::Iovec;
use libfabric_sys::types::*;

use crate::endpoint::context::Seg;
use crate::fabric::limits::{MAX_INJECT, MAX_SEGMENTS};
use crate::memory::Regions;
use crate::status::Errno;

/// Where a channel's operations go.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub ep: *mut fid_ep,
    /// With datagrams: the peer's address.
    pub dest: fi_addr_t,
    pub datagrams: bool,
    /// Everything but RDMA goes in frames (`channel/framed.rs`).
    pub framed: bool,
    /// With datagrams: the tags of messages to the peer and from it.
    pub tag_out: u64,
    pub tag_in: u64,
}

// SAFETY: any thread may use an endpoint (FI_THREAD_SAFE). The channel's lock keeps it open while it is used.
unsafe impl Send for Link {}

/// What a post with local memory needs.
pub struct Local<'a> {
    pub segs: &'a [Seg],
    pub regions: &'a Regions,
    pub context: *mut c_void,
}

/// Memory at the peer, in the fabric's terms.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    pub addr: u64,
    pub key: u64,
}

/// Local memory in the form of the C interface.
struct Vector {
    iov: [Iovec; MAX_SEGMENTS],
    desc: [*mut c_void; MAX_SEGMENTS],
    count: usize,
}

impl Vector {
    fn new(local: &Local<'_>) -> Vector {
        let mut out = Vector {
            iov: [Iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MAX_SEGMENTS],
            desc: [ptr::null_mut(); MAX_SEGMENTS],
            count: local.segs.len().min(MAX_SEGMENTS),
        };
        for (at, seg) in local.segs.iter().take(MAX_SEGMENTS).enumerate() {
            out.iov[at] = Iovec { iov_base: seg.addr as *mut c_void, iov_len: seg.len as usize };
            out.desc[at] = local.regions.descriptor(seg.lkey);
        }
        out
    }

    /// Shortens it to `len` bytes.
    fn cut(mut self, len: u64) -> Vector {
        let mut left = len;
        for at in 0..self.count {
            let take = left.min(self.iov[at].iov_len as u64);
            self.iov[at].iov_len = take as usize;
            left -= take;
            if left == 0 {
                self.count = at + 1;
                break;
            }
        }
        self
    }
}

fn done(result: isize) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(i32::try_from(result).unwrap_or(-FI_EOTHER)) }
}

impl Link {
    /// Sends a message with 64 bits of immediate data.
    pub fn send(&self, local: &Local<'_>, imm: u64) -> Result<(), Errno> {
        let mut vector = Vector::new(local);
        let flags = FI_COMPLETION | FI_REMOTE_CQ_DATA;
        // SAFETY: the engine keeps the segments' memory until the request completes. The context is part of the channel,
        // which lives until libfabric has handed it back.
        done(unsafe {
            if self.datagrams {
                let msg = fi_msg_tagged {
                    msg_iov: vector.iov.as_ptr(),
                    desc: vector.desc.as_mut_ptr(),
                    iov_count: vector.count,
                    addr: self.dest,
                    tag: self.tag_out,
                    ignore: 0,
                    context: local.context,
                    data: imm,
                };
                fi_tsendmsg(self.ep, &msg, flags)
            } else {
                let msg = fi_msg {
                    msg_iov: vector.iov.as_ptr(),
                    desc: vector.desc.as_mut_ptr(),
                    iov_count: vector.count,
                    addr: self.dest,
                    context: local.context,
                    data: imm,
                };
                fi_sendmsg(self.ep, &msg, flags)
            }
        })
    }

    /// Sends a short message with immediate data. libfabric copies the bytes in the call, and reports no completion.
    pub fn inject(&self, segs: &[Seg], imm: u64) -> Result<(), Errno> {
        let mut room = [MaybeUninit::<u8>::uninit(); MAX_INJECT];
        let (bytes, len) = match segs {
            [] => (room.as_ptr().cast(), 0),
            [one] => (one.addr as *const c_void, one.len as usize),
            many => {
                let mut len = 0;
                for seg in many {
                    let place = room.get_mut(len..len + seg.len as usize).ok_or(-libc::EMSGSIZE)?;
                    // SAFETY: the engine keeps the segment's memory until the request completes; `place` has the same length.
                    unsafe {
                        ptr::copy_nonoverlapping(
                            seg.addr as *const u8,
                            place.as_mut_ptr().cast(),
                            place.len(),
                        );
                    }
                    len += place.len();
                }
                (room.as_ptr().cast(), len)
            }
        };
        // SAFETY: `bytes` has `len` bytes, which libfabric copies before the call returns.
        done(unsafe {
            match self.datagrams {
                true => fi_tinjectdata(self.ep, bytes, len, imm, self.dest, self.tag_out),
                false => fi_injectdata(self.ep, bytes, len, imm, self.dest),
            }
        })
    }

    /// Posts a receive.
    pub fn recv(&self, local: &Local<'_>) -> Result<(), Errno> {
        let mut vector = Vector::new(local);
        // SAFETY: the engine keeps the segments' memory until the post completes; the context lives in the channel.
        done(unsafe {
            if self.datagrams {
                let msg = fi_msg_tagged {
                    msg_iov: vector.iov.as_ptr(),
                    desc: vector.desc.as_mut_ptr(),
                    iov_count: vector.count,
                    addr: FI_ADDR_UNSPEC,
                    tag: self.tag_in,
                    ignore: 0,
                    context: local.context,
                    data: 0,
                };
                fi_trecvmsg(self.ep, &msg, FI_COMPLETION)
            } else {
                let msg = fi_msg {
                    msg_iov: vector.iov.as_ptr(),
                    desc: vector.desc.as_mut_ptr(),
                    iov_count: vector.count,
                    addr: FI_ADDR_UNSPEC,
                    context: local.context,
                    data: 0,
                };
                fi_recvmsg(self.ep, &msg, FI_COMPLETION)
            }
        })
    }

    /// Writes the first `len` local bytes to the peer's memory. With `delivery`, it completes when they are there.
    pub fn write(&self, local: &Local<'_>, len: u64, remote: Remote, delivery: bool) -> Result<(), Errno> {
        let flags = FI_COMPLETION | if delivery { FI_DELIVERY_COMPLETE } else { 0 };
        self.one_sided(local, len, remote, |msg| {
            // SAFETY: the engine keeps the segments' memory until the post completes; the context lives in the channel.
            unsafe { fi_writemsg(self.ep, msg, flags) }
        })
    }

    /// Reads `len` bytes of the peer's memory into the first local bytes.
    pub fn read(&self, local: &Local<'_>, len: u64, remote: Remote) -> Result<(), Errno> {
        self.one_sided(local, len, remote, |msg| {
            // SAFETY: the engine keeps the segments' memory until the post completes; the context lives in the channel.
            unsafe { fi_readmsg(self.ep, msg, FI_COMPLETION) }
        })
    }

    fn one_sided(
        &self,
        local: &Local<'_>,
        len: u64,
        remote: Remote,
        post: impl FnOnce(&fi_msg_rma) -> isize,
    ) -> Result<(), Errno> {
        let mut vector = Vector::new(local).cut(len);
        let target = fi_rma_iov { addr: remote.addr, len: len as usize, key: remote.key };
        let msg = fi_msg_rma {
            msg_iov: vector.iov.as_ptr(),
            desc: vector.desc.as_mut_ptr(),
            iov_count: vector.count,
            addr: self.dest,
            rma_iov: &target,
            rma_iov_count: 1,
            context: local.context,
            data: 0,
        };
        done(post(&msg))
    }

    /// Fetch-and-add, or compare-and-swap if `compare` is given. The caller keeps `operand` and `compare` in place until it
    /// completes.
    pub fn atomic(
        &self,
        local: &Local<'_>,
        remote: Remote,
        operand: *const u64,
        compare: Option<*const u64>,
    ) -> Result<(), Errno> {
        let Some(sink) = local.segs.first() else { return Err(-libc::EINVAL) };
        let source = fi_ioc { addr: operand.cast_mut().cast(), count: 1 };
        let target = fi_rma_ioc { addr: remote.addr, count: 1, key: remote.key };
        let mut result = fi_ioc { addr: sink.addr as *mut c_void, count: 1 };
        let mut sink_desc = [local.regions.descriptor(sink.lkey)];
        let mut no_desc = [ptr::null_mut()];
        let msg = fi_msg_atomic {
            msg_iov: &source,
            desc: no_desc.as_mut_ptr(),
            iov_count: 1,
            addr: self.dest,
            rma_iov: &target,
            rma_iov_count: 1,
            datatype: FI_UINT64,
            op: if compare.is_some() { FI_CSWAP } else { FI_SUM },
            context: local.context,
            data: 0,
        };
        // SAFETY: the engine keeps the sink until the request completes; operands and context are in the channel's ring, which
        // lives until libfabric has handed them back.
        done(unsafe {
            match compare {
                None => fi_fetch_atomicmsg(self.ep, &msg, &mut result, sink_desc.as_mut_ptr(), FI_COMPLETION),
                Some(compare) => {
                    let compare = fi_ioc { addr: compare.cast_mut().cast(), count: 1 };
                    let mut compare_desc = [ptr::null_mut()];
                    fi_compare_atomicmsg(
                        self.ep,
                        &msg,
                        &compare,
                        compare_desc.as_mut_ptr(),
                        &mut result,
                        sink_desc.as_mut_ptr(),
                        FI_COMPLETION,
                    )
                }
            }
        })
    }

    /// Writes a few bytes to the peer's control page, with 64 bits of immediate data. libfabric copies the bytes in the
    /// call, and reports no completion here.
    pub fn write_control(&self, payload: &[u8], data: u64, remote: Remote) -> Result<(), Errno> {
        // SAFETY: libfabric copies the payload of an injected write before the call returns.
        done(unsafe {
            fi_inject_writedata(
                self.ep,
                payload.as_ptr().cast(),
                payload.len(),
                data,
                self.dest,
                remote.addr,
                remote.key,
            )
        })
    }

    /// Cancels a posted receive; it completes with an error unless a message already matched it.
    pub fn cancel(&self, context: *mut c_void) {
        // SAFETY: the channel's lock keeps the endpoint open. An unknown context gives an error: the receive has completed.
        let _ = unsafe { fi_cancel(self.ep, context) };
    }
}

// `inline` treats endpoints and passive endpoints alike up to these fields.
const _: () = assert!(offset_of!(fid_ep, cm) == offset_of!(fid_pep, cm));
const _: () = assert!(offset_of!(fid_ep, ops) == offset_of!(fid_pep, ops));
const _: () = assert!(size_of::<Iovec>() == 16);
