//! Child processes that load a plugin, and may crash.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::failure::{Context as _, Failure, Outcome};

/// How a child ended, unless it succeeded. For an abort also its last message.
pub fn crash(status: ExitStatus, errors: &ErrorOutput) -> Option<String> {
    match (status.signal(), status.code()) {
        (Some(signal), _) => {
            let why = if signal == Signal::ABORT.as_raw() { errors.why() } else { String::new() };
            Some(format!("signal {signal} ({}){why}", signal_name(signal)))
        }
        (None, Some(0)) => None,
        (None, code) => Some(format!("exit status {}", code.unwrap_or(-1))),
    }
}

/// Starts a child. Returns the child, its standard error, and the lines of its standard output.
pub fn start(command: &mut Command) -> Outcome<(ChildGuard, ErrorOutput, Receiver<String>)> {
    let program = command.get_program().to_owned();
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(|| format!("{} cannot be started", program.display()))?;
    let mut child = ChildGuard(child);
    let errors = ErrorOutput::of(child.0.stderr.take());
    let output = child.0.stdout.take().ok_or_else(|| Failure::new("the child has no standard output"))?;
    let (sender, lines) = channel();
    // The thread ends when all holders of the child's output have ended.
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok((child, errors, lines))
}

/// A child's standard error: forwarded at once, with the last line kept.
pub struct ErrorOutput {
    last: Arc<Mutex<String>>,
    /// Never receives a value. It closes when all holders of the child's output have ended.
    end: Receiver<()>,
}

/// Maximum length of a child's last message.
const MOST_WORDS: usize = 200;

/// Time limit for the rest of a child's output after its end.
const REST: Duration = Duration::from_millis(200);

impl ErrorOutput {
    /// Reads the standard error of a child that was started with a pipe.
    pub fn of(output: Option<ChildStderr>) -> ErrorOutput {
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
        ErrorOutput { last, end }
    }

    /// Waits for the remaining output of an ended child.
    pub fn rest(&self) {
        let _ = self.end.recv_timeout(REST);
    }

    /// Why the child ended itself, by its last line.
    fn why(&self) -> String {
        self.rest();
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.as_str() {
            "" => String::new(),
            // The Rust runtime's message for a foreign exception, also from another copy of the runtime.
            words if words.contains("foreign exception") => {
                ", because an exception or a panic left a function of the plugin".into()
            }
            words => format!("; its last message: {words}"),
        }
    }
}

/// Signals that broken libraries cause.
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

/// A child process that is killed when this is dropped.
pub struct ChildGuard(pub Child);

impl ChildGuard {
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

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
