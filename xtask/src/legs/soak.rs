//! The test `soak` of `tests/process` for long, and its curves as a drawing.

use dat_measure::chart::{self, Dash, Line, Panel};

use crate::cargo::cargo;
use crate::libtest::Tests;
use crate::report::Report;
use crate::root::root;

/// What a run by hand does unless it is told otherwise.
const SECONDS: u64 = 600;
const ENDPOINTS: u64 = 1000;

/// The drawing that `--save` keeps.
const DRAWING: &str = "docs/bench/soak.svg";

/// Points of a curve: each is the median of the samples around it.
const POINTS: usize = 10;

/// The numbers of a line `sample …`, in its order.
const NAMES: [&str; 8] =
    ["seconds", "descriptors", "threads", "mappings", "mapped KiB", "private KiB", "shm", "TCP"];

/// `cargo xtask soak [--seconds N] [--endpoints N] [--save]`.
pub fn run(words: &[String]) -> Report {
    let number = |option: &str, usual: u64| match words.iter().position(|word| word == option) {
        None => Ok(usual),
        Some(at) => words
            .get(at + 1)
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| format!("{option} takes a number")),
    };
    let (seconds, endpoints) = (number("--seconds", SECONDS)?, number("--endpoints", ENDPOINTS)?);
    // Beside the test, so that it is found there.
    cargo().args(["build", "-p", "dat-libfabric"]).run()?;
    let (mut samples, mut said) = (Vec::new(), String::new());
    let test = cargo()
        .args(["test", "-p", "dat-process-tests", "--test", "soak", "--", "--nocapture"])
        .env("DAT_SOAK_SECONDS", seconds.to_string())
        .env("DAT_SOAK_ENDPOINTS", endpoints.to_string())
        .deadline(seconds + 2400);
    let tests = Tests::with(test, |line| match line.strip_prefix("sample ") {
        Some(sample) => samples.push(numbers(sample)),
        None if line.contains(" endpoints, ") => said = line.to_owned(),
        None => {}
    });
    // The curves of a run that failed say more than its last line.
    if words.iter().any(|word| word == "--save") {
        let file = root().join(DRAWING);
        fs_err::write(file, drawing(&samples))?;
    }
    tests?;
    Ok(format!("{} samples: {said}", samples.len()))
}

fn numbers(sample: &str) -> Vec<f64> {
    sample.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn drawing(samples: &[Vec<f64>]) -> String {
    let panel = |heading: &str, columns: &[usize]| Panel {
        heading: heading.to_owned(),
        lines: columns.iter().enumerate().map(|(colour, column)| line(samples, colour, *column)).collect(),
        x: |seconds| seconds.to_string(),
        y: |value| value.to_string(),
    };
    let panels = [
        panel("descriptors, threads, mappings", &[1, 2, 3]),
        panel("memory, KiB", &[4, 5]),
        panel("a message there and back, us", &[6, 7]),
    ];
    chart::svg("Soak: what the process holds over seconds", &panels)
}

fn line(samples: &[Vec<f64>], colour: usize, column: usize) -> Line {
    let with: Vec<&Vec<f64>> = samples.iter().filter(|sample| sample.len() > column).collect();
    let points = with.chunks(with.len().div_ceil(POINTS).max(1)).map(|chunk| {
        let mut values: Vec<f64> = chunk.iter().map(|sample| sample[column]).collect();
        values.sort_by(f64::total_cmp);
        (chunk[chunk.len() / 2][0].max(1.0), values[values.len() / 2].max(1.0))
    });
    Line { name: NAMES[column].to_owned(), colour, dash: Dash::Whole, points: points.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_medians_of_what_was_sampled() {
        let samples: Vec<Vec<f64>> =
            (1..=100).map(|second| numbers(&format!("{second} 7 {} 1 1 1 5", second % 3))).collect();
        let descriptors = line(&samples, 0, 1);
        assert_eq!(descriptors.points.len(), POINTS);
        assert!(descriptors.points.iter().all(|(_, value)| *value == 7.0), "{descriptors:?}");
        assert!(line(&samples, 0, 7).points.is_empty(), "there was no TCP");
        assert!(drawing(&samples).contains("threads"));
    }
}
