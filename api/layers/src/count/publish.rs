//! Gives the counters of this process to who asks: one thread, from the first counted device to the last.

use std::io::{self, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use dat_kit::EventFd;
use dat_plugin::Failure;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;

use super::DeviceCounters;
use crate::stats::{COPIES, Stats, address};

/// How long a reader may take to take its answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread and what ends it.
pub struct Publisher {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pid: u32,
}

struct Shared {
    devices: Mutex<Vec<Weak<DeviceCounters>>>,
    stop: EventFd,
}

static CURRENT: Mutex<Weak<Publisher>> = Mutex::new(Weak::new());

impl Publisher {
    /// The process's publisher, with this device added.
    pub fn shared(device: &Arc<DeviceCounters>) -> Result<Arc<Publisher>, Failure> {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        // That of a parent this process was forked from has no thread here.
        let here = current.upgrade().filter(|publisher| publisher.pid == std::process::id());
        let publisher = match here {
            Some(publisher) => publisher,
            None => {
                let made = Publisher::start().map_err(|error| Failure::os("the layer count", &error))?;
                let made = Arc::new(made);
                *current = Arc::downgrade(&made);
                made
            }
        };
        let mut devices = publisher.shared.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|known| known.strong_count() > 0);
        devices.push(Arc::downgrade(device));
        drop(devices);
        Ok(publisher)
    }

    fn start() -> io::Result<Publisher> {
        let pid = std::process::id();
        let listener = (0..COPIES)
            .map(|nth| UnixListener::bind_addr(&address(pid, nth)?))
            .find(|bound| !bound.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse))
            .unwrap_or_else(|| Err(io::Error::other("too many copies of dat-layers in one process")))?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared { devices: Mutex::default(), stop: EventFd::new()? });
        let of_thread = shared.clone();
        let thread =
            std::thread::Builder::new().name("dat-stats".into()).spawn(move || of_thread.serve(&listener))?;
        Ok(Publisher { shared, thread: Mutex::new(Some(thread)), pid })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared.stop.signal();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A child of fork has the handle of a thread that is not there.
        if let Some(thread) = thread
            && self.pid == std::process::id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that gives out counters panicked");
        }
    }
}

impl Shared {
    fn serve(&self, listener: &UnixListener) {
        loop {
            let mut wait = [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            match poll(&mut wait, None) {
                Err(error) if error != rustix::io::Errno::INTR => {
                    tracing::error!(%error, "counters are not given out any more");
                    return;
                }
                _ if !wait[1].revents().is_empty() => return,
                _ => {}
            }
            if let Err(error) = self.answer(listener) {
                tracing::debug!(%error, "somebody who asked for counters did not take them");
            }
        }
    }

    fn answer(&self, listener: &UnixListener) -> io::Result<()> {
        let (mut stream, _) = match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            accepted => accepted?,
        };
        let asker = socket_peercred(&stream)?.uid;
        if asker != rustix::process::geteuid() && !asker.is_root() {
            return Ok(());
        }
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // Not held while writing: a reader that dawdles must not keep a device from being opened.
        let open: Vec<_> = {
            let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
            devices.iter().filter_map(Weak::upgrade).collect()
        };
        let devices = open.iter().map(|device| device.snapshot()).collect();
        let program = std::env::current_exe().unwrap_or_default().display().to_string();
        let stats = Stats { pid: std::process::id(), program, devices };
        stream.write_all(&serde_json::to_vec(&stats)?)
    }
}
