//! The project's own commands: `cargo xtask`, without arguments for the list.
#![forbid(unsafe_code)]

/// Prints a line. The standard library's macro panics when the pipe is closed, as in `cargo xtask demo | head`.
macro_rules! println {
    ($($what:tt)*) => {
        $crate::output::print(format_args!($($what)*))
    };
}

mod bench;
mod capi;
mod cargo;
mod demo;
mod deps;
mod docs;
mod leg;
mod legs;
mod libtest;
mod markdown;
mod new_provider;
mod output;
mod process;
mod root;
mod suite;
mod vm;

use std::process::ExitCode;

use leg::{Outcome, Report};

/// A command: its name, its options, what it does, and the function that does it.
struct Command {
    name: &'static str,
    options: &'static [&'static str],
    about: &'static str,
    run: fn(&[String]) -> Report,
}

/// The options of a command that takes any arguments.
const ANY: &[&str] = &["COMMAND..."];

const COMMANDS: [Command; 28] = [
    Command {
        name: "demo",
        options: &[],
        about: "build, list providers, connect two processes by name, verify bytes, measure",
        run: |_| demo::run(),
    },
    Command {
        name: "test",
        options: &["--quick", "--all", "--verbose", "--list"],
        about: "all of CI; --quick: without the legs that take minutes; --all: also those that build tools; --verbose: all output; \
                --list: names. DAT_NO_INSTALL=1 installs nothing",
        run: suite::run,
    },
    Command {
        name: "docs",
        options: &[],
        about: "write what is printed from code: docs/, man pages, completions",
        run: |_| docs::run(),
    },
    Command {
        name: "new-provider",
        options: &["NAME", "PATH"],
        about: "write a provider's crate of its own: the loopback provider under a new name",
        run: new_provider::run,
    },
    Command {
        name: "authors",
        options: &[],
        about: "from nothing to a conforming provider, with the template in Rust and the example in C",
        run: |_| both(legs::authors::template(), legs::authors::provider_c()),
    },
    Command {
        name: "frozen",
        options: &["--keep"],
        about: "load the frozen plugins of released versions; --keep freezes those of this version, at a release",
        run: |options| legs::evolution::frozen(has(options, "--keep")),
    },
    Command {
        name: "faults",
        options: &[],
        about: "the clauses of the specification over our providers with faults injected (ibverbs: `rdma`)",
        run: |_| both(legs::faults::run(), legs::faults::over_libfabric()),
    },
    Command {
        name: "deps",
        options: &["[CRATE]"],
        about: "check which crate depends on which, and that no modules of a crate need each other; CRATE (or '*'): show its circles",
        run: deps::run,
    },
    Command {
        name: "capi",
        options: &["--programs", "--rdma", "--save"],
        about: "lay out the C library: target/capi/{lib,include}; --programs runs uDAPL programs over it, --rdma on an RDMA \
                device; --save puts the table of the results there are into docs/",
        run: |options| match options.first().map(String::as_str) {
            Some("--programs") => legs::capi::run(),
            Some("--rdma") => legs::capi::rdma(),
            Some(_) => legs::capi::save(),
            None => capi::run(),
        },
    },
    Command {
        name: "capi-column",
        options: &["COLUMN", "LIBRARY", "REPORTS"],
        about: "one column of the table of uDAPL programs, in this process: what capi --programs starts",
        run: legs::capi::column,
    },
    Command {
        name: "conformance",
        options: &["--save"],
        about: "the clauses of the specification over every provider, and the matrix; --save into docs/",
        run: |options| legs::conformance::run(has(options, "--save")),
    },
    Command {
        name: "matrix",
        options: &["--save"],
        about: "the matrix of the reports there are; --save into docs/ and README.md",
        run: |options| legs::matrix::run(has(options, "--save")),
    },
    Command {
        name: "miri",
        options: &[],
        about: "undefined behaviour: types, engine over loopback, loopback, the shm ring (nightly)",
        run: |_| legs::miri::run(),
    },
    Command {
        name: "loom",
        options: &[],
        about: "interleavings of the shm ring's small cases",
        run: |_| legs::loom::run(),
    },
    Command {
        name: "tsan",
        options: &[],
        about: "data races: engine and loopback under ThreadSanitizer (nightly)",
        run: |_| legs::sanitizers::thread(),
    },
    Command {
        name: "asan",
        options: &[],
        about: "memory errors: lock, kit, engine, loopback and shm under AddressSanitizer (nightly)",
        run: |_| legs::sanitizers::address(),
    },
    Command {
        name: "fuzz",
        options: &["[TARGET]", "--seconds", "N", "--keep"],
        about: "coverage-guided fuzzing of what comes from outside, each target for 4 seconds, or TARGET for N (nightly); --keep \
                renews the corpora in the tree",
        run: legs::fuzz::run,
    },
    Command {
        name: "deny",
        options: &["--install"],
        about: "licences, sources, versions and advisories of dependencies (cargo-deny); --install builds cargo-deny first",
        run: |options| {
            if has(options, "--install") {
                legs::deny::install()?;
            }
            both(legs::deny::dependencies(), legs::deny::advisories())
        },
    },
    Command {
        name: "bench",
        options: &["--quick", "--save", "--vm", "--tables"],
        about: "ours beside UCX, libfabric and, with --vm, perftest; --save into docs/, --tables of what is saved",
        run: |options| {
            bench::run(bench::Options {
                quick: has(options, "--quick"),
                save: has(options, "--save"),
                vm: has(options, "--vm"),
                tables: has(options, "--tables"),
            })
        },
    },
    Command {
        name: "instructions",
        options: &["--save"],
        about: "instructions of post, poll and dequeue (valgrind) against those kept; --save keeps new ones",
        run: |options| legs::instructions::run(has(options, "--save")),
    },
    Command {
        name: "libfabric",
        options: &["--bench"],
        about: "the clauses over the libfabric provider; --bench: its speed beside fi_pingpong's",
        run: |options| match has(options, "--bench") {
            true => legs::libfabric_speed::run(),
            false => legs::libfabric::run(),
        },
    },
    Command {
        name: "mpi",
        options: &["--rdma", "--speed", "--save"],
        about: "Intel MPI over the C library, each byte verified; --rdma on an RDMA device; --speed prints its latency and \
                bandwidth, with --save into docs/",
        run: |options| match (has(options, "--rdma"), has(options, "--speed")) {
            (true, _) => legs::mpi::rdma(),
            (_, true) => legs::mpi::speed(has(options, "--save")),
            _ => legs::mpi::run(),
        },
    },
    Command {
        name: "mpi-device",
        options: &["FOLDER"],
        about: "the MPI on the RDMA device DAT_TEST_IBVERBS names, in this process: what mpi --rdma starts",
        run: legs::mpi::device,
    },
    Command {
        name: "debian",
        options: &["RELEASE"],
        about: "demo, clauses, C library and tests in a tree of another release (12 or 13), made by debootstrap; needs root",
        run: |words| legs::debian::run(words.first().map_or("13", String::as_str)),
    },
    Command {
        name: "distribution",
        options: &[],
        about: "the same in the distribution that is here: what debian starts",
        run: |_| suite::distribution(),
    },
    Command {
        name: "two-hosts",
        options: &[],
        about: "the libfabric provider between two network namespaces: the clauses, and the cable pulled",
        run: |_| legs::two_hosts::run(),
    },
    Command {
        name: "rdma",
        options: &[],
        about: "the ibverbs provider on Soft-RoCE in an emulated machine, or on the device DAT_TEST_IBVERBS names",
        run: |_| legs::rdma::run(),
    },
    Command {
        name: "vm",
        options: ANY,
        about: "run a command in an emulated machine with Soft-RoCE devices (docs/rdma-vm.md)",
        run: vm::run,
    },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "help".to_owned());
    let options: Vec<String> = arguments.collect();
    let asks_for_help = |word: &str| ["help", "--help", "-h"].contains(&word);
    let first = options.first().map_or("", String::as_str);
    if asks_for_help(&name) || ["--help", "-h"].contains(&first) {
        help();
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprintln!("xtask: there is no command {name:?}; `cargo xtask help` lists them");
        return ExitCode::from(2);
    };
    if let Some(unknown) =
        options.iter().find(|option| !takes_words(command) && !command.options.contains(&option.as_str()))
    {
        eprintln!("xtask {name}: there is no option {unknown:?}; known are: {:?}", command.options);
        return ExitCode::from(2);
    }
    legs::preconditions::restrict_umask();
    match (command.run)(&options) {
        Ok(Outcome::Passed(detail)) => {
            println!("xtask {name}: {detail}");
            ExitCode::SUCCESS
        }
        Ok(Outcome::NotRun(reason)) => {
            println!("xtask {name}: NOT RUN: {reason}");
            ExitCode::from(3)
        }
        Err(message) => {
            eprintln!("xtask {name}: failed: {message}");
            ExitCode::FAILURE
        }
    }
}

fn help() {
    println!("cargo xtask COMMAND [OPTION]...\n\nCommands:");
    for Command { name, options, about, .. } in &COMMANDS {
        println!("  {:<24} {about}", format!("{name} {}", options.join(" ")));
    }
    println!("\nExit status: 0 passed, 1 failed, 2 wrong usage, 3 could not run here.");
}

/// Whether a command takes words besides options: it names them in capitals.
fn takes_words(command: &Command) -> bool {
    command.options.iter().any(|option| !option.starts_with('-'))
}

/// Two reports as one.
fn both(first: Report, second: Report) -> Report {
    match (first, second) {
        (Ok(Outcome::Passed(first)), Ok(Outcome::Passed(second))) => {
            Ok(Outcome::Passed(format!("{first}; {second}")))
        }
        (Err(first), Err(second)) => Err(format!("{first}; {second}")),
        (Err(failed), _) | (_, Err(failed)) => Err(failed),
        (Ok(Outcome::NotRun(reason)), _) | (_, Ok(Outcome::NotRun(reason))) => Ok(Outcome::NotRun(reason)),
    }
}

fn has(options: &[String], option: &str) -> bool {
    options.iter().any(|given| given == option)
}
