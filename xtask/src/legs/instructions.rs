//! `cargo xtask instructions`: what posting, polling and dequeuing cost in instructions, over every provider, against the
//! counts that are kept in `tests/bench/instructions.toml`.
//!
//! callgrind counts the same on every run, so that a post that became dearer shows on the busiest machine. Only a provider's
//! thread that holds what the counted one waits for is seldom in a count, so one that differs is counted again. The ibverbs
//! and libfabric providers run over stand-ins for their libraries (`tests/fakes/libibverbs`, `tests/fakes/libfabric`) and beside direct calls
//! of them; the difference is what is ours.

use fs_err as fs;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::cargo::{COUNTED, build, cargo, target_dir};
use crate::markdown::{Markdown, PAGE, with_table};
use crate::need;
use crate::process::Run;
use crate::report::{Report, Result, Stop};
use crate::root::{files_below, root};

/// The table of the page about performance.
pub const TABLE: &str = "instructions";
/// The kept counts.
const FILE: &str = "tests/bench/instructions.toml";
const PROVIDERS: [&str; 4] = ["loopback", "shm", "ibverbs", "libfabric"];
/// Layers from the lowest up, as the benchmark names them.
const LAYERS: [&str; 9] =
    ["verbs", "fabric", "abi", "abi-verbs", "abi-fabric", "engine", "api", "buffer", "c"];
/// Not counted but reckoned: what providers add to direct calls of their libraries.
const ABOVE: [(&str, &str, &str); 2] =
    [("ibverbs", "verbs", "abi-verbs"), ("libfabric", "fabric", "abi-fabric")];
/// Whose place the stand-ins take.
const STAND_INS: [(&str, &str); 3] = [
    ("libdat_verbs_double.so", "libibverbs.so.1"),
    ("libdat_verbs_double.so", "librdmacm.so.1"),
    ("libdat_fabric_double.so", "libfabric.so.1"),
];
const PHASES: [&str; 5] = ["post_recv", "post_send", "recv_completion", "send_completion", "empty_poll"];
/// The tolerance of a count: this percentage or this many instructions, the larger of the two. The same sources built in
/// another folder are not always inlined alike.
const PERCENT: f64 = 3.0;
const INSTRUCTIONS: f64 = 3.0;

/// Instructions an operation, by provider, layer and phase.
type Counts = BTreeMap<[String; 3], f64>;

/// Counts; then compares, or keeps the counts with `save`.
pub fn run(save: bool) -> Report {
    need::x86_linux()?;
    need::programs(&[("valgrind", "valgrind")])?;
    let compiler = Run::new("rustc").args(["--version"]).output()?.trim().to_owned();
    let kept = || -> Result { Ok(fs::read_to_string(root().join(FILE))?) };
    if !save {
        let kept_by = value(&kept()?, "rustc").unwrap_or_default();
        if kept_by != compiler {
            return Err(Stop::not_run(format!(
                "{FILE} has the counts of {kept_by}, this is {compiler}; `cargo xtask instructions --save` renews it"
            )));
        }
    }
    let counts = count()?;
    print!("{}", table(&counts));
    if save {
        let unsteady = differences(&counts, &count()?);
        if !unsteady.is_empty() {
            fail!("counted twice, with two results; run it again: {}", unsteady.join("; "));
        }
        fs::write(root().join(FILE), text(&counts, &compiler))?;
        let page = fs::read_to_string(root().join(PAGE))?;
        fs::write(root().join(PAGE), with_table(&page, TABLE, &table(&counts))?)?;
        return Ok(format!("{} counts written to {FILE}", counts.len()));
    }
    let kept = parse(&kept()?)?;
    let mut wrong = differences(&kept, &counts);
    if !wrong.is_empty() {
        println!("counted again, for this differs: {}", wrong.join("; "));
        let again = differences(&kept, &count()?);
        let what = |words: &str| words.split(':').next().map(str::to_owned);
        wrong.retain(|first| again.iter().any(|second| what(second) == what(first)));
    }
    match wrong.is_empty() {
        true => Ok(format!("{} counts within {PERCENT} % of {FILE}", counts.len())),
        false => Err(format!(
            "{}; if that is meant, `cargo xtask instructions --save` renews {FILE}",
            wrong.join("; ")
        )
        .into()),
    }
}

/// The kept counts as a table.
pub fn kept_table() -> Result<String> {
    let kept = fs::read_to_string(root().join(FILE))?;
    Ok(table(&parse(&kept)?))
}

/// Builds, runs the benchmark under callgrind, reads what it left.
fn count() -> Result<Counts> {
    let libraries =
        "dat-shm dat-loopback dat-ibverbs dat-libfabric dat-capi dat-verbs-double dat-fabric-double";
    build(COUNTED, &libraries.split(' ').collect::<Vec<_>>())?;
    cargo().args(["build", "--profile", COUNTED, "-p", "dat-bench", "--bin", "dat-count"]).run()?;
    let built = target_dir()?.join(COUNTED);
    let work = tempfile::tempdir()?;
    let doubles = work.path().join("lib");
    stand_in(&built, &doubles)?;
    let out = work.path().join("callgrind");
    Run::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--collect-atstart=no"])
        .args([format!("--callgrind-out-file={}", out.display())])
        .args([built.join("dat-count"), built.clone()])
        .args(PROVIDERS)
        .env("LD_LIBRARY_PATH", &doubles)
        // The C library's copies for the least common processor, so that all machines run the same.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX,-AVX512VL,-ERMS,-FSRM")
        .deadline(300)
        .run()?;
    read(work.path())
}

/// A folder in which the libraries' names lead to their stand-ins, as far as those are built.
pub(super) fn stand_in(built: &Path, folder: &Path) -> Result<()> {
    fs::create_dir(folder)?;
    for (file, name) in STAND_INS.into_iter().filter(|(file, _)| built.join(file).exists()) {
        std::os::unix::fs::symlink(built.join(file), folder.join(name))?;
    }
    Ok(())
}

/// The totals of callgrind's files. Two of one phase, with different numbers of operations, make a cost by operation.
fn read(folder: &Path) -> Result<Counts> {
    let mut totals: BTreeMap<[String; 3], Vec<(u64, u64)>> = BTreeMap::new();
    for file in files_below(folder)?.iter().filter(|file| file.parent() == Some(folder)) {
        let text = fs::read_to_string(file)?;
        let after = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let Some(name) = after("desc: Trigger: Client Request: ") else { continue };
        let total = after("totals: ").and_then(|total| total.trim().parse::<u64>().ok()).unwrap_or(0);
        let parts: Vec<&str> = name.trim().split('.').collect();
        let [provider, layer, phase, operations] = parts[..] else {
            fail!("callgrind wrote of {name:?}, which is no count of ours");
        };
        totals.entry(key(provider, layer, phase)).or_default().push((operations.parse()?, total));
    }
    let mut costs = Counts::new();
    for (key, mut pair) in totals {
        pair.sort_unstable();
        let [(few, less), (many, more)] = pair[..] else { fail!("{key:?} was counted {pair:?}") };
        costs.insert(key, more.saturating_sub(less) as f64 / (many - few) as f64);
    }
    let rounded = |count: f64| (count * 10.0).round() / 10.0;
    let mut counts = Counts::new();
    for ([provider, layer, phase], cost) in costs.iter().filter(|([_, _, phase], _)| phase != "nothing") {
        let nothing = costs.get(&key(provider, layer, "nothing")).unwrap_or(&0.0);
        counts.insert(key(provider, layer, phase), rounded(cost - nothing));
    }
    for (provider, library, name) in ABOVE {
        for phase in PHASES {
            let of = |layer: &str| counts.get(&key(provider, layer, phase));
            if let (Some(below), Some(whole)) = (of(library), of("abi")) {
                counts.insert(key(provider, name, phase), rounded(whole - below));
            }
        }
    }
    match counts.is_empty() {
        true => fail!("callgrind left no counts"),
        false => Ok(counts),
    }
}

fn key(provider: &str, layer: &str, phase: &str) -> [String; 3] {
    [provider, layer, phase].map(str::to_owned)
}

fn differences(kept: &Counts, counts: &Counts) -> Vec<String> {
    let differs = |(key, was): (&[String; 3], &f64)| match counts.get(key) {
        None => Some(format!("{} was not counted", key.join(" "))),
        Some(is) if (is - was).abs() > (was * PERCENT / 100.0).max(INSTRUCTIONS) => {
            Some(format!("{}: {is} instructions, {was} are kept", key.join(" ")))
        }
        Some(_) => None,
    };
    let unknown = counts.keys().filter(|key| !kept.contains_key(*key));
    let unknown = unknown.map(|key| format!("{} is not in the file", key.join(" ")));
    kept.iter().filter_map(differs).chain(unknown).collect()
}

/// In the order of providers and layers: the counts of all phases.
fn sorted(counts: &Counts) -> impl Iterator<Item = (&str, &str, [Option<f64>; 5])> {
    let rows = PROVIDERS.iter().flat_map(|provider| LAYERS.iter().map(move |layer| (*provider, *layer)));
    let rows = rows.map(|(provider, layer)| {
        (provider, layer, PHASES.map(|phase| counts.get(&key(provider, layer, phase)).copied()))
    });
    rows.filter(|(_, _, phases)| phases.iter().any(Option::is_some))
}

fn table(counts: &Counts) -> String {
    let mut heads = vec!["provider", "layer"];
    heads.extend(PHASES);
    let mut table = Markdown::new(&heads, 2);
    for (provider, layer, phases) in sorted(counts) {
        let mut cells = vec![provider.to_owned(), layer.to_owned()];
        cells.extend(phases.map(|count| count.map_or("-".to_owned(), |count| count.to_string())));
        table.row(cells);
    }
    table.text()
}

fn text(counts: &Counts, compiler: &str) -> String {
    let mut out = format!(
        "# Instructions an operation of 8 bytes, by provider and layer, counted by callgrind. Written by\n\
         # `cargo xtask instructions --save`; `cargo xtask instructions` fails when a count differs by more than\n\
         # {PERCENT} % and {INSTRUCTIONS} instructions, up or down. Built with the profile `counted`.\n\
         #\n\
         # verbs, fabric: libibverbs, libfabric called directly. abi: the provider behind the plugin tables; abi-verbs,\n\
         # abi-fabric: what it adds. engine: a DAT call. api: the safe API, from regions. buffer:\n\
         # from buffers that come back, which includes a list of them. c: the C library, which is beside the safe API.\n\
         # Each holds those below it; both ends' work on a message is with the end that does it, which for loopback and\n\
         # the stand-ins for libraries is the sender's post.\n\n\
         rustc = \"{compiler}\"\n"
    );
    for (provider, layer, phases) in sorted(counts) {
        let _ = write!(out, "\n[{provider}.{layer}]\n");
        for (phase, count) in PHASES.iter().zip(phases) {
            if let Some(count) = count {
                let _ = writeln!(out, "{phase} = {count:.1}");
            }
        }
    }
    out
}

fn value(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
    Some(line.trim().trim_matches('"').to_owned())
}

/// What [`text`] writes.
fn parse(text: &str) -> Result<Counts> {
    let mut counts = Counts::new();
    let mut layer = None;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || format!("{FILE}: {line:?} is neither [provider.layer] nor phase = count");
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            layer = Some(name.split_once('.').ok_or_else(wrong)?);
        } else if let Some((provider, layer)) = layer {
            let (phase, count) = line.split_once('=').ok_or_else(wrong)?;
            counts.insert(key(provider, layer, phase.trim()), count.trim().parse().map_err(|_| wrong())?);
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, &str, &str, f64)]) -> Counts {
        of.iter().map(|(provider, layer, phase, count)| (key(provider, layer, phase), *count)).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let counts = counts(&[("shm", "abi", "post_send", 101.5), ("shm", "api", "empty_poll", 30.0)]);
        let text = text(&counts, "rustc 1.0");
        assert_eq!(parse(&text).as_ref(), Ok(&counts));
        assert_eq!(value(&text, "rustc").as_deref(), Some("rustc 1.0"));
        assert!(parse("[shm.abi]\npost_send = many").is_err());
    }

    #[test]
    fn differences_beyond_the_tolerance_are_told_in_both_directions() {
        let kept = counts(&[("shm", "abi", "post_send", 100.0), ("shm", "abi", "post_recv", 10.0)]);
        let same = counts(&[("shm", "abi", "post_send", 102.9), ("shm", "abi", "post_recv", 7.1)]);
        assert_eq!(differences(&kept, &same), Vec::<String>::new());
        let more = counts(&[("shm", "abi", "post_send", 103.1), ("shm", "abi", "post_recv", 6.9)]);
        assert_eq!(differences(&kept, &more).len(), 2);
        let other = counts(&[("shm", "abi", "post_send", 100.0), ("shm", "api", "post_recv", 10.0)]);
        assert_eq!(differences(&kept, &other).len(), 2);
    }
}
