//! Access to a peer's memory through the kernel: `process_vm_readv` and `process_vm_writev`. Used only where a probe
//! succeeded in both directions when the connection was made, since user namespaces, yama and containers forbid it
//! in ways that cannot be seen from outside.

use std::io;

use libc::{c_ulong, iovec, pid_t};

use super::target::{List, vectors};
use crate::memory::bytes::Span;

/// Reads `len` bytes at `addr` of process `pid` into `segs`.
pub(crate) fn read(pid: u32, addr: u64, len: u64, segs: &[impl Span]) -> io::Result<()> {
    transfer(pid, addr, len, segs, |pid, local, count, remote| {
        // SAFETY: the local vectors are spans, whose makers vouch for them; the remote one is checked by the kernel.
        unsafe { libc::process_vm_readv(pid, local.as_ptr(), count, remote, 1, 0) }
    })
}

/// Writes `segs`, `len` bytes, to `addr` of process `pid`; the last byte after all others.
pub(crate) fn write(pid: u32, addr: u64, len: u64, segs: &[impl Span]) -> io::Result<()> {
    let call = |pid: pid_t, local: &[iovec], count: c_ulong, remote: *const iovec| {
        // SAFETY: as in `read`.
        unsafe { libc::process_vm_writev(pid, local.as_ptr(), count, remote, 1, 0) }
    };
    if len > 1 {
        // One call copies with string instructions, which are not ordered in themselves.
        transfer(pid, addr, len - 1, segs, call)?;
    }
    let mut skip = len - 1;
    for seg in segs {
        if skip < seg.len() as u64 {
            let local = iovec { iov_base: (seg.addr() + skip as usize) as *mut libc::c_void, iov_len: 1 };
            let remote = iovec { iov_base: (addr + len - 1) as *mut libc::c_void, iov_len: 1 };
            return match call(pid as pid_t, &[local], 1, &remote) {
                1 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            };
        }
        skip -= seg.len() as u64;
    }
    Err(io::ErrorKind::InvalidInput.into())
}

fn transfer(
    pid: u32,
    addr: u64,
    len: u64,
    segs: &[impl Span],
    call: impl Fn(pid_t, &[iovec], c_ulong, *const iovec) -> isize,
) -> io::Result<()> {
    let (local, count) = vectors(segs, len as usize);
    let remote = iovec { iov_base: addr as *mut libc::c_void, iov_len: len as usize };
    let done = call(pid as pid_t, &local[..count], count as c_ulong, &remote);
    match u64::try_from(done) {
        Ok(done) if done == len => Ok(()),
        Ok(done) => Err(io::Error::other(format!("only {done} of {len} bytes"))),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Fetches a message that lies in the peer's memory.
pub(crate) fn pull(pid: u32, list: &List, segs: &[impl Span]) -> bool {
    let total = list.total();
    let (local, count) = vectors(segs, total as usize);
    let mut remote = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 16];
    for (to, part) in remote.iter_mut().zip(list.parts()) {
        *to = iovec { iov_base: part.addr as *mut libc::c_void, iov_len: part.len as usize };
    }
    // SAFETY: as in `read`; the peer's list was checked for its length, and its addresses are the kernel's to check.
    let done = unsafe {
        libc::process_vm_readv(
            pid as pid_t,
            local.as_ptr(),
            count as c_ulong,
            remote.as_ptr(),
            list.parts().len() as c_ulong,
            0,
        )
    };
    done == total as isize
}

/// Whether the word at `addr` of process `pid` can be read and is `nonce`.
pub(crate) fn try_nonce(pid: u32, addr: u64, nonce: u64) -> Result<(), String> {
    let mut word = 0u64;
    let local = iovec { iov_base: (&raw mut word).cast(), iov_len: 8 };
    let remote = iovec { iov_base: addr as *mut libc::c_void, iov_len: 8 };
    // SAFETY: the local vector is `word`.
    match unsafe { libc::process_vm_readv(pid as pid_t, &local, 1, &remote, 1, 0) } {
        8 if word == nonce => Ok(()),
        8 => Err(format!("process {pid} is not the peer")),
        _ => Err(format!("process_vm_readv of process {pid}: {}", io::Error::last_os_error())),
    }
}
