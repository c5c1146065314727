//! The `dat` command: what providers there are, why a name opens as it does, and whether and how fast it works.
#![forbid(unsafe_code)]

mod args;
mod child;
mod commands;
mod cpu;
mod failure;
mod link;
mod output;
mod peer;
mod protocol;
mod serve;
mod units;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use serde_json::json;
use tracing_subscriber::EnvFilter;

use args::Cli;
use output::Shared;

/// The command line was wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    log(cli.verbose);
    let shared = Shared { plugins: cli.plugins, json: cli.json, verbose: cli.verbose };
    match commands::run(&shared, cli.command) {
        Ok(status) => status,
        Err(failure) => {
            shared.report(&failure);
            ExitCode::FAILURE
        }
    }
}

/// Help and version are not errors. With `--json` everything else is printed as JSON too.
fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return ExitCode::SUCCESS;
    }
    if args::wants_json(std::env::args_os().skip(1)) {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        let _ = output::print(&format!("{:#}", json!({ "error": { "message": message, "usage": true } })));
    }
    ExitCode::from(USAGE)
}

fn log(verbose: u8) {
    let level = ["warn", "info", "debug", "trace"][usize::from(verbose.min(3))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let logging = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false);
    // Fails only when there is a logger already; then that one logs.
    let _ = logging.try_init();
}
