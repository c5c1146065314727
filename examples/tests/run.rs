//! Each example runs as documented, and prints the documented output.
#![forbid(unsafe_code)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of an example, also on a slow machine.
const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn first() {
    let said = run("first", &[]);
    assert!(said.contains("received \"hello\""), "{said}");
}

#[test]
fn tutorial_server_and_client() {
    let port = (40_000 + std::process::id() % 20_000).to_string();
    let mut server = Running::start("tutorial_server", &["shm0", &port]);
    server.wait_for("listening on");
    let said = run("tutorial_client", &["shm0", &port, "one", "two", "three"]);
    assert!(said.contains("the server has 3 messages"), "{said}");
    let said = server.finish();
    for line in ["message: one", "message: two", "message: three", "connection: Disconnected"] {
        assert!(said.contains(line), "{line} is missing:\n{said}");
    }
}

#[test]
fn hello_send() {
    for arguments in [&["shm0"][..], &["shm0", "threads"], &["loopback0", "threads"]] {
        let said = run("hello_send", arguments);
        assert!(said.contains("server: received \"hello through shared memory"), "{said}");
        assert!(said.contains("the server answered \"welcome\""), "{said}");
    }
}

#[test]
fn rdma_write() {
    for arguments in [&["shm0"][..], &["shm0", "threads"], &["loopback0", "threads"]] {
        let said = run("rdma_write", arguments);
        assert!(said.contains("a client wrote \"written without the server's help\""), "{said}");
    }
}

#[test]
fn rdma_read() {
    for arguments in [&["shm0"][..], &["shm0", "threads"], &["loopback0", "threads"]] {
        let said = run("rdma_read", arguments);
        assert!(said.contains("client: read \"read without the server's help\""), "{said}");
    }
}

#[test]
fn echo_server_and_clients() {
    const CLIENTS: usize = 4;
    let port = (20_000 + std::process::id()).to_string();
    let mut server = Running::start("echo_server", &["shm0", &port, &CLIENTS.to_string()]);
    server.wait_for("listening on");
    let clients: Vec<Running> =
        (0..CLIENTS).map(|_| Running::start("echo_client", &["shm0", &port, "500"])).collect();
    for client in clients {
        let said = client.finish();
        assert!(said.contains("500 messages of 64 bytes came back"), "{said}");
    }
    let said = server.finish();
    assert!(said.contains("4 clients, 2000 messages"), "{said}");
}

#[test]
fn async_tokio() {
    for name in ["shm0", "loopback0"] {
        let said = run("async_tokio", &[name]);
        assert!(said.contains("client: 100 messages sent"), "{said}");
        assert!(said.contains("server: Disconnected after 100 messages"), "{said}");
    }
}

#[test]
fn choose_provider() {
    for name in ["shm0", "loopback0"] {
        let said = run("choose_provider", &[name]);
        assert!(said.contains("libdat_of_a_fabric_this_machine_lacks.so"), "{said}");
        assert!(said.contains(&format!("fastest opened {name}:")), "{said}");
        assert!(said.lines().any(|line| line.contains("fabric0") && line.contains("failed")), "{said}");
    }
}

#[test]
fn an_unknown_name_and_an_unknown_role_are_reported() {
    let output = command("hello_send", &["shmO"]).output().expect("the example starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("shmO") && said.contains("shm0"), "{said}");
    let output = command("hello_send", &["shm0", "sever"]).output().expect("the example starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("sever: the role is"), "{said}");
}

fn run(example: &str, arguments: &[&str]) -> String {
    Running::start(example, arguments).finish()
}

/// A started example; killed when dropped.
struct Running {
    title: String,
    child: Child,
    said: String,
    started: Instant,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Running {
    fn start(example: &str, arguments: &[&str]) -> Running {
        let mut child = command(example, arguments).spawn().expect("the example starts");
        let (send, lines) = std::sync::mpsc::channel();
        let outputs: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("piped")), Box::new(child.stderr.take().expect("piped"))];
        for output in outputs {
            let send = send.clone();
            thread::spawn(move || {
                use std::io::BufRead;
                for line in std::io::BufReader::new(output).lines().map_while(Result::ok) {
                    // Fails after the test has failed, which is fine.
                    let _ = send.send(line);
                }
            });
        }
        let title = format!("{example} {}", arguments.join(" "));
        Running { title, child, said: String::new(), started: Instant::now(), lines }
    }

    /// Takes lines until one contains `text`, or until all outputs are closed. Returns whether it was found.
    fn read_until(&mut self, text: Option<&str>) -> bool {
        loop {
            let left = DEADLINE.saturating_sub(self.started.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.said += &line;
                    self.said.push('\n');
                    if text.is_some_and(|text| line.contains(text)) {
                        return true;
                    }
                }
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return false,
                Err(_) => panic!("{}: not done after {DEADLINE:?}; so far:\n{}", self.title, self.said),
            }
        }
    }

    fn wait_for(&mut self, text: &str) {
        assert!(self.read_until(Some(text)), "{}: never said {text:?}:\n{}", self.title, self.said);
    }

    fn finish(mut self) -> String {
        self.read_until(None);
        let status = self.child.wait().expect("it can be waited for");
        assert!(status.success(), "{}: {status}:\n{}", self.title, self.said);
        std::mem::take(&mut self.said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(example: &str, arguments: &[&str]) -> Command {
    // This test is target/PROFILE/deps/run-HASH. Cargo puts examples beside `deps`, and the plugins this crate depends
    // on into it.
    let deps = folder(&std::env::current_exe().expect("this test has a path"));
    let program = folder(&deps).join("examples").join(example);
    assert!(program.exists(), "{} is missing; run `cargo test -p dat-examples`", program.display());
    for plugin in ["libdat_shm.so", "libdat_loopback.so"] {
        assert!(deps.join(plugin).exists(), "{plugin} is missing in {}", deps.display());
    }
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("DAT_PLUGIN_PATH", deps).env_remove("DAT_PLUGINS").env("XDG_CONFIG_HOME", "/nonexistent");
    command
}

fn folder(path: &Path) -> PathBuf {
    path.parent().expect("a folder").to_owned()
}
