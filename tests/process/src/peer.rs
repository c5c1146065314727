//! The other process.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::LONG;

/// A running `dat-peer`. It ends when it is dropped, and by itself when this process ends.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    title: String,
}

impl Peer {
    /// Starts the program `dat-peer` at `program` (`env!("CARGO_BIN_EXE_dat-peer")`) in this role.
    pub fn start(program: &str, role: &str, parameters: &impl ToString, more: &[&str]) -> Peer {
        Peer::start_as(Path::new(program), &plugins(), None, role, parameters, more)
    }

    /// The same as another user, with the plugin in this folder.
    pub fn start_as(
        program: &Path,
        plugins: &Path,
        uid: Option<u32>,
        role: &str,
        parameters: &impl ToString,
        more: &[&str],
    ) -> Peer {
        let mut command = Command::new(program);
        command.arg(role).arg(parameters.to_string()).args(more);
        command.env("DAT_PLUGIN_PATH", plugins).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid).current_dir("/");
        }
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // No process listens when the test is over.
                let _ = send.send(line);
            }
        });
        Peer { child, input, lines, title: format!("peer {role} {}", more.join(" ")) }
    }

    /// The rest of the next line that begins with `word`.
    ///
    /// # Panics
    /// When none comes in time.
    pub fn hear(&mut self, word: &str) -> String {
        let deadline = Instant::now() + LONG;
        let mut heard = String::new();
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.strip_prefix(word) {
                    Some(rest) => return rest.trim().to_owned(),
                    None => {
                        println!("{}: {line}", self.title);
                        heard = heard + &line + "\n";
                    }
                },
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{}: no {word:?} in {LONG:?}; heard:\n{heard}", self.title)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!(
                        "{}: ended ({:?}) without {word:?}; heard:\n{heard}",
                        self.title,
                        self.child.wait()
                    )
                }
            }
        }
    }

    /// The number after `word`.
    pub fn hear_number(&mut self, word: &str) -> u64 {
        let rest = self.hear(word);
        rest.parse().unwrap_or_else(|_| panic!("{}: {word} {rest:?} is no number", self.title))
    }

    /// Tells the peer something.
    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("open until dropped");
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("{}: {error}", self.title));
    }

    /// Kills it with SIGKILL and gives the time just before.
    pub fn kill(&mut self) -> Instant {
        let at = Instant::now();
        self.signal(Signal::KILL);
        at
    }

    /// Waits until it is gone altogether.
    pub fn wait(&mut self) {
        self.child.wait().unwrap_or_else(|error| panic!("{}: {error}", self.title));
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap_or_else(|error| panic!("{}: {error}", self.title));
    }

    /// Whether it ended by itself, with success, within `limit`.
    pub fn ended_well(&mut self, limit: Duration) -> bool {
        self.input = None;
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                _ => return false,
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Fails when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its last lines help when a test fails.
        for line in self.lines.iter() {
            println!("{}: {line}", self.title);
        }
    }
}

/// The folder with the plugin: cargo puts what a test depends on beside it.
///
/// # Panics
/// When the plugin is not there: without it nothing here tests anything.
pub fn plugins() -> PathBuf {
    let exe = std::env::current_exe().expect("this test has a path");
    let folder = exe.parent().expect("a file is in a folder").to_owned();
    let plugin = folder.join(OsStr::new("libdat_shm.so"));
    assert!(plugin.exists(), "{} is missing; run `cargo test -p dat-process-tests`", plugin.display());
    folder
}
