//! The commands, one file or folder each.

mod check;
mod conformance;
mod doctor;
mod explain;
mod info;
mod inspect;
mod pages;
mod perf;
mod ping;
mod providers;
mod stats;

use std::process::ExitCode;

use crate::args::Command;
use crate::failure::Outcome;
use crate::output::Shared;
use crate::serve;

/// Carries out a command.
pub fn run(shared: &Shared, command: Command) -> Outcome<ExitCode> {
    match command {
        Command::Providers => providers::run(shared),
        Command::ProvidersChild { check, skip } => providers::child(shared, check, skip),
        Command::Info(name) => info::run(shared, &name.name),
        Command::Explain(name) => explain::run(shared, &name.name),
        Command::Doctor => doctor::run(shared),
        Command::Check(check) => check::run(shared, &check),
        Command::Ping(ping) => ping::run(shared, &ping),
        Command::Perf(perf) => perf::run(shared, &perf),
        Command::Conformance(conformance) => Ok(conformance::run(shared, &conformance)),
        Command::ConformanceWorker(conformance) => conformance::worker(shared, &conformance),
        Command::ConformancePeer(tested) => conformance::peer(shared, &tested),
        Command::Inspect(inspect) => inspect::run(shared, &inspect),
        Command::InspectChild { library } => inspect::child(&library),
        Command::Stats(stats) => stats::run(shared, &stats),
        Command::Peer(peer) => serve::as_child(shared, &peer),
        Command::Man { folder } => pages::man(&folder),
        Command::Completions { shell } => pages::completions(shell),
    }
}
