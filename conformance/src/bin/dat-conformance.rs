//! Runs the conformance suite over one provider: `dat-conformance loopback` or `dat-conformance --plugin PATH.so`.

use std::path::PathBuf;
use std::process::ExitCode;

use dat_conformance::{Expected, Filter, Options, PeerCommand, Subject, peer_main, run_with};
use dat_engine::Plugin;
use dat_plugin::Config;
use tracing_subscriber::filter::LevelFilter;

const USAGE: &str = "\
usage: dat-conformance loopback [OPTIONS]
       dat-conformance --plugin PATH.so [OPTIONS]

  --name NAME        label and IA name (default: the plugin's name)
  --param KEY=VALUE  parameter of the provider; may be repeated
  --filter PREFIX    run only clauses whose name begins so, as in C-09; may be repeated
  --expected FILE    clauses expected to fail, lines of C-nnn = \"reason\"
  --repeat COUNT     run all of it so many times; a clause has to hold each time
  --scale FACTOR     multiply all deadlines, for slow devices (default 1)
  --peer-by WORDS    run peers by this command, as in 'ip netns exec other'
  --peer-param K=V   parameter of the peers' provider, in place of the one of that name; may be repeated
  --one-process      peers are adapters of this process instead of processes
  --faults           the provider has the parameter `fail` of the loopback provider
  --json FILE        write the report as JSON
  --junit FILE       write the report as JUnit XML
  --verbose          list passed clauses too
  --log LEVEL        what engine and provider have to say, peers included, on standard error: error to trace

Exit status: 0 conforming, 1 not conforming, 2 the run could not be made.";

#[derive(Default)]
struct Args {
    plugin: Option<PathBuf>,
    loopback: bool,
    name: Option<String>,
    params: Vec<(String, String)>,
    filters: Vec<String>,
    expected: Option<PathBuf>,
    scale: Option<f64>,
    repeat: Option<u32>,
    peer_by: Option<String>,
    peer_params: Vec<(String, String)>,
    one_process: bool,
    faults: bool,
    json: Option<PathBuf>,
    junit: Option<PathBuf>,
    verbose: bool,
    log: Option<String>,
    peer: bool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(start) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("dat-conformance: {message}");
            ExitCode::from(2)
        }
    }
}

fn start(args: Args) -> Result<ExitCode, String> {
    if let Some(level) = &args.log {
        let level: LevelFilter = level.parse().map_err(|_| format!("--log {level}: no level"))?;
        // First of all, before any output.
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    }
    let plugin = match &args.plugin {
        Some(path) => Plugin::load(path).map_err(|error| format!("{}: {error}", path.display()))?,
        None => Plugin::of::<dat_loopback::Loopback>(),
    };
    let name = args.name.clone().unwrap_or_else(|| plugin.name().to_owned());
    let config = Config { ia_name: name.clone(), params: args.params.iter().cloned().collect() };
    if args.peer {
        return Ok(peer_main(&plugin, &config));
    }
    let mut subject = Subject::new(name.clone(), plugin, config).scaled(args.scale.unwrap_or(1.0));
    if !args.loopback && !args.one_process {
        subject = subject.peers_by(peer_command(&args, &name)?);
    }
    if args.loopback || args.faults {
        subject = subject.injecting_faults();
    }
    let expected = match &args.expected {
        Some(path) => Expected::read(path)?,
        None => Expected::default(),
    };
    let options = Options { repeat: args.repeat.unwrap_or(1), ..Options::default() };
    let report = run_with(subject, &Filter::prefixes(args.filters), &expected, &options);
    print!("{}", report.to_text(args.verbose));
    let write = |path: &Option<PathBuf>, text: String| match path {
        Some(path) => std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display())),
        None => Ok(()),
    };
    write(&args.json, format!("{:#}\n", report.to_json()))?;
    write(&args.junit, report.to_junit())?;
    Ok(if report.conforming() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// This program again, as a peer over the same plugin.
fn peer_command(args: &Args, name: &str) -> Result<PeerCommand, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("cannot find this program itself: {error}"))?;
    let mut list = vec!["--peer".to_owned(), "--name".into(), name.into()];
    if let Some(path) = &args.plugin {
        list.extend(["--plugin".into(), path.display().to_string()]);
    }
    if let Some(level) = &args.log {
        list.extend(["--log".into(), level.clone()]);
    }
    // Of two parameters of a name the later counts.
    for (key, value) in args.params.iter().chain(&args.peer_params) {
        list.extend(["--param".into(), format!("{key}={value}")]);
    }
    let mut words = args.peer_by.as_deref().unwrap_or_default().split_whitespace().map(str::to_owned);
    Ok(match words.next() {
        None => PeerCommand { program, args: list },
        Some(first) => {
            let args = words.chain([program.display().to_string()]).chain(list).collect();
            PeerCommand { program: first.into(), args }
        }
    })
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "loopback" => args.loopback = true,
            "--plugin" => args.plugin = Some(value()?.into()),
            "--name" => args.name = Some(value()?),
            "--param" | "--peer-param" => {
                let text = value()?;
                let (key, value) =
                    text.split_once('=').ok_or_else(|| format!("{word} {text}: no KEY=VALUE"))?;
                let list = if word == "--param" { &mut args.params } else { &mut args.peer_params };
                list.push((key.into(), value.into()));
            }
            "--peer-by" => args.peer_by = Some(value()?),
            "--filter" => args.filters.push(value()?),
            "--expected" => args.expected = Some(value()?.into()),
            "--scale" => {
                let text = value()?;
                args.scale = Some(text.parse().map_err(|_| format!("--scale {text}: no number"))?);
            }
            "--repeat" => {
                let text = value()?;
                args.repeat = Some(text.parse().map_err(|_| format!("--repeat {text}: no count"))?);
            }
            "--one-process" => args.one_process = true,
            "--faults" => args.faults = true,
            "--json" => args.json = Some(value()?.into()),
            "--junit" => args.junit = Some(value()?.into()),
            "--verbose" => args.verbose = true,
            "--log" => args.log = Some(value()?),
            "--peer" => args.peer = true,
            other => return Err(format!("unknown argument {other:?}\n{USAGE}")),
        }
    }
    match args.loopback || args.plugin.is_some() {
        true => Ok(args),
        false => Err(format!("name a provider\n{USAGE}")),
    }
}
