//! Programs written for uDAPL over the C library: our examples, built against what `cargo xtask capi` lays out, and
//! Debian's `dapl2-utils` as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::capi;
use crate::leg::{Outcome, Report};
use crate::process::Run;
use crate::{output, root};

/// The name programs open; a world of its own, so that nothing else on this machine is in the way.
const IA: &str = "shm0";

/// How long one program may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// How long a server gets before its client comes. None of the programs says when it is ready.
const HEAD_START: Duration = Duration::from_millis(700);

/// How long a server may take when its client has gone.
const AFTERWARDS: Duration = Duration::from_secs(8);

/// How often a pair is tried: a machine may be too busy for the head start.
const TRIES: usize = 3;

/// Lays out, builds the examples, runs everything and prints the table.
pub fn run() -> Report {
    if !Path::new("/usr/bin/dapltest").exists() {
        return Ok(Outcome::not_run(
            "dapl2-utils is not installed (apt-get install dapl2-utils libdapl-dev)",
        ));
    }
    let field = Field::new(capi::lay_out()?)?;
    field.examples()?;
    let mut failed = Vec::new();
    output::show(&format!("{:<70} {:<8} result", "program", "provider"));
    for case in CASES {
        let result = field.case(case);
        let shown = case.shown();
        let word = match &result {
            Ok(note) if note.is_empty() => "passed".to_owned(),
            Ok(note) => format!("passed, {note}"),
            Err(message) => format!("FAILED: {message}"),
        };
        output::show(&format!("{shown:<70} {IA:<8} {word}"));
        if result.is_err() {
            failed.push(shown);
        }
    }
    match failed.is_empty() {
        true => Ok(Outcome::passed(format!("examples and {} runs of dapl2-utils on {IA}", CASES.len()))),
        false => Err(format!("{} of {}: {}", failed.len(), CASES.len(), failed.join("; "))),
    }
}

/// One run of one program.
struct Case {
    program: &'static str,
    /// Arguments of both sides, or of the one there is.
    arguments: &'static [&'static str],
    kind: Kind,
    /// What must be printed, by each side.
    wanted: &'static [&'static str],
}

enum Kind {
    /// Server and client, told apart by `-h`.
    Pair,
    /// A client of `dapltest -T S`, which is told to quit afterwards.
    Served,
    /// One process.
    Alone,
    /// One process that is told that there is no such thing, and ends in order.
    Refused,
}

/// What none of the programs prints when all is well.
const UNWANTED: [&str; 5] = ["FAILED", "Result: FAIL", "Test Error", "unexpected event", "Segmentation"];

const SRQ_DONE: &[&str] = &["DAPL RC SRQ Test Complete."];

const PASSED: &[&str] = &["DAPL Test Complete. PASSED"];

const CASES: &[Case] = &[
    Case { program: "dtest", arguments: &[], kind: Kind::Pair, wanted: PASSED },
    Case { program: "dtest", arguments: &["-p"], kind: Kind::Pair, wanted: PASSED },
    Case { program: "dtest", arguments: &["-c"], kind: Kind::Pair, wanted: PASSED },
    Case { program: "dtest", arguments: &["-w", "-b", "65536"], kind: Kind::Pair, wanted: PASSED },
    Case { program: "dtest", arguments: &["-W", "-D", "-b", "4096"], kind: Kind::Pair, wanted: PASSED },
    Case { program: "dtest", arguments: &["-t", "-B", "50"], kind: Kind::Pair, wanted: PASSED },
    Case {
        program: "dtestcm",
        arguments: &["-c", "200"],
        kind: Kind::Pair,
        wanted: &["DAPL Connection Test Complete."],
    },
    Case {
        program: "dtestcm",
        arguments: &["-c", "200", "-w"],
        kind: Kind::Pair,
        wanted: &["DAPL Connection Test Complete."],
    },
    Case { program: "dtestsrq", arguments: &[], kind: Kind::Pair, wanted: SRQ_DONE },
    Case { program: "dtestsrq", arguments: &["-c", "5", "-B", "10"], kind: Kind::Pair, wanted: SRQ_DONE },
    Case { program: "dtestx", arguments: &[], kind: Kind::Pair, wanted: &["immed/atomic test PASSED"] },
    Case { program: "dtestx", arguments: &["-u"], kind: Kind::Refused, wanted: &["DAT_MODEL_NOT_SUPPORTED"] },
    served(&["-T", "T", "-i", "100", "-t", "1", "-w", "1", "client", "SR", "256", "server", "SR", "256"]),
    served(&[
        "-T", "T", "-i", "100", "-t", "4", "-w", "8", "-V", "client", "SR", "256", "server", "SR", "256",
    ]),
    served(&[
        "-T", "T", "-i", "100", "-t", "8", "-w", "8", "-P", "client", "SR", "1024", "3", "server", "RW",
        "65536", "2", "server", "SR", "256", "client", "RR", "65536", "server", "SR", "128",
    ]),
    served(&[
        "-T", "T", "-i", "50", "-t", "2", "-w", "4", "-V", "-r", "client", "SR", "256", "server", "SR", "256",
    ]),
    served(&["-T", "P", "-i", "2000", "-p", "64", "-m", "p", "RW", "4096"]),
    served(&["-T", "P", "-i", "2000", "-p", "64", "-m", "b", "RW", "4096", "2"]),
    served(&["-T", "P", "-i", "2000", "-p", "32", "-m", "p", "RR", "4096"]),
    alone(&["-T", "L", "-m", "100"], &["LMRs created: 100", "EPs created: 100", "RSPs created: 100"]),
    alone(&["-T", "F", "-f", "hwconn"], &["case: 3"]),
    alone(&["-T", "F", "-f", "endpoint"], &["case: 2"]),
    alone(&["-T", "F", "-f", "pz"], &["case: 2"]),
    alone(&["-T", "F", "-f", "mem"], &["case: 4"]),
    alone(&["-T", "F", "-f", "queryinfo"], &["case: 17"]),
    alone(&["-T", "F", "-f", "connmgt"], &["case: 1"]),
];

const fn served(arguments: &'static [&'static str]) -> Case {
    Case { program: "dapltest", arguments, kind: Kind::Served, wanted: &["End of Work"] }
}

const fn alone(arguments: &'static [&'static str], wanted: &'static [&'static str]) -> Case {
    Case { program: "dapltest", arguments, kind: Kind::Alone, wanted }
}

impl Case {
    fn shown(&self) -> String {
        let mut shown = self.program.to_owned();
        self.arguments.iter().for_each(|argument| shown.extend([" ", argument]));
        shown.truncate(70);
        shown
    }
}

/// The library laid out, and a place to run programs in.
struct Field {
    library: PathBuf,
    place: tempfile::TempDir,
}

impl Field {
    fn new(library: PathBuf) -> Result<Field, String> {
        let place = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let names = format!(
            "[provider.{IA}]\nlibrary = \"libdat_shm.so\"\nparams = {{ domain = \"xtask-{}\" }}\n",
            std::process::id()
        );
        fs::write(place.path().join("plugins.toml"), names).map_err(|error| error.to_string())?;
        Ok(Field { library, place })
    }

    /// Builds the examples in C and C++ against the layout, and runs them.
    fn examples(&self) -> Result<(), String> {
        let include = format!("-I{}", self.library.join("include").display());
        let lib = format!("-L{}", self.library.join("lib").display());
        let place = self.place.path();
        for (compiler, standard, source, program) in
            [("cc", "-std=c11", "ping.c", "ping"), ("c++", "-std=c++17", "put.cpp", "put")]
        {
            let source = root().join("examples/c").join(source);
            let out = place.join(program);
            Run::new(compiler)
                .args([standard, "-O2", "-Wall", "-Wextra", "-Werror", "-D_DEFAULT_SOURCE", &include])
                .args([source, "-o".into(), out, lib.clone().into(), "-ldat2".into()])
                .run()?;
        }
        let mut put = self.command(&place.join("put"), &[IA]);
        let output = finish(start(&mut put)?)?;
        check("put", &output, &["written and read back"])?;
        let ping = place.join("ping");
        self.pair(|server| {
            let role = if server { "server" } else { "client" };
            self.command(&ping, &[IA, role, "7777", "1000"])
        })
        .and_then(|[server, client]| {
            check("ping server", &server, &["served 1000 messages"])?;
            check("ping client", &client, &["1000 messages came back"])
        })
    }

    fn case(&self, case: &Case) -> Result<String, String> {
        let program = Path::new("/usr/bin").join(case.program);
        match case.kind {
            Kind::Pair => {
                let [server, client] = self.pair(|server| {
                    let mut command = self.command(&program, &["-P", IA]);
                    command.args(case.arguments);
                    if !server {
                        command.args(["-h", "localhost"]);
                    }
                    command
                })?;
                check("server", &server, case.wanted)?;
                check("client", &client, case.wanted)?;
                Ok(String::new())
            }
            Kind::Served => self.served(&program, case),
            Kind::Refused => {
                let mut command = self.command(&program, &["-P", IA]);
                let output = finish(start(command.args(case.arguments))?)?;
                match output.status {
                    Some(1) => check("it", &Output { status: Some(0), ..output }, case.wanted)?,
                    other => return Err(format!("it exited with {other:?}, not with 1")),
                }
                Ok("refused".to_owned())
            }
            Kind::Alone => {
                let mut command = self.command(&program, &[]);
                command.args(&case.arguments[..2]).args(["-D", IA]).args(&case.arguments[2..]);
                let output = finish(start(&mut command)?)?;
                check("it", &output, case.wanted)?;
                Ok(match output.text.matches("Result: PASS").count() {
                    0 => String::new(),
                    count => format!("{count} cases"),
                })
            }
        }
    }

    fn served(&self, program: &Path, case: &Case) -> Result<String, String> {
        let server = start(&mut self.command(program, &["-T", "S", "-D", IA]))?;
        std::thread::sleep(HEAD_START);
        let mut client = self.command(program, &[]);
        client.args(&case.arguments[..2]).args(["-s", "localhost", "-D", IA]).args(&case.arguments[2..]);
        let client = start(&mut client).and_then(finish);
        let quit =
            start(&mut self.command(program, &["-T", "Q", "-s", "localhost", "-D", IA])).and_then(finish);
        let server = finish(server);
        check("client", &client?, case.wanted)?;
        check("quit", &quit?, &[])?;
        check("server", &server?, &[])?;
        Ok(String::new())
    }

    /// Server and client; what both printed. Tried again when the client came too early: some programs exit with 0 even
    /// then, so a server that is left alone counts as the sign of it.
    fn pair(&self, command: impl Fn(bool) -> Command) -> Result<[Output; 2], String> {
        let mut last = Err("not tried".to_owned());
        for _ in 0..TRIES {
            let server = start(&mut command(true))?;
            std::thread::sleep(HEAD_START);
            let client = match start(&mut command(false)).and_then(|client| finish_within(client, DEADLINE)) {
                Ok(client) => client,
                Err(message) => {
                    end(server)?;
                    last = Err(format!("client {message}"));
                    continue;
                }
            };
            match finish_within(server, AFTERWARDS) {
                Ok(server) => {
                    let good = server.status == Some(0) && client.status == Some(0);
                    last = Ok([server, client]);
                    if good {
                        break;
                    }
                }
                Err(message) => last = Err(format!("server {message}")),
            }
        }
        last
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
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
}

/// What a program printed, and its exit status (`None`: a signal).
struct Output {
    status: Option<i32>,
    text: String,
}

fn check(who: &str, output: &Output, wanted: &[&str]) -> Result<(), String> {
    let tail = || {
        output
            .text
            .lines()
            .rev()
            .take(3)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join(" / ")
    };
    if output.status != Some(0) {
        return Err(format!("{who} exited with {:?}: {}", output.status, tail()));
    }
    if let Some(unwanted) = UNWANTED.iter().find(|text| output.text.contains(**text)) {
        let line = output.text.lines().find(|line| line.contains(unwanted)).unwrap_or_default();
        return Err(format!("{who} says {line:?}"));
    }
    match wanted.iter().find(|text| !output.text.contains(**text)) {
        Some(missing) => Err(format!("{who} does not say {missing:?}: {}", tail())),
        None => Ok(()),
    }
}

/// A program under way: its output goes to a file, so that nobody has to read along.
struct Started {
    child: Child,
    file: tempfile::NamedTempFile,
}

fn start(command: &mut Command) -> Result<Started, String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| format!("no temporary file: {error}"))?;
    let shown = format!("{command:?}");
    let child = command
        .stdin(Stdio::null())
        .stdout(append(&file)?)
        .stderr(append(&file)?)
        .spawn()
        .map_err(|error| format!("cannot start {shown}: {error}"));
    Ok(Started { child: child?, file })
}

/// Both streams append to one file, so that neither writes over the other.
fn append(file: &tempfile::NamedTempFile) -> Result<Stdio, String> {
    let opened = fs::OpenOptions::new().append(true).open(file.path());
    opened.map(Stdio::from).map_err(|error| format!("a temporary file: {error}"))
}

/// Waits for its end.
fn finish(started: Started) -> Result<Output, String> {
    finish_within(started, DEADLINE)
}

fn finish_within(mut started: Started, deadline: Duration) -> Result<Output, String> {
    let begin = Instant::now();
    loop {
        match started.child.try_wait() {
            Ok(Some(_)) => return output(started),
            Ok(None) if begin.elapsed() < deadline => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                let output = end(started)?;
                let last = output.text.lines().last().unwrap_or_default().to_owned();
                return Err(format!("not finished after {} s; it last said {last:?}", deadline.as_secs()));
            }
            Err(error) => return Err(format!("waiting failed: {error}")),
        }
    }
}

/// Ends it.
fn end(mut started: Started) -> Result<Output, String> {
    let _ = started.child.kill();
    output(started)
}

fn output(mut started: Started) -> Result<Output, String> {
    let status = started.child.wait().map_err(|error| format!("waiting failed: {error}"))?.code();
    let bytes = fs::read(started.file.path()).map_err(|error| format!("reading its output: {error}"))?;
    Ok(Output { status, text: String::from_utf8_lossy(&bytes).into_owned() })
}
