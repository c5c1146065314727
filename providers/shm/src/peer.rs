//! A peer's device: what all connections to it share, and how its death is seen.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::board::{Board, Map};
use crate::device::Dev;
use crate::memory::View;
use crate::one_sided::{self, Maps};

/// A device of a peer process.
pub(crate) struct Peer {
    /// As the socket says, 0 when it is in a process namespace that is not visible here.
    pub(crate) pid: u32,
    /// Its key table; `None` when it could not be mapped.
    pub(crate) keys: Option<View>,
    pub(crate) maps: Maps,
    /// Whether its memory can be read through the kernel, once somebody tried.
    cma: OnceLock<Result<(), String>>,
    boards: Arc<Map>,
    wakes: Mutex<HashMap<u64, Weak<Waker>>>,
    /// Readable when the process is dead. The socket tells as well, except where the dead process has a living child
    /// that inherited it.
    watch: Option<(OwnedFd, u64)>,
    dev: Weak<Dev>,
}

/// How a queue of the peer's is told.
pub(crate) struct Waker {
    pub(crate) fd: OwnedFd,
    pub(crate) board: Board,
}

impl Peer {
    pub(crate) fn new(
        dev: &Arc<Dev>,
        pid: u32,
        [keys, boards]: [Option<OwnedFd>; 2],
        token: u64,
    ) -> Result<Peer, String> {
        let boards = boards.ok_or_else(|| "no boards were sent".to_owned()).and_then(Map::open)?;
        let keys = keys.ok_or_else(|| "none was sent".to_owned());
        let keys = match keys.and_then(|fd| View::open(&fd)) {
            Ok(view) => Some(view),
            Err(error) => {
                tracing::warn!(pid, "the peer's key table: {error}; it executes writes and reads itself");
                None
            }
        };
        let watch = rustix::process::Pid::from_raw(pid as i32)
            .filter(|_| pid != std::process::id())
            .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok())
            .filter(|fd| dev.epoll_add(fd.as_fd(), token).is_ok())
            .map(|fd| (fd, token));
        let (boards, wakes) = (Arc::new(boards), Mutex::default());
        Ok(Peer {
            pid,
            keys,
            maps: Maps::default(),
            cma: OnceLock::new(),
            boards,
            wakes,
            watch,
            dev: Arc::downgrade(dev),
        })
    }

    /// Tries to read its memory through the kernel: `probe` is where its device has `nonce`.
    pub(crate) fn try_cma(&self, probe: u64, nonce: u64) -> Result<(), String> {
        self.cma.get_or_init(|| one_sided::try_nonce(self.pid, probe, nonce)).clone()
    }

    /// Its process is known to be dead.
    pub(crate) fn unwatch(&self, dev: &Dev) {
        if let Some((fd, token)) = &self.watch {
            dev.forget(*token, fd.as_fd());
        }
    }

    /// The way to a queue of the peer's, one for all connections that use it.
    pub(crate) fn waker(&self, id: u64, board: u32, fd: OwnedFd) -> Result<Arc<Waker>, String> {
        let mut wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = wakes.get(&id).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let board = self.boards.board(board).map_err(|error| format!("board {board}: {error}"))?;
        wakes.retain(|_, known| known.strong_count() > 0);
        let waker = Arc::new(Waker { fd, board });
        wakes.insert(id, Arc::downgrade(&waker));
        Ok(waker)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let (Some((fd, token)), Some(dev)) = (&self.watch, self.dev.upgrade()) {
            dev.forget(*token, fd.as_fd());
        }
    }
}
