//! Runs the real `dat` with deadlines.
#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longer than anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

const BINARY: &str = env!("CARGO_BIN_EXE_dat");

/// What a command did.
pub struct Done {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Done {
    pub fn code(&self) -> i32 {
        self.status.code().expect("it ended by itself")
    }

    /// The one document on standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error} in:\n{}\n{}", self.out, self.err))
    }

    pub fn ok(self) -> Done {
        assert_eq!(self.status.code(), Some(0), "out:\n{}\nerr:\n{}", self.out, self.err);
        self
    }

    pub fn failed(self) -> Done {
        assert_eq!(self.status.code(), Some(1), "out:\n{}\nerr:\n{}", self.out, self.err);
        self
    }
}

/// A running command; killed when dropped.
pub struct Running {
    pub child: Child,
    lines: mpsc::Receiver<String>,
    err: Option<thread::JoinHandle<String>>,
}

/// Starts `dat` without this machine's configuration: with the built-in default and the plugins of this build.
pub fn start(arguments: &[&str]) -> Running {
    start_with(arguments, &[])
}

/// The same with more in its environment.
pub fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Running {
    run(Command::new(BINARY).args(arguments).envs(environment.iter().copied()))
}

/// Runs it to its end under a limit, as `ulimit` of the shell takes it.
pub fn limited(limit: &str, arguments: &[&str]) -> Done {
    let line = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    run(Command::new("sh").args(["-c", &line, BINARY]).args(arguments)).end()
}

fn run(command: &mut Command) -> Running {
    let folder = std::path::Path::new(BINARY).parent().expect("a folder");
    let path = std::env::join_paths([folder.to_owned(), folder.join("deps")]).expect("no colon in it");
    let mut child = command
        .env("DAT_PLUGIN_PATH", path)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env_remove("DAT_PLUGINS")
        .env_remove("RUST_LOG")
        // Help is broken into lines of this width.
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dat starts");
    let (out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let err = thread::spawn(move || {
        let mut text = String::new();
        let _ = err.read_to_string(&mut text);
        text
    });
    Running { child, lines, err: Some(err) }
}

/// Runs it to its end.
pub fn dat(arguments: &[&str]) -> Done {
    start(arguments).end()
}

impl Running {
    /// The next line of standard output.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line")
    }

    /// Waits for the end.
    pub fn end(mut self) -> Done {
        let deadline = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it did not end");
            thread::sleep(Duration::from_millis(2));
        };
        let out: Vec<String> = self.lines.iter().collect();
        let err = self.err.take().expect("joined once").join().expect("it does not panic");
        Done { status, out: out.join("\n"), err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
