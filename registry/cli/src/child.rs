//! Children of this command that load a plugin, and may be lost to it.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Outcome;

/// How a child ended that did not end in order.
pub fn crash(status: ExitStatus) -> Option<String> {
    match (status.signal(), status.code()) {
        (Some(signal), _) => Some(format!("signal {signal} ({})", signal_name(signal))),
        (None, Some(0)) => None,
        (None, code) => Some(format!("exit status {}", code.unwrap_or(-1))),
    }
}

/// The signals a broken library ends a process with.
fn signal_name(signal: i32) -> &'static str {
    use rustix::process::Signal;
    let known = [
        (Signal::SEGV, "segmentation fault"),
        (Signal::BUS, "bus error"),
        (Signal::ABORT, "abort"),
        (Signal::ILL, "illegal instruction"),
        (Signal::FPE, "arithmetic fault"),
        (Signal::KILL, "killed"),
        (Signal::SYS, "forbidden system call"),
    ];
    known.iter().find(|(known, _)| known.as_raw() == signal).map_or("see signal(7)", |(_, name)| name)
}

/// A child that does not outlive this.
pub struct Ended(pub Child);

impl Ended {
    /// Its status, or none when it took too long.
    pub fn wait(&mut self, limit: Duration) -> Outcome<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() > deadline {
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail when it has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
