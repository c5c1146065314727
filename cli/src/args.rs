//! The command line, as one table: help, man page and completions are all made from it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::units;

/// Direct Access Transport: list, test and measure the providers of this machine.
///
/// Names come from plugins.toml; `dat explain NAME` shows how one is resolved. Exit status: 0 success, 1 failure, 2
/// invalid command line.
#[derive(Debug, Parser)]
#[command(name = "dat", version, max_term_width = 100)]
pub struct Cli {
    /// Read this plugins.toml and no other.
    #[arg(long, global = true, value_name = "FILE")]
    pub plugins: Option<PathBuf>,
    /// Print one JSON document on standard output instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// Log to standard error: -v notices, -vv details, -vvv everything. RUST_LOG has precedence.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the configured providers: the state of each on this machine, and the reason.
    Providers,
    /// Open an interface adapter and show its attributes and its provider's.
    Info(Name),
    /// Show step by step how a name is resolved, and why each candidate was chosen or not.
    Explain(Name),
    /// Examine this machine: limits, device nodes, links, huge pages; show remedies. Exit status 1: a problem.
    Doctor,
    /// Check a plugins.toml or a uDAPL dat.conf; report every error with line and column.
    Check(Check),
    /// Connect to a peer; send, write and read; verify every byte.
    Ping(Ping),
    /// Measure latency, bandwidth and message rate.
    Perf(Perf),
    /// Run the conformance suite: a test for each clause of the specification. Exit status 0 conforming, 1 not, 2 not run.
    Conformance(Conformance),
    /// Show name, versions, capabilities and needed libraries of a plugin's file, without running it.
    Inspect(Inspect),
    /// The child that inspect --try loads the plugin in.
    #[command(hide = true)]
    InspectChild {
        /// The library.
        library: PathBuf,
    },
    /// The child that providers loads the plugins in.
    #[command(hide = true)]
    ProvidersChild {
        /// Read the file as `dat check` does.
        #[arg(long)]
        check: bool,
        /// How many of them to leave out.
        skip: usize,
    },
    /// Show the counters of a running process that has a provider with the layer "count".
    Stats(Stats),
    /// The process that conformance runs the clauses in.
    #[command(hide = true)]
    ConformanceWorker(Conformance),
    /// The peer that conformance starts.
    #[command(hide = true)]
    ConformancePeer(Tested),
    /// The peer that ping and perf start.
    #[command(hide = true)]
    Peer(Peer),
    /// Write the manual pages into a folder.
    #[command(hide = true)]
    Man {
        /// The folder; it must exist.
        folder: PathBuf,
    },
    /// Print the completions for a shell.
    #[command(hide = true)]
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// A name to open.
#[derive(Debug, Args)]
pub struct Name {
    /// Name of a provider, chain or route, from plugins.toml.
    pub name: String,
}

/// What to check.
#[derive(Debug, Args)]
pub struct Check {
    /// The file.
    pub file: PathBuf,
    /// What the file is; by default dat.conf when it ends with .conf.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Check the syntax only. By default a child process also loads each library of a plugins.toml and opens a device.
    #[arg(long)]
    pub syntax: bool,
    /// Print the entries as plugins.toml: this imports a dat.conf.
    #[arg(long)]
    pub to_toml: bool,
}

/// Formats of configuration files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A plugins.toml.
    Toml,
    /// A uDAPL dat.conf.
    DatConf,
}

/// Where the other side is.
#[derive(Clone, Debug, Args)]
pub struct PeerOptions {
    /// Be the peer for another process's --connect, on this connection qualifier, until interrupted.
    #[arg(long, value_name = "QUAL", num_args = 0..=1, default_missing_value = units::DEFAULT_QUAL, conflicts_with = "connect")]
    pub listen: Option<u64>,
    /// With --listen: end after the first peer has gone.
    #[arg(long, requires = "listen")]
    pub once: bool,
    /// Connect to a listening process instead of starting a peer; IPv6 addresses in brackets.
    #[arg(long, value_name = "ADDRESS[:QUAL]", value_parser = units::target)]
    pub connect: Option<units::Target>,
    /// Longest wait for the peer; plain numbers are seconds.
    #[arg(long, default_value = "10s", value_parser = units::duration)]
    pub timeout: Duration,
}

/// How to ping.
#[derive(Debug, Args)]
pub struct Ping {
    /// Name of a provider, chain or route, from plugins.toml.
    pub name: String,
    /// Rounds; each is a message there and back, an RDMA write and an RDMA read.
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Bytes per message, write and read.
    #[arg(short, long, default_value = "64", value_parser = units::size)]
    pub size: u32,
    /// Pause between rounds; plain numbers are seconds.
    #[arg(short, long, default_value = "0s", value_parser = units::duration)]
    pub interval: Duration,
    /// Where the other side is.
    #[command(flatten)]
    pub side: PeerOptions,
}

/// How to measure.
#[derive(Clone, Debug, Args)]
pub struct Perf {
    /// Name of a provider, chain or route, from plugins.toml.
    pub name: String,
    /// Operations, all by default.
    #[arg(short, long = "test", value_enum, value_delimiter = ',')]
    pub tests: Vec<Operation>,
    /// What to measure, all by default.
    #[arg(short, long = "metric", value_enum, value_delimiter = ',')]
    pub metrics: Vec<Metric>,
    /// Sizes in bytes, with K, M or G for powers of 1024.
    #[arg(short, long, value_delimiter = ',', default_value = "8,64,4K,64K,1M", value_parser = units::size)]
    pub sizes: Vec<u32>,
    /// Operations per batch. By default a batch is short.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub iterations: Option<u32>,
    /// Time to spend on each row. At least three samples are taken, so slow operations take longer.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = units::duration)]
    pub seconds: Duration,
    /// A short look: three sizes, latency and bandwidth.
    #[arg(short, long, conflicts_with_all = ["sizes", "metrics", "seconds"])]
    pub quick: bool,
    /// Processors of the two sides: this one, the peer. By default the first two that may be used.
    #[arg(long, value_name = "CPU,CPU", value_parser = units::cpus)]
    pub cpus: Option<units::Cpus>,
    /// Do not pin the two processes.
    #[arg(long, conflicts_with = "cpus")]
    pub no_pin: bool,
    /// Sleep for completions instead of polling.
    #[arg(short, long)]
    pub wait: bool,
    /// Use ordinary memory on both sides, instead of memory that the provider allocated and peers may be able to map.
    #[arg(long)]
    pub heap: bool,
    /// Buffers for each direction, used in rotation, instead of one for each outstanding operation. Rounded down to a
    /// power of two. Similar programs have 1, which stays in the processor's cache.
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub buffers: Option<u32>,
    /// Draw latency and bandwidth over size, as SVG.
    #[arg(long, value_name = "FILE.svg", value_parser = units::svg_file)]
    pub plot: Option<PathBuf>,
    /// Where the other side is.
    #[command(flatten)]
    pub side: PeerOptions,
}

/// The provider under test.
#[derive(Debug, Args)]
pub struct Tested {
    /// Name of a provider, chain or route, from plugins.toml.
    #[arg(required_unless_present = "plugin", conflicts_with = "plugin")]
    pub name: Option<String>,
    /// Test this library instead of a configured name. It is loaded as it is: the checks of owner and digest that a
    /// name gets are not made.
    #[arg(long, value_name = "PATH.so")]
    pub plugin: Option<PathBuf>,
    /// What the library's adapter is called, in reports too; by default the plugin's own name.
    #[arg(long, value_name = "NAME", requires = "plugin")]
    pub ia_name: Option<String>,
    /// A further parameter of the provider; may be repeated.
    #[arg(long = "param", value_name = "KEY=VALUE", value_parser = units::parameter)]
    pub params: Vec<(String, String)>,
    /// Layers between the suite and the provider, over those configured, the first one topmost: trace, count, faults,
    /// with parameters as in faults:seed=7,delay_us=300; may be repeated.
    #[arg(long = "layer", value_name = "LIST", value_parser = units::layers)]
    pub layers: Vec<units::Layers>,
}

/// How to run the conformance suite.
#[derive(Debug, Args)]
pub struct Conformance {
    /// What to test.
    #[command(flatten)]
    pub tested: Tested,
    /// Run only clauses whose name begins so, as in C-09; may be repeated.
    #[arg(long = "filter", value_name = "PREFIX")]
    pub filters: Vec<String>,
    /// Clauses known to fail: lines of C-nnn = "reason". If such a clause passes, the report says so and the provider does not conform.
    #[arg(long, value_name = "FILE.toml")]
    pub expected: Option<PathBuf>,
    /// Number of runs. A clause passes if it passes in each run.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Multiply all deadlines: for devices that are emulated and slow.
    #[arg(long, default_value_t = 1.0, value_parser = units::factor)]
    pub scale: f64,
    /// Write the report as JUnit XML too.
    #[arg(long, value_name = "FILE.xml")]
    pub junit: Option<PathBuf>,
    /// List clauses that passed, too.
    #[arg(short, long)]
    pub all: bool,
    /// Run the clauses in this very process, as for a debugger: a provider that crashes then ends the command.
    #[arg(long)]
    pub in_process: bool,
}

/// What to inspect.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The plugin's shared object.
    #[arg(value_name = "PATH.so")]
    pub library: PathBuf,
    /// Also load it, in a child process. A crash or a hang is reported.
    #[arg(long = "try")]
    pub try_it: bool,
    /// With --try: how long loading and probing may take; plain numbers are seconds.
    #[arg(long, default_value = "10s", value_parser = units::duration, requires = "try_it")]
    pub timeout: Duration,
}

/// Whose counters to show.
#[derive(Debug, Args)]
pub struct Stats {
    /// The process.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i32::MAX as i64))]
    pub pid: u32,
    /// Print the text format of Prometheus.
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
    /// Show every channel, not only their sums.
    #[arg(short, long)]
    pub channels: bool,
}

/// The started peer. It ends with its standard input, so it never outlives its parent.
#[derive(Debug, Args)]
pub struct Peer {
    /// The name to open.
    pub name: String,
    /// Longest wait for the other side, in milliseconds.
    pub timeout_ms: u64,
}

/// Operations that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Messages: a posted receive and a completion event on both sides.
    Send,
    /// RDMA writes.
    Write,
    /// RDMA reads.
    Read,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Time of one operation with nothing else under way.
    Latency,
    /// Bytes per second with many operations under way, each with a completion.
    Bandwidth,
    /// Operations per second with many under way, one completion for several.
    Rate,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 3] = [Operation::Send, Operation::Write, Operation::Read];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Send => "send",
            Operation::Write => "write",
            Operation::Read => "read",
        }
    }
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 3] = [Metric::Latency, Metric::Bandwidth, Metric::Rate];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Latency => "latency",
            Metric::Bandwidth => "bandwidth",
            Metric::Rate => "rate",
        }
    }
}

/// Whether the arguments contain `--json`, even if the command line is invalid. Its errors are then JSON too.
pub fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_table_is_sound() {
        super::Cli::command().debug_assert();
    }
}
