//! Publishes the counters of this process: one thread, from the first counted device to the last.

use std::io::{self, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dat_kit::EventFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::Uid;

use super::device::DeviceCounters;
use crate::stats::{COPIES, Stats, address};

/// How long a reader may take for the whole answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause after a failed accept. Without it a process without free descriptors would try again at once, for ever.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

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
    pub fn shared(device: &Arc<DeviceCounters>) -> io::Result<Arc<Publisher>> {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        // The publisher of a parent, before a fork, has no thread here.
        let here = current.upgrade().filter(|publisher| publisher.pid == std::process::id());
        let publisher = match here {
            Some(publisher) => publisher,
            None => {
                let made = Arc::new(Publisher::start()?);
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
        let taken = || {
            let message = format!("the {COPIES} sockets dat-stats-{pid} and dat-stats-{pid}-N are in use");
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        };
        let listener = (0..COPIES)
            .map(|nth| UnixListener::bind_addr(&address(pid, nth)?))
            .find(|bound| !bound.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse))
            .unwrap_or_else(taken)?;
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
        // A child of fork has the handle of a thread that it does not have.
        if let Some(thread) = thread
            && self.pid == std::process::id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that publishes counters panicked");
        }
    }
}

impl Shared {
    fn serve(&self, listener: &UnixListener) {
        loop {
            let mut wait = [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            match poll(&mut wait, None) {
                Err(error) if error != rustix::io::Errno::INTR => {
                    tracing::error!(%error, "counters are not published any more");
                    return;
                }
                _ if !wait[1].revents().is_empty() => return,
                _ => {}
            }
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => {
                    tracing::debug!(%error, "a reader of counters was not accepted");
                    let mut stop = [PollFd::new(&self.stop, PollFlags::IN)];
                    match poll(&mut stop, Some(&PAUSE)) {
                        Ok(1..) => return,
                        _ => continue,
                    }
                }
            };
            if let Err(error) = self.answer(stream) {
                tracing::debug!(%error, "a reader did not take the counters");
            }
        }
    }

    fn answer(&self, stream: UnixStream) -> io::Result<()> {
        if !may_read(socket_peercred(&stream)?.uid) {
            return Ok(());
        }
        // Not held while writing: a slow reader must not keep a device from being opened.
        let open: Vec<_> = {
            let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
            devices.iter().filter_map(Weak::upgrade).collect()
        };
        let devices = open.iter().map(|device| device.snapshot()).collect();
        let program = std::env::current_exe().unwrap_or_default().display().to_string();
        let stats = Stats { pid: std::process::id(), program, devices };
        write_within(stream, &serde_json::to_vec(&stats)?, PATIENCE)
    }
}

/// Writes all bytes, or fails once `patience` is over, however slowly the reader takes them.
fn write_within(mut stream: UnixStream, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    stream.set_nonblocking(false)?;
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        // In pieces: a write of all of it would take up to `left` for each part that fits.
        let piece = bytes.len().min(4096);
        match stream.write(&bytes[..piece]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// This process's user and root may. In a user namespace every user without a mapping shows as one number, the overflow
/// user. A process that runs as that user answers root only, unless its namespace maps the number.
fn may_read(reader: Uid) -> bool {
    let own = rustix::process::geteuid();
    reader.is_root() || (reader == own && is_mapped(own))
}

fn is_mapped(user: Uid) -> bool {
    let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") else { return false };
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        let first = first.unwrap_or(0);
        (first..first + count.unwrap_or(0)).contains(&user.as_raw().into())
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::super::Count;
    use super::*;

    /// All names of this process are taken, as another user could do. Nothing else in this test's process publishes.
    #[test]
    fn a_device_opens_though_the_names_are_taken() {
        let pid = std::process::id();
        let squatters: Vec<_> = (0..COPIES)
            .map(|nth| {
                UnixListener::bind_addr(&address(pid, nth).expect("a name")).expect("the name is free")
            })
            .collect();
        let count = Count::new("ia0", "loopback");
        drop(squatters);
        assert!(count._publisher.is_none());
        // A child that another test starts holds the names until it has executed its program.
        let deadline = Instant::now() + Duration::from_secs(30);
        while Count::new("ia0", "loopback")._publisher.is_none() {
            assert!(Instant::now() < deadline, "the names are free again");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_slow_reader_is_given_up() {
        let (mut ours, mut reader) = UnixStream::pair().expect("a pair");
        let bytes = vec![7; 8 << 20];
        let slow = std::thread::spawn(move || {
            // A little at a time, so that no single write waits long.
            let mut some = [0; 2048];
            while reader.read(&mut some).is_ok_and(|count| count > 0) {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        ours.flush().expect("nothing is buffered");
        let start = Instant::now();
        let error = write_within(ours, &bytes, Duration::from_millis(300)).expect_err("8 MiB take 20 s so");
        assert!(start.elapsed() < Duration::from_secs(5), "{error} after {:?}", start.elapsed());
        slow.join().expect("the reader ends with the stream");
    }

    #[test]
    fn own_user_is_mapped_and_unlikely_ones_are_as_the_map_says() {
        assert!(is_mapped(rustix::process::geteuid()));
        assert!(may_read(Uid::ROOT));
    }

    /// In a process of its own, because it lowers the limit on descriptors.
    #[test]
    fn a_process_without_free_descriptors_does_not_spin() {
        let output = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "count::publish::tests::without_descriptors_child", "--nocapture"])
            .output()
            .expect("this program starts again");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[test]
    #[ignore = "runs in a process of its own, started by a_process_without_free_descriptors_does_not_spin"]
    fn without_descriptors_child() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let publisher = Publisher::start().expect("the publisher");
        let spare = rustix::io::dup(&publisher.shared.stop).expect("a descriptor");
        // The connection below takes the last descriptor there is.
        let last = std::os::fd::AsRawFd::as_raw_fd(&spare) as u64 + 1;
        drop(spare);
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(last), maximum }).expect("a lower limit");
        let reader =
            UnixStream::connect_addr(&address(std::process::id(), 0).expect("a name")).expect("connected");
        let before = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        std::thread::sleep(Duration::from_millis(600));
        let after = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let burnt = Duration::new(after.tv_sec as u64, after.tv_nsec as u32)
            - Duration::new(before.tv_sec as u64, before.tv_nsec as u32);
        assert!(burnt < Duration::from_millis(60), "{burnt:?} of processor time in 600 ms");
        drop(reader);
        drop(publisher);
    }
}
