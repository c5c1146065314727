//! How a sleeper is woken: each queue has a datagram socket with a name, and its peers send to that name.
//!
//! # Why no eventfd
//! An eventfd that both sides hold has one open file description. Either side can fill it, or make it blocking, and then
//! a read or write of the other side, or of a third one, never returns. What a peer sends in its place could be any file.
//! Here no descriptor changes hands. A process sends with a socket of its own and reads from a socket of its own, with
//! flags for each call that keep the call from blocking and from raising a signal. A full socket is readable already.
//!
//! # Who can wake
//! Every local process can see the names. So a filter in the kernel drops each datagram without the queue's secret, which
//! only peers of a connection are told. A peer with the secret can wake the sleeper as often as it likes, as it always
//! could; no other peer waits for it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, sendto, socket_with,
};

use crate::foreign;
use crate::notify::ready_bitmap::ReadyBitmap;

/// Datagrams one drain takes. Further ones wake the sleeper once more.
const MOST: usize = 16;

/// What the sleeper of a queue waits on: readable from a signal to [`WakeSocket::drain`].
#[derive(Debug)]
pub(crate) struct WakeSocket {
    socket: OwnedFd,
    name: SocketAddrUnix,
    secret: u64,
    /// The kernel lets datagrams carry descriptors to this socket.
    descriptors: bool,
}

impl WakeSocket {
    /// The socket of queue `queue` of device `device`; peers send `secret` to wake its sleeper.
    pub(crate) fn new(device: u128, queue: u64, secret: u64) -> io::Result<WakeSocket> {
        let (socket, name) = (datagram_socket()?, name(device, queue)?);
        if let Err(error) = accept_only(&socket, secret) {
            tracing::debug!(%error, "no filter of wake-ups: every local process can wake this one's sleepers");
        }
        let descriptors = refuse_descriptors(&socket).is_err();
        bind(&socket, &name)?;
        Ok(WakeSocket { socket, name, secret, descriptors })
    }

    pub(crate) fn secret(&self) -> u64 {
        self.secret
    }

    /// Makes it readable.
    pub(crate) fn signal(&self) {
        // When the socket is full it is readable.
        let _ = send(self.socket.as_fd(), &self.name, self.secret);
    }

    /// Makes it unreadable, unless there are very many datagrams.
    pub(crate) fn drain(&self) {
        if self.descriptors {
            return self.drain_carefully();
        }
        let mut bytes = [[0u8; 8]; MOST];
        let mut parts =
            bytes.each_mut().map(|bytes| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 8 });
        let mut messages = parts.each_mut().map(|part| {
            // SAFETY: all zeros is a header without name, control data and bytes.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
            message
        });
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: `MOST` headers, each of one part of eight bytes; all live until the call is over.
        unsafe {
            let (fd, none) = (self.socket.as_raw_fd(), std::ptr::null_mut());
            libc::recvmmsg(fd, messages.as_mut_ptr(), MOST as u32, flags, none);
        }
    }

    /// The same where a datagram may carry descriptors: to read it closes them.
    fn drain_carefully(&self) {
        for _ in 0..MOST {
            match carries_descriptors(self.socket.as_fd()) {
                Ok(false) => {}
                Ok(true) => return self.dispose_of_one(),
                Err(_) => return,
            }
            let _ = rustix::net::recv(&self.socket, &mut [0u8; 8], RecvFlags::DONTWAIT | RecvFlags::TRUNC);
        }
    }

    /// A peer attached descriptors, which are closed when the datagram is read. That may block.
    #[cold]
    fn dispose_of_one(&self) {
        struct Unread(OwnedFd);
        impl Drop for Unread {
            fn drop(&mut self) {
                let _ = rustix::net::recv(&self.0, &mut [0u8; 8], RecvFlags::DONTWAIT | RecvFlags::TRUNC);
            }
        }
        tracing::debug!("a peer sends descriptors with a wake-up");
        if let Ok(socket) = self.socket.try_clone() {
            foreign::dispose(Unread(socket));
        }
    }
}

impl AsFd for WakeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for WakeSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The socket that wake-ups to one peer device are sent from. A peer that does not read them fills this socket and no
/// other.
#[derive(Debug)]
pub(crate) struct WakeSender(OwnedFd);

impl WakeSender {
    pub(crate) fn new() -> io::Result<WakeSender> {
        let socket = datagram_socket()?;
        // Room for the unread wake-ups of many queues of the peer's; the kernel's limit may be less.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, 1 << 20);
        Ok(WakeSender(socket))
    }
}

/// A queue of a peer's, to be woken.
pub(crate) struct Waker {
    bitmap: ReadyBitmap,
    sender: Arc<WakeSender>,
    name: SocketAddrUnix,
    secret: u64,
}

impl Waker {
    pub(crate) fn new(
        bitmap: ReadyBitmap,
        sender: &Arc<WakeSender>,
        device: u128,
        queue: u64,
        secret: u64,
    ) -> io::Result<Waker> {
        Ok(Waker { bitmap, sender: sender.clone(), name: name(device, queue)?, secret })
    }

    /// Reports a channel as ready, and wakes the sleeper if there is one. `false`: there was no room for the wake-up.
    pub(crate) fn ring(&self, slot: u32) -> bool {
        !self.bitmap.ring(slot) || send(self.sender.0.as_fd(), &self.name, self.secret).is_ok()
    }
}

fn datagram_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?)
}

/// Names are unique by the device's random number, and nothing of them is left when the process ends.
fn name(device: u128, queue: u64) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("dat-shm-wake/{device:032x}/{queue}").as_bytes())?)
}

/// Never blocks, never raises a signal.
fn send(socket: BorrowedFd<'_>, name: &SocketAddrUnix, secret: u64) -> io::Result<()> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendto(socket, &secret.to_be_bytes(), flags, name) {
            Err(Errno::INTR) => {}
            result => return result.map(drop).map_err(io::Error::from),
        }
    }
}

/// Whether the next datagram or packet comes with descriptors; nothing is taken. The error is that there is none.
pub(crate) fn carries_descriptors(socket: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zeros is a message header without name and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    loop {
        // SAFETY: the header names one byte that is writable. There is no room for control data, so the kernel makes no
        // descriptor; a peek leaves those of the datagram in its queue.
        let got = unsafe {
            libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_PEEK | libc::MSG_DONTWAIT)
        };
        if got >= 0 {
            return Ok(message.msg_flags & libc::MSG_CTRUNC != 0);
        }
        match io::Error::last_os_error().raw_os_error().unwrap_or(0) {
            libc::EINTR => {}
            other => return Err(Errno::from_raw_os_error(other)),
        }
    }
}

/// Has the kernel refuse datagrams with descriptors, from Linux 6.16 on.
fn refuse_descriptors(socket: &OwnedFd) -> io::Result<()> {
    const SO_PASSRIGHTS: libc::c_int = 83;
    let no: libc::c_int = 0;
    // SAFETY: the option's value is a number, which lives until the call is over.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const no).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel drop all datagrams but those of eight bytes that are `secret`.
fn accept_only(socket: &OwnedFd, secret: u64) -> io::Result<()> {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W};
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let (load_len, load) = (BPF_LD | BPF_W | BPF_LEN, BPF_LD | BPF_W | BPF_ABS);
    let equal = BPF_JMP | BPF_JEQ | BPF_K;
    let mut program = [
        step(load_len, 0, 0),
        step(equal, 5, 8),
        // Loads are big-endian.
        step(load, 0, 0),
        step(equal, 3, (secret >> 32) as u32),
        step(load, 0, 4),
        step(equal, 1, secret as u32),
        step(BPF_RET | BPF_K, 0, u32::MAX),
        step(BPF_RET | BPF_K, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the option's value is the program, which lives until the call is over; the kernel checks it.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn readable(socket: &WakeSocket) -> bool {
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn a_wake_socket_is_readable_from_signal_to_drain() {
        let own = WakeSocket::new(1 << 100 | u128::from(std::process::id()), 1, 77).unwrap();
        assert!(!readable(&own));
        for _ in 0..2000 {
            own.signal();
        }
        assert!(readable(&own), "full is readable");
        while readable(&own) {
            own.drain();
        }
        own.signal();
        assert!(readable(&own));
        own.drain();
        assert!(!readable(&own));
    }

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn a_datagram_without_the_secret_wakes_nobody() {
        let device = 2 << 100 | u128::from(std::process::id());
        let own = WakeSocket::new(device, 1, 0x1122_3344_5566_7788).unwrap();
        let sender = WakeSender::new().unwrap();
        let to = name(device, 1).unwrap();
        for wrong in [0, 0x1122_3344_5566_7789, 0x8877_6655_4433_2211] {
            send(sender.0.as_fd(), &to, wrong).unwrap();
            assert!(!readable(&own), "{wrong:#x}");
        }
        let long = sendto(&sender.0, &[0x11; 4096], SendFlags::DONTWAIT, &to);
        assert!(long.is_ok() && !readable(&own), "dropped, which its sender does not see");
        send(sender.0.as_fd(), &to, own.secret()).unwrap();
        assert!(readable(&own));
    }

    /// One that carries a descriptor is not read on the thread that drains.
    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn descriptors_with_a_wake_up_are_closed_elsewhere() {
        let device = 3 << 100 | u128::from(std::process::id());
        let mut own = WakeSocket::new(device, 1, 5).unwrap();
        let from = datagram_socket().unwrap();
        rustix::net::connect(&from, &name(device, 1).unwrap()).unwrap();
        let bytes = 5u64.to_be_bytes();
        let fds = [from.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds));
        let send = |control: &mut _| {
            rustix::net::sendmsg(&from, &[io::IoSlice::new(&bytes)], control, SendFlags::DONTWAIT)
        };
        if !own.descriptors {
            assert_eq!(send(&mut control), Err(Errno::PERM), "the kernel refuses it");
            // As on kernels that do not.
            own = WakeSocket { descriptors: true, ..own };
            let (on, size) = (1 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
            // SAFETY: as in `refuse_descriptors`.
            unsafe { libc::setsockopt(own.as_raw_fd(), libc::SOL_SOCKET, 83, (&raw const on).cast(), size) };
        }
        send(&mut control).unwrap();
        assert_eq!(carries_descriptors(own.as_fd()), Ok(true));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while readable(&own) {
            own.drain();
            assert!(std::time::Instant::now() < deadline);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
