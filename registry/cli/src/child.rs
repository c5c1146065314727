//! Children of this command that load a plugin, and may be lost to it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::failure::{Context as _, Failure, Outcome};

/// How a child ended that did not end in order, and if it did so itself, why.
pub fn crash(status: ExitStatus, heard: &Heard) -> Option<String> {
    match (status.signal(), status.code()) {
        (Some(signal), _) => {
            let why = if signal == Signal::ABORT.as_raw() { heard.why() } else { String::new() };
            Some(format!("signal {signal} ({}){why}", signal_name(signal)))
        }
        (None, Some(0)) => None,
        (None, code) => Some(format!("exit status {}", code.unwrap_or(-1))),
    }
}

/// Starts a child: itself, its standard error, and its standard output line by line.
pub fn start(command: &mut Command) -> Outcome<(Ended, Heard, Receiver<String>)> {
    let program = command.get_program().to_owned();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(|| format!("{} cannot be started", program.display()))?;
    let mut child = Ended(child);
    let heard = Heard::of(child.0.stderr.take());
    let output = child.0.stdout.take().ok_or_else(|| Failure::new("the child has no standard output"))?;
    let (sender, lines) = channel();
    // Ends with the child, and with what it left behind that holds its output open.
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok((child, heard, lines))
}

/// What a child says on its standard error: handed on as it comes, and the last of it kept.
pub struct Heard {
    last: Arc<Mutex<String>>,
    /// Never gets anything; ends with the child, or with what it left behind that holds its output open.
    end: Receiver<()>,
}

/// The longest last words that are told.
const MOST_WORDS: usize = 200;

/// How long the rest of what it said may take to arrive after a child has ended.
const REST: Duration = Duration::from_millis(200);

impl Heard {
    /// Of a child that was started with a pipe for it.
    pub fn of(output: Option<ChildStderr>) -> Heard {
        let (last, (until, end)) = (Arc::<Mutex<String>>::default(), channel());
        let keep = last.clone();
        thread::spawn(move || {
            let _until = until;
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).split(b'\n'));
            for line in lines.map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                eprintln!("{line}");
                if !line.trim().is_empty() {
                    let shown = line.trim().chars().filter(|c| !c.is_control()).take(MOST_WORDS);
                    *keep.lock().unwrap_or_else(PoisonError::into_inner) = shown.collect();
                }
            }
        });
        Heard { last, end }
    }

    /// Waits for what is still on its way of a child that has ended.
    pub fn rest(&self) {
        let _ = self.end.recv_timeout(REST);
    }

    /// Why it ended itself, as far as its last words tell.
    fn why(&self) -> String {
        self.rest();
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.as_str() {
            "" => String::new(),
            // The Rust runtime's words for what comes from another language, and from another copy of itself.
            words if words.contains("foreign exception") => {
                ", because an exception or a panic was let out of a function of the plugin".into()
            }
            words => format!(", having said: {words}"),
        }
    }
}

/// The signals a broken library ends a process with.
fn signal_name(signal: i32) -> &'static str {
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
