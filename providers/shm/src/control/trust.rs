//! The process at the other end of a socket, and whether it may reach this process's memory itself.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::process::Pid;
use rustix::thread::CapabilitySet;

/// A process at the other end of a socket, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// 0 when the process is in a process namespace that is not visible here.
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

impl Credentials {
    pub(crate) fn of(socket: impl AsFd) -> Option<Credentials> {
        let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // Not rustix's wrapper: that has no value for a process of another namespace, whose number is 0 here.
        // SAFETY: `cred` and `len` are writable and live until the call is over.
        let status = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut cred).cast(),
                &raw mut len,
            )
        };
        let whole = status == 0 && len as usize == size_of::<libc::ucred>();
        whole.then_some(Credentials { pid: cred.pid as u32, uid: cred.uid })
    }

    /// Whether the process may map memory of this one, see its keys, and be reached through the kernel: it is of the same
    /// user and lacks no capability of this process, so it gains nothing by that. For all others the target executes each
    /// write and read itself, and checks it.
    pub(crate) fn is_trusted(self) -> bool {
        if self.uid != rustix::process::geteuid().as_raw() {
            return false;
        }
        let permitted = |pid| rustix::thread::capabilities(pid).map(|sets| sets.permitted);
        match (permitted(None), Pid::from_raw(self.pid as i32)) {
            (Ok(own), _) if own.is_empty() => true,
            (Ok(own), Some(pid)) => permitted(Some(pid)).unwrap_or(CapabilitySet::empty()).contains(own),
            _ => false,
        }
    }
}

/// A descriptor that becomes readable when the process at the other end dies.
pub(crate) fn pidfd(socket: impl AsFd, pid: u32) -> Option<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `fd` and `len` are writable and live until the call is over.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut len,
        )
    };
    if status == 0 && fd >= 0 {
        // SAFETY: the kernel made it for this call.
        return Some(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    if std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOPROTOOPT) {
        return None;
    }
    // Before Linux 6.5 the number may be another process's by now. The peer itself keeps the socket open until it dies.
    let fd =
        rustix::process::pidfd_open(Pid::from_raw(pid as i32)?, rustix::process::PidfdFlags::empty()).ok()?;
    (Credentials::of(&socket)?.pid == pid && !hung_up(&socket)).then_some(fd)
}

fn hung_up(socket: &impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_err() || fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    #[cfg_attr(miri, ignore = "sockets")]
    fn a_process_trusts_itself() {
        let (a, _b) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let own = Credentials::of(&a).unwrap();
        assert_eq!(own.pid, std::process::id());
        assert!(own.is_trusted());
        assert!(!Credentials { uid: own.uid ^ 1, ..own }.is_trusted());
        assert!(pidfd(&a, own.pid).is_some());
    }
}
