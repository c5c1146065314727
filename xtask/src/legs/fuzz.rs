//! Coverage-guided fuzzing: the targets of `fuzz/`, each for some seconds, or one of them for as long as is wanted.
//!
//! libFuzzer comes with the crate `libfuzzer-sys`, which compiles it; `cargo-fuzz` is not needed. What a run finds is kept
//! in the target folder, and the next run goes on from there. The corpora in the tree are small; `--keep` renews them.

use std::path::{Path, PathBuf};

use crate::cargo::{nightly, target_dir};
use crate::need::{self, TARGET};
use crate::process::Run;
use crate::report::Parts;
use crate::report::{Report, Result, Stop};

/// The targets: `fuzz/main.rs` has the same names.
const TARGETS: [&str; 13] = [
    "shm_packet",
    "shm_ring",
    "shm_program",
    "shm_memory",
    "shm_connection",
    "libfabric_wire",
    "libfabric_finder",
    "libfabric_frames",
    "private_data",
    "plugins_toml",
    "dat_conf",
    "elf_note",
    "c_calls",
];

/// Coverage as libFuzzer reads it, and AddressSanitizer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address";

/// Seconds for each target as a leg. The kept inputs run in the first of them.
const SHORT: u64 = 3;

/// A run of more seconds is a long one.
const LONG: u64 = 60;

/// An input that takes longer is a failure. Generous, for a machine that does other things too.
const SLOWEST: u64 = 20;

/// The leg: each target for a few seconds.
pub fn short() -> Report {
    run(&[])
}

/// `cargo xtask fuzz [TARGET] [--seconds N] [--keep]`.
pub fn run(words: &[String]) -> Report {
    let mut chosen = TARGETS.to_vec();
    let (mut seconds, mut keep) = (SHORT, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--keep" => keep = true,
            "--seconds" => {
                let number = words.next().and_then(|number| number.parse().ok());
                seconds = number.ok_or("--seconds takes a number")?;
            }
            name => {
                let known = TARGETS.iter().find(|target| **target == name);
                chosen =
                    vec![known.ok_or_else(|| format!("there is no target {name:?}; known are {TARGETS:?}"))?];
            }
        }
    }
    let program = build(seconds)?;
    let (mut executions, mut all) = (0, Parts::default());
    for target in chosen {
        let target = Target { name: target, program: &program };
        let fuzzed = target.fuzz(seconds).and_then(|figures| {
            executions += figures.executions;
            if keep {
                target.keep()?;
            }
            Ok(format!("{} {}", target.name, figures.words()))
        });
        all.add(target.name, fuzzed);
    }
    Ok(format!("{executions} executions, no crash: {}", all.report()?))
}

/// Builds the program of all targets; gives its path. For a short run, compiling fast is worth more than running fast.
fn build(seconds: u64) -> Result<PathBuf> {
    need::x86_linux()?;
    need::nightly_with(&[])?;
    // libFuzzer is C++.
    need::programs(&[("c++", "g++")])?;
    let folder = target_dir()?.join("fuzz");
    let manifest = ["--manifest-path", "fuzz/Cargo.toml"];
    if !nightly().args(["fetch"]).args(manifest).works() {
        let why = "libfuzzer-sys can be had neither from the network nor from cargo's folder";
        return Err(Stop::not_run(why));
    }
    let (optimised, debug) = if seconds > LONG { ("3", "line-tables-only") } else { ("0", "false") };
    nightly()
        .args(["build"])
        .args(manifest)
        .args(["--release", "--target", TARGET])
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", optimised)
        .env("CARGO_PROFILE_RELEASE_DEBUG", debug)
        .env("CARGO_TARGET_DIR", &folder)
        .run()?;
    Ok(folder.join(TARGET).join("release/dat-fuzz"))
}

/// A target, built.
struct Target<'a> {
    name: &'static str,
    program: &'a Path,
}

/// What libFuzzer printed last.
#[derive(Default)]
struct Figures {
    executions: u64,
    /// Edges covered, and features: edges with how often, and comparisons.
    coverage: String,
    features: String,
}

impl Target<'_> {
    /// The corpus in the tree.
    fn kept(&self) -> PathBuf {
        Path::new("fuzz/corpus").join(self.name)
    }

    /// The corpus that grows.
    fn found(&self) -> Result<PathBuf> {
        let folder = target_dir()?.join("fuzz/corpus").join(self.name);
        fs_err::create_dir_all(&folder)?;
        fs_err::create_dir_all(self.kept())?;
        Ok(folder)
    }

    fn start(&self) -> Run {
        // libFuzzer prints to its standard error.
        Run::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 2>&1"])
            .args([self.program])
            .env("DAT_FUZZ_TARGET", self.name)
            // Memory that a peer may still write is kept for ever, on purpose.
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .env("DAT_LOG", "off")
    }

    fn fuzz(&self, seconds: u64) -> Result<Figures> {
        let found = self.found()?;
        let artifacts = target_dir()?.join(format!("fuzz/{}-", self.name));
        let mut figures = Figures::default();
        let ended = self
            .start()
            .args([&found, &self.kept()])
            .args([
                format!("-max_total_time={seconds}"),
                format!("-timeout={SLOWEST}"),
                format!("-artifact_prefix={}", artifacts.display()),
            ])
            .args(["-rss_limit_mb=3072", "-max_len=4200", "-print_final_stats=1", "-detect_leaks=0"])
            .deadline(seconds + 300)
            .lines(|line| figures.line(line));
        ended.map_err(|stop| format!("{}; the input is {}*", stop.words(), artifacts.display()))?;
        match figures.executions {
            0 => Err("libFuzzer executed nothing".into()),
            _ => Ok(figures),
        }
    }

    /// Puts the smallest inputs with the coverage of all into the tree.
    fn keep(&self) -> Result<()> {
        let (found, kept) = (self.found()?, self.kept());
        let merged = target_dir()?.join("fuzz/merged").join(self.name);
        let _ = fs_err::remove_dir_all(&merged);
        fs_err::create_dir_all(&merged)?;
        self.start().args(["-merge=1"]).args([&merged, &found, &kept]).args(["-max_len=512"]).run()?;
        fs_err::remove_dir_all(&kept)?;
        fs_err::create_dir_all(&kept)?;
        let mut inputs: Vec<_> = fs_err::read_dir(&merged)?.flatten().collect();
        inputs.sort_by_key(|input| input.metadata().map_or(u64::MAX, |data| data.len()));
        for input in inputs.iter().take(MOST_KEPT) {
            fs_err::copy(input.path(), kept.join(input.file_name()))?;
        }
        Ok(())
    }
}

/// Inputs of a corpus in the tree at most.
const MOST_KEPT: usize = 80;

impl Figures {
    fn line(&mut self, line: &str) {
        if let Some(number) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = number.trim().parse().unwrap_or(0);
        }
        // `#123  DONE   cov: 45 ft: 67 corp: …`
        let mut words = line.split_whitespace();
        if line.starts_with('#') && words.any(|word| word == "cov:") {
            self.coverage = words.next().unwrap_or_default().to_owned();
            self.features = words.nth(1).unwrap_or_default().to_owned();
        }
    }

    fn words(&self) -> String {
        format!("{} (edges {}, features {})", self.executions, self.coverage, self.features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_that_libfuzzer_printed_last() {
        let mut figures = Figures::default();
        for line in [
            "INFO: Seed: 1",
            "#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 41Mb",
            "#4096\tDONE   cov: 345 ft: 678 corp: 9/80b lim: 11 exec/s: 1024 rss: 50Mb",
            "stat::number_of_executed_units: 4096",
        ] {
            figures.line(line);
        }
        assert_eq!(figures.words(), "4096 (edges 345, features 678)");
    }

    #[test]
    fn the_program_has_these_targets() {
        let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/main.rs");
        let main = fs_err::read_to_string(main).expect("the targets");
        let names: Vec<&str> =
            main.lines().filter_map(|line| line.strip_prefix("    (\"")?.split('"').next()).collect();
        assert_eq!(names, TARGETS);
    }
}
