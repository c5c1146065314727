//! Runs random programs over providers: `dat-differential --seed 1 --count 1000 --plugin PATH.so`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use dat_differential::{Disagreement, Subject, generate, search};
use dat_engine::Plugin;
use dat_plugin::Config;

const USAGE: &str = "\
usage: dat-differential [OPTIONS]

  --seed N           the first seed (default 1)
  --count N          how many seeds, one program each (default 1000)
  --plugin PATH.so   compare this provider too; may be repeated; loopback is always there
  --param KEY=VALUE  parameter of the plugin named last; may be repeated
  --without-loopback leave loopback out
  --soft-roce        leave out what that driver does wrong: endpoints of another zone than their shared receive
                     queue, and windows
  --keep-going       count failures instead of stopping at the first one
  --stats            count the answers and events at the end
  --print            print the programs and run none

Exit status: 0 all agree, 1 a disagreement, 2 the run could not be made.";

struct Args {
    seed: u64,
    count: u64,
    subjects: Vec<Subject>,
    keep_going: bool,
    print: bool,
    stats: bool,
    plugins: Vec<String>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(args) if args.print => print(&args),
        Ok(args) => run(&args),
        Err(message) => {
            eprintln!("dat-differential: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> ExitCode {
    let start = Instant::now();
    let mut failures = 0u64;
    let told = |seed: u64, disagreement: &Disagreement| {
        failures += 1;
        // At once: what follows takes a while.
        println!("seed {seed} disagrees: {disagreement}");
        args.keep_going
    };
    let tally = match search(args.seed, args.count, &args.subjects, told) {
        Ok(tally) => tally,
        Err(found) => {
            println!("\n{found}");
            println!("reproduce: {}", reproduction(found.seed, &args.plugins));
            return ExitCode::FAILURE;
        }
    };
    let took = start.elapsed().as_secs_f64();
    if args.stats {
        tally.kinds.iter().for_each(|(kind, count)| println!("{count:9}  {kind}"));
    }
    for (what, steps) in &tally.refused {
        println!("refused, as the provider's attributes say: {what}, {steps} steps");
    }
    let labels: Vec<&str> = args.subjects.iter().map(|subject| subject.label.as_str()).collect();
    let rate = tally.programs as f64 / took * 60.0;
    println!(
        "{} programs, {} steps over {} in {took:.1} s ({rate:.0} programs a minute): {failures} disagreements",
        tally.programs,
        tally.steps,
        labels.join(", ")
    );
    if failures > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn print(args: &Args) -> ExitCode {
    for seed in args.seed..args.seed.saturating_add(args.count) {
        println!("seed {seed}\n{}", generate(seed));
    }
    ExitCode::SUCCESS
}

fn reproduction(seed: u64, plugins: &[String]) -> String {
    format!("dat-differential --seed {seed} --count 1 {}", plugins.join(" "))
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let config = Config { ia_name: "loopback0".into(), ..Config::default() };
    let loopback = Subject {
        label: "loopback".into(),
        plugin: Plugin::of::<dat_loopback::Loopback>(),
        config,
        soft_roce: false,
    };
    let mut args = Args {
        seed: 1,
        count: 1000,
        subjects: vec![loopback],
        keep_going: false,
        print: false,
        stats: false,
        plugins: Vec::new(),
    };
    let mut soft_roce = false;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
        let number = |text: String| text.parse().map_err(|_| format!("{text:?} is no number"));
        match word.as_str() {
            "--seed" => args.seed = number(value()?)?,
            "--count" => args.count = number(value()?)?,
            "--plugin" => {
                let path = value()?;
                args.subjects.push(plugin(&path)?);
                args.plugins.push(format!("--plugin {path}"));
            }
            "--param" => {
                let text = value()?;
                let subject = args.subjects.last_mut().filter(|_| !args.plugins.is_empty());
                let (Some((key, value)), Some(subject)) = (text.split_once('='), subject) else {
                    return Err(format!("--param {text}: write KEY=VALUE, after --plugin"));
                };
                subject.config.params.insert(key.into(), value.into());
                args.plugins.push(format!("--param {text}"));
            }
            "--without-loopback" => {
                args.subjects.remove(0);
                args.plugins.insert(0, "--without-loopback".into());
            }
            "--soft-roce" => {
                soft_roce = true;
                args.plugins.push("--soft-roce".into());
            }
            "--keep-going" => args.keep_going = true,
            "--stats" => args.stats = true,
            "--print" => args.print = true,
            other => return Err(format!("unknown argument {other:?}\n{USAGE}")),
        }
    }
    args.subjects.iter_mut().for_each(|subject| subject.soft_roce = soft_roce);
    match args.subjects.is_empty() {
        true => Err(format!("name a provider\n{USAGE}")),
        false => Ok(args),
    }
}

fn plugin(path: &str) -> Result<Subject, String> {
    let plugin = Plugin::load(&PathBuf::from(path)).map_err(|error| format!("{path}: {error}"))?;
    let label = plugin.name().to_owned();
    let config = Config { ia_name: format!("{label}0"), ..Config::default() };
    Ok(Subject { label, plugin, config, soft_roce: false })
}
