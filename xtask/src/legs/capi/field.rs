//! Running the programs of one column: a folder with `plugins.toml`, the library in front, one case after the other.

use crate::report::{Result, Stop};
use fs_err as fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::cases::{Case, Column, Kind, Need, Ready};
use super::process::{Output, Started};

/// How long one program may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long a server may take until it is ready.
const GETTING_READY: Duration = Duration::from_secs(10);

/// Wait after a server reports that it is ready: some programs report it too early.
const GRACE: Duration = Duration::from_millis(30);

/// How long a server may take when its client has gone.
const AFTERWARDS: Duration = Duration::from_secs(8);

/// Where `dtest` and its kin exchange addresses.
const MEETING_PORT: u16 = 15828;

/// What none of the programs prints when all is well.
const UNWANTED: [&str; 5] = ["FAILED", "Result: FAIL", "Test Error", "unexpected event", "Segmentation"];

/// What the programs print when the provider refuses a feature.
const REFUSAL: &str = "DAT_MODEL_NOT_SUPPORTED";

/// How a run ended that did not fail.
pub enum Passed {
    /// It did what it does; with a remark, or an empty one.
    Done(String),
    /// The provider refused it, and the program ended in order.
    Refused(Need),
}

/// The library laid out, and a place to run programs in.
pub struct Field<'a> {
    library: PathBuf,
    place: tempfile::TempDir,
    column: &'a Column,
    /// Of the server, for clients.
    host: String,
    /// How much slower than hardware it is.
    scale: u32,
}

impl Field<'_> {
    pub fn new<'a>(library: &Path, column: &'a Column, device: Device) -> Result<Field<'a>> {
        let place = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let params = [column.params, &device.params]
            .iter()
            .filter(|text| !text.is_empty())
            .copied()
            .collect::<Vec<_>>();
        let names = format!(
            "[provider.{}]\nlibrary = \"{}\"\nparams = {{ {} }}\n",
            column.ia,
            column.library,
            params.join(", ")
        );
        fs::write(place.path().join("plugins.toml"), names)?;
        let host = if column.host.is_empty() { device.host } else { column.host.to_owned() };
        Ok(Field { library: library.to_owned(), place, column, host, scale: device.scale })
    }

    fn program(&self, case: &Case) -> PathBuf {
        match case.kind {
            Kind::Own => own(&self.library, case.program),
            _ => Path::new("/usr/bin").join(case.program),
        }
    }

    /// Runs one case.
    pub fn run(&self, case: &Case) -> Result<Passed> {
        let program = self.program(case);
        if !program.exists() {
            return Err(Stop::not_run("dapl2-utils is not installed"));
        }
        if let Some(need) = self.column.lacks(case.needs) {
            let mut command = match case.kind {
                Kind::Alone => self.alone(&program, case),
                Kind::Own => self.command(&program, &[self.column.ia]),
                _ => self.command(&program, &["-P", self.column.ia]),
            };
            if matches!(case.kind, Kind::Pair(_)) {
                command.args(case.words());
            }
            let output = self.start(&mut command)?.finish(self.deadline())?;
            return match output.status {
                Some(_) if output.text.contains(REFUSAL) => Ok(Passed::Refused(need)),
                status => Err(format!(
                    "without {need:?} it was to say {REFUSAL}; it exited with {status:?}: {}",
                    output.tail()
                )
                .into()),
            };
        }
        match case.kind {
            Kind::Pair(ready) => {
                let (tries, outputs) = self.pair(ready, case.tries, case.wanted, |server| {
                    let mut command = self.command(&program, &["-P", self.column.ia]);
                    command.args(case.words());
                    if !server {
                        command.args(["-h", &self.host]);
                    }
                    command
                });
                let [server, client] = outputs?;
                check("server", &server, case.wanted)?;
                check("client", &client, case.wanted)?;
                Ok(Passed::Done(if tries == 1 { String::new() } else { format!("at try {tries}") }))
            }
            Kind::Own => {
                let output = self.start(&mut self.command(&program, &[self.column.ia]))?;
                check("it", &output.finish(self.deadline())?, case.wanted)?;
                Ok(Passed::Done(String::new()))
            }
            Kind::Served => self.served(&program, case).map(|()| Passed::Done(String::new())),
            Kind::Alone => {
                let output = self.start(&mut self.alone(&program, case))?.finish(self.deadline())?;
                check("it", &output, case.wanted)?;
                Ok(Passed::Done(match output.text.matches("Result: PASS").count() {
                    0 => String::new(),
                    count => format!("{count} cases"),
                }))
            }
        }
    }

    fn alone(&self, program: &Path, case: &Case) -> Command {
        let mut command = self.command(program, &[]);
        command.args(&case.words()[..2]).args(["-D", self.column.ia]).args(&case.words()[2..]);
        command
    }

    fn served(&self, program: &Path, case: &Case) -> Result<()> {
        let ia = self.column.ia;
        let server = self.start(&mut self.command(program, &["-T", "S", "-D", ia]))?;
        self.await_ready(&server, Ready::Says("Service Point Ready"));
        let mut client = self.command(program, &[]);
        client.args(&case.words()[..2]).args(["-s", &self.host, "-D", ia]).args(&case.words()[2..]);
        let client = self.start(&mut client).and_then(|client| client.finish(self.deadline()));
        let quit = self.start(&mut self.command(program, &["-T", "Q", "-s", &self.host, "-D", ia]));
        let quit = quit.and_then(|quit| quit.finish(self.deadline()));
        let server = server.finish(AFTERWARDS * self.scale);
        check("client", &client?, case.wanted)?;
        check("server", &server?, &[])?;
        check("quit", &quit?, &[])
    }

    /// Server and client: how often they were tried, and what both printed.
    pub fn pair(
        &self,
        ready: Ready,
        tries: usize,
        wanted: &[&str],
        command: impl Fn(bool) -> Command,
    ) -> (usize, Result<[Output; 2]>) {
        let mut tried = 1;
        loop {
            let outcome = self.pair_once(ready, wanted, &command);
            if outcome.is_ok() || tried >= tries {
                return (tried, outcome);
            }
            tried += 1;
        }
    }

    fn pair_once(
        &self,
        ready: Ready,
        wanted: &[&str],
        command: &impl Fn(bool) -> Command,
    ) -> Result<[Output; 2]> {
        let server = self.start(&mut command(true))?;
        self.await_ready(&server, ready);
        let client = self.start(&mut command(false)).and_then(|client| client.finish(self.deadline()));
        let client = client.and_then(|client| check("client", &client, wanted).map(|()| client));
        // A client that failed leaves its server waiting; that need not be waited for.
        let patience = if client.is_ok() { AFTERWARDS } else { AFTERWARDS / 8 };
        let server = server.finish(patience * self.scale);
        match client {
            Ok(client) => Ok([server.map_err(|stop| stop.of("server"))?, client]),
            Err(stop) => {
                let said = server.map_or_else(Stop::words, |server| server.tail());
                fail!("{}; server: {said}", stop.words())
            }
        }
    }

    fn await_ready(&self, server: &Started, ready: Ready) {
        let start = Instant::now();
        while start.elapsed() < GETTING_READY * self.scale {
            let is = match ready {
                Ready::Port => listens(MEETING_PORT),
                Ready::Says(text) => server.said().contains(text),
            };
            if is {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(GRACE * self.scale);
    }

    fn deadline(&self) -> Duration {
        DEADLINE * self.scale
    }

    fn start(&self, command: &mut Command) -> Result<Started> {
        Started::new(command)
    }

    pub fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.place.path())
            .env("LD_LIBRARY_PATH", self.library.join("lib"))
            .env("DAT_PLUGINS", self.place.path().join("plugins.toml"))
            .current_dir(self.place.path());
        command
    }

    /// The folder programs run in.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// The name they open.
    pub fn ia(&self) -> &str {
        self.column.ia
    }
}

/// Where a C test of this project's is built, in the layout.
pub fn own(library: &Path, program: &str) -> PathBuf {
    library.join("tests").join(program)
}

/// What of a column is known only where it runs.
pub struct Device {
    /// Parameters of `plugins.toml`.
    pub params: String,
    /// Its address.
    pub host: String,
    pub scale: u32,
}

impl Device {
    /// For providers that need none. Shared memory gets a world of its own, so that nothing else on this machine is in
    /// the way.
    pub fn software(column: &Column) -> Device {
        let params = match column.library {
            "libdat_shm.so" => format!("domain = \"programs-{}\"", std::process::id()),
            _ => String::new(),
        };
        Device { params, host: String::new(), scale: 1 }
    }
}

/// Whether this is what a program prints and how it ends when all is well.
pub fn check(who: &str, output: &Output, wanted: &[&str]) -> Result<()> {
    if output.status != Some(0) {
        fail!("{who} exited with {:?}: {}", output.status, output.tail());
    }
    if let Some(unwanted) = UNWANTED.iter().find(|text| output.text.contains(**text)) {
        let line = output.text.lines().find(|line| line.contains(unwanted)).unwrap_or_default();
        fail!("{who} says {line:?}");
    }
    match wanted.iter().find(|text| !output.text.contains(**text)) {
        Some(missing) => Err(format!("{who} does not say {missing:?}: {}", output.tail()).into()),
        None => Ok(()),
    }
}

/// Whether a process listens on this TCP port, in this network name space.
fn listens(port: u16) -> bool {
    const LISTEN: &str = "0A";
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().and_then(|address| address.rsplit(':').next());
        let state = words.nth(1);
        state == Some(LISTEN) && local.and_then(|hex| u16::from_str_radix(hex, 16).ok()) == Some(port)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        assert!(listens(port));
        drop(listener);
        assert!(!listens(port));
    }

    #[test]
    fn what_a_program_says_counts_besides_its_status() {
        let output = |status, text: &str| Output { status, text: text.to_owned() };
        assert!(check("it", &output(Some(0), "all PASSED\n"), &["PASSED"]).is_ok());
        assert!(check("it", &output(Some(0), "all\n"), &["PASSED"]).is_err());
        assert!(check("it", &output(Some(0), "PASSED\nTest Error: x\n"), &["PASSED"]).is_err());
        assert!(check("it", &output(None, "PASSED\n"), &["PASSED"]).is_err());
    }
}
