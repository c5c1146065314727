//! `cargo xtask demo`: from a fresh checkout to two processes that exchange messages by a provider's name.

use crate::cargo::{cargo, target_dir};
use crate::legs::{preconditions, setup};
use crate::process::Run;
use crate::report::Report;

/// What is shown, in order: a sentence and the arguments of `dat`.
const STEPS: [(&str, &[&str]); 4] = [
    ("Which providers are there, and can they be used here?", &["providers"]),
    ("How is the name shm0 resolved?", &["explain", "shm0"]),
    (
        "Two processes connect by the name shm0; a message, a one-sided write and a read are verified byte by byte.",
        &["ping", "shm0"],
    ),
    ("The same two processes, measured.", &["perf", "shm0", "--quick"]),
];

/// Builds and shows.
pub fn run() -> Report {
    setup::to_build()?;
    preconditions::is_trusted()?;
    println!("\nBuilding the command `dat` and the plugin libdat_shm.so.");
    cargo().args(["build", "--release", "-p", "dat-cli", "-p", "dat-shm", "-p", "dat-loopback"]).run()?;
    let dat = target_dir()?.join("release/dat");
    for (sentence, arguments) in STEPS {
        println!("\n{sentence}");
        Run::new(&dat.to_string_lossy()).args(arguments).deadline(300).run()?;
    }
    Ok("two processes connected by name, exchanged messages, wrote and read each other's memory".into())
}
