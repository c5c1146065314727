//! The project's own commands: `cargo xtask`, without arguments for the list.
#![forbid(unsafe_code)]

/// Prints a line. The standard library's macro panics when the pipe is closed, as in `cargo xtask demo | head`.
macro_rules! println {
    ($($what:tt)*) => {
        $crate::output::print(format_args!($($what)*))
    };
}

/// Returns a failure, with words as `format!` takes them.
macro_rules! fail {
    ($($what:tt)*) => {
        return Err($crate::report::Stop::Failed(format!($($what)*)))
    };
}

mod bench;
mod capi;
mod cargo;
mod demo;
mod deps;
mod docs;
mod legs;
mod libtest;
mod markdown;
mod need;
mod new_provider;
mod options;
mod output;
mod process;
mod report;
mod root;
mod suite;
mod values;
mod vm;

use std::process::ExitCode;

use options::has;
use report::{Report, Stop, parts};

/// Commands with their options, and what each does.
const HELP: &str = include_str!("commands.txt");

/// The words after a command's name.
type Words = [String];

type Call = fn(&Words) -> Report;

/// What each command of the list calls.
const COMMANDS: [(&str, Call); 29] = [
    ("demo", |_| demo::run()),
    ("test", suite::run),
    ("docs", |_| docs::run()),
    ("new-provider", new_provider::run),
    ("authors", |_| {
        parts([("template", legs::authors::template()), ("example in C", legs::authors::provider_c())])
    }),
    ("frozen", |words| legs::evolution::frozen(has(words, "--keep"))),
    ("faults", |_| parts([("faults", legs::faults::run()), ("libfabric", legs::faults::over_libfabric())])),
    ("deps", |_| deps::run()),
    ("capi", legs::capi::command),
    ("capi-column", legs::capi::column),
    ("conformance", |words| legs::conformance::run(has(words, "--save"))),
    ("matrix", |words| legs::matrix::run(has(words, "--save"))),
    ("miri", |_| legs::miri::run()),
    ("loom", |_| legs::loom::run()),
    ("tsan", |_| legs::sanitizers::thread()),
    ("asan", |_| legs::sanitizers::address()),
    ("fuzz", legs::fuzz::run),
    ("soak", legs::soak::run),
    ("deny", legs::deny::run),
    ("bench", bench::run),
    ("instructions", |words| legs::instructions::run(has(words, "--save"))),
    ("libfabric", legs::libfabric::command),
    ("mpi", legs::mpi::command),
    ("mpi-device", legs::mpi::device),
    ("debian", |words| legs::debian::run(words.first().map_or("13", String::as_str))),
    ("distribution", |_| suite::distribution()),
    ("two-hosts", |_| legs::two_hosts::run()),
    ("rdma", |_| legs::rdma::run()),
    ("vm", vm::run),
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_else(|| "help".to_owned());
    let words: Vec<String> = words.collect();
    let is_help = |word: &str| ["help", "--help", "-h"].contains(&word);
    if is_help(&name) || words.first().is_some_and(|word| word.starts_with('-') && is_help(word)) {
        println!("cargo xtask COMMAND [OPTION]...\n\n{HELP}");
        println!("Exit status: 0 passed, 1 failed, 2 wrong usage, 3 could not run here.");
        return ExitCode::SUCCESS;
    }
    let Some((_, run)) = COMMANDS.iter().find(|(known, _)| *known == name) else {
        eprintln!("xtask: there is no command {name:?}; `cargo xtask help` lists them");
        return ExitCode::from(2);
    };
    let known = usage(&name);
    let takes_words = known.iter().any(|word| !word.starts_with('-'));
    if let Some(unknown) = words.iter().find(|word| !takes_words && !known.contains(&word.as_str())) {
        eprintln!("xtask {name}: there is no option {unknown:?}; known are: {known:?}");
        return ExitCode::from(2);
    }
    legs::preconditions::restrict_umask();
    match run(&words) {
        Ok(detail) => {
            println!("xtask {name}: {detail}");
            ExitCode::SUCCESS
        }
        Err(stop @ Stop::NotRun(_)) => {
            println!("xtask {name}: {}", stop.words());
            ExitCode::from(3)
        }
        Err(Stop::Failed(message)) => {
            eprintln!("xtask {name}: failed: {message}");
            ExitCode::FAILURE
        }
    }
}

/// What may follow a command's name, by the list: options, and words in capitals.
fn usage(name: &str) -> Vec<&'static str> {
    let line = HELP.lines().find(|line| line.split(' ').next() == Some(name)).unwrap_or_default();
    line.split("  ").next().unwrap_or_default().split(' ').skip(1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_and_the_table_have_the_same_commands() {
        let listed = HELP.lines().filter(|line| !line.starts_with(' ')).map(|line| line.split(' ').next());
        assert!(listed.eq(COMMANDS.iter().map(|(name, _)| Some(*name))));
        assert_eq!(usage("fuzz"), ["[TARGET]", "--seconds", "N", "--keep"]);
        assert_eq!(usage("miri"), [""; 0]);
    }
}
