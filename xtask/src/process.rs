//! Running other programs. Each command is shown and has a deadline. At the deadline it is killed with all its
//! descendants.

use fs_err as fs;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::output;
use crate::report::Result;
use crate::root::root;

/// How long to wait for a pipe that is still open after its program has ended.
const AFTER_ITS_END: Duration = Duration::from_secs(2);

/// Variables that would change what programs load or print, or where and how cargo builds. `RUSTFLAGS` stays: some
/// machines need it to build at all.
const FOREIGN: [&str; 8] = [
    "DAT_PLUGINS",
    "DAT_PLUGIN_PATH",
    "DAT_OVERRIDE",
    "DAT_LOG",
    "RUST_LOG",
    "RUST_TEST_NOCAPTURE",
    "CARGO_BUILD_TARGET",
    // It has precedence over RUSTFLAGS, which some legs set.
    "CARGO_ENCODED_RUSTFLAGS",
];

/// A program to run in the workspace's root.
pub struct Run {
    command: Command,
    shown: String,
    deadline: Duration,
}

impl Run {
    /// `program` without arguments, with a deadline of ten minutes. The user's settings for other programs are removed.
    pub fn new(program: &str) -> Run {
        let mut command = Command::new(program);
        command.current_dir(root()).stdin(Stdio::null());
        for variable in FOREIGN {
            command.env_remove(variable);
        }
        command.env("XDG_CONFIG_HOME", "/nonexistent").env("CARGO_TERM_COLOR", "never");
        let name = Path::new(program).file_name().unwrap_or(OsStr::new(program));
        Run { command, shown: name.to_string_lossy().into_owned(), deadline: Duration::from_secs(600) }
    }

    /// The same in its own network namespace, where TCP is not paced. Without namespaces it runs as it is.
    pub fn unpaced(program: &str) -> Run {
        let script = root().join("tests/network/unpaced.sh").to_string_lossy().into_owned();
        match Run::new(&script).args(["true"]).works() {
            true => Run::new(&script).args([program]),
            false => Run::new(program),
        }
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Run {
        for argument in arguments {
            self.shown.push(' ');
            self.shown.push_str(&argument.as_ref().to_string_lossy());
            self.command.arg(argument);
        }
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Run {
        self.shown = format!("{key}={:?} {}", value.as_ref().to_string_lossy(), self.shown);
        self.command.env(key, value);
        self
    }

    /// Removes an environment variable.
    pub fn without_env(mut self, key: &str) -> Run {
        self.command.env_remove(key);
        self
    }

    /// Sets the deadline.
    pub fn deadline(mut self, seconds: u64) -> Run {
        self.deadline = Duration::from_secs(seconds);
        self
    }

    /// Runs it, its output shown as it comes. Fails unless it succeeds.
    pub fn run(self) -> Result<()> {
        self.lines(|_| {})
    }

    /// The same, with each line of its standard output handed to `look` as well.
    pub fn lines(self, mut look: impl FnMut(&str)) -> Result<()> {
        self.show();
        self.each(|is_stdout, line| {
            if is_stdout {
                output::stdout_line(line);
                look(line);
            } else {
                output::stderr_line(line);
            }
        })
    }

    /// Runs it silently. Gives what it printed on both streams, in the order of arrival, and how it ended: what a
    /// program printed before its deadline shows where it stopped.
    pub fn transcript(self) -> (String, Result<()>) {
        let mut text = String::new();
        let ended = self.each(|_, line| add(&mut text, line));
        (text, ended)
    }

    /// Runs it silently and returns its standard output. Fails unless it succeeds; the message has its error output.
    pub fn output(self) -> Result {
        let (mut text, mut complaint) = (String::new(), String::new());
        match self.each(|is_stdout, line| add(if is_stdout { &mut text } else { &mut complaint }, line)) {
            Ok(()) => Ok(text),
            Err(stop) => fail!("{}\n{}", stop.words(), complaint.trim_end()),
        }
    }

    /// Runs it, its error output shown as it comes, and returns its standard output.
    pub fn output_shown(self) -> Result {
        let mut text = String::new();
        self.show();
        self.each(|is_stdout, line| match is_stdout {
            true => add(&mut text, line),
            false => output::stderr_line(line),
        })?;
        Ok(text)
    }

    /// Whether it can be started and succeeds.
    pub fn works(self) -> bool {
        self.output().is_ok()
    }

    fn show(&self) {
        output::stdout_line(&format!("$ {}", self.shown));
    }

    /// Runs it and hands on each line, and whether it is one of its standard output.
    fn each(mut self, mut take: impl FnMut(bool, &str)) -> Result<()> {
        let shown = self.shown;
        let started = self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| format!("cannot start `{shown}`: {error}"))?;
        let (sender, printed) = mpsc::channel();
        forward(child.stdout.take(), true, sender.clone());
        forward(child.stderr.take(), false, sender);
        let start = Instant::now();
        let status = loop {
            match printed.recv_timeout(Duration::from_millis(20)) {
                Ok((is_stdout, line)) => take(is_stdout, &line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_millis(1)),
            }
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if start.elapsed() >= self.deadline {
                kill_tree(child.id());
                let _ = child.wait();
                break None;
            }
        };
        // A process it left behind may hold the pipes open, so the wait for the rest is short.
        while let Ok((is_stdout, line)) = printed.recv_timeout(AFTER_ITS_END) {
            take(is_stdout, &line);
        }
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => fail!("`{shown}`: {status}"),
            None => fail!("`{shown}`: not finished after {} s; ended", self.deadline.as_secs()),
        }
    }
}

fn add(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Sends each line a program prints.
fn forward(source: Option<impl Read + Send + 'static>, is_stdout: bool, to: Sender<(bool, String)>) {
    thread::spawn(move || {
        let lines = source.into_iter().flat_map(|source| BufReader::new(source).split(b'\n'));
        for line in lines.map_while(Result::ok) {
            if to.send((is_stdout, String::from_utf8_lossy(&line).into_owned())).is_err() {
                return;
            }
        }
    });
}

/// Kills a process and all its descendants, parents first so that none starts another.
fn kill_tree(id: u32) {
    let children = children_of(id);
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // A process that has already ended is fine.
        let _ = kill_process(pid, Signal::KILL);
    }
    children.into_iter().for_each(kill_tree);
}

fn children_of(id: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>())
        .collect()
}
