//! Forking: the only unsafe code of these tests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, waitpid};

/// Runs `body` in a forked child and gives its result. A panic in it counts as 101.
///
/// The child is ended by the kernel when it takes longer than `limit`; then, and when it crashes, the answer is an error
/// that reports it.
pub fn in_child(limit: Duration, body: impl FnOnce() -> u8) -> Result<u8, String> {
    // SAFETY: the child runs `body` and leaves with `_exit`: neither destructors nor exit handlers of the parent run
    // twice. What `body` calls after a fork of a process with threads is what is under test; the callers are tests.
    #[allow(unsafe_code)]
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(format!("fork: {}", std::io::Error::last_os_error())),
        0 => {
            let seconds = limit.as_secs().max(1) as u32;
            // SAFETY: `alarm` has no preconditions. Its signal ends a child that hangs.
            #[allow(unsafe_code)]
            unsafe {
                libc::alarm(seconds)
            };
            let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(101);
            // SAFETY: `_exit` has no preconditions.
            #[allow(unsafe_code)]
            unsafe {
                libc::_exit(code.into())
            }
        }
        pid => wait(pid, limit + Duration::from_secs(5)),
    }
}

fn wait(pid: i32, limit: Duration) -> Result<u8, String> {
    let deadline = Instant::now() + limit;
    let pid = Pid::from_raw(pid).ok_or("fork gave 0 to the parent")?;
    loop {
        match waitpid(Some(pid), WaitOptions::NOHANG).map_err(|error| error.to_string())? {
            Some((_, status)) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Ok(code as u8),
                    (None, Some(libc::SIGALRM)) => Err("the child hung".into()),
                    (None, signal) => Err(format!("the child died of signal {signal:?}")),
                };
            }
            None if Instant::now() > deadline => return Err("the child did not end".into()),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
