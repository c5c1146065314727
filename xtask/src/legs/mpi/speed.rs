//! Latency and bandwidth of the MPI over each name, beside its own shared memory fabric.

use fs_err as fs;
use std::collections::BTreeMap;

use super::setup::{Setup, ending};
use crate::markdown::{Markdown, put};
use crate::need;
use crate::output;
use crate::process::Run;
use crate::report::{Report, Result};

/// Times each fabric is run, alternately. The table has the median, each of which is one of five batches already.
const ROUNDS: usize = 3;

/// Where the table is kept, and between which marks.
const SAVED: &str = "docs/c-library.md";
const MARKS: [&str; 2] = ["<!-- mpi -->\n", "<!-- end of mpi -->"];

/// What one fabric showed: by size, latencies in microseconds and bandwidths in MB/s.
type Samples = BTreeMap<u64, [Vec<f64>; 2]>;

/// Measures and prints the table; `save` puts it into the documentation.
pub fn run(save: bool, names: &[(&'static str, bool)]) -> Report {
    let setup = Setup::new()?;
    let libfabric = need::libfabric().is_ok();
    let ours = names.iter().filter(|(_, needs_libfabric)| libfabric || !needs_libfabric);
    let fabrics: Vec<Option<&str>> = [None].into_iter().chain(ours.map(|(name, _)| Some(*name))).collect();
    let mut samples: Vec<Samples> = fabrics.iter().map(|_| Samples::new()).collect();
    for _ in 0..ROUNDS {
        for (name, samples) in fabrics.iter().zip(&mut samples) {
            take(&setup.start(*name, 2, &[], "--speed")?, samples)?;
        }
    }
    let shown =
        |name: &Option<&str>| name.map_or("its own shared memory".to_owned(), |name| format!("`{name}`"));
    let heads: Vec<String> = ["bytes".to_owned()].into_iter().chain(fabrics.iter().map(shown)).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut page = format!("{}\n", place()?);
    for (index, what) in ["Latency, µs (half a round trip):", "Bandwidth, MB/s:"].into_iter().enumerate() {
        let mut table = Markdown::new(&heads, 0);
        for size in samples[0].keys() {
            let cell = |samples: &Samples| {
                samples.get(size).map_or("-".to_owned(), |pair| median(&pair[index], index))
            };
            table.row([size.to_string()].into_iter().chain(samples.iter().map(cell)).collect());
        }
        page.push_str(&format!("\n{what}\n\n{}", table.text()));
    }
    output::show(&page);
    if !save {
        return Ok("the tables above".into());
    }
    put(SAVED, MARKS, &page)?;
    Ok(SAVED.into())
}

/// Reads what a run printed. Both values of all sizes must be there.
fn take(text: &str, samples: &mut Samples) -> Result<()> {
    let mut found = 0;
    for line in text.lines() {
        let (index, rest) = match line.split_once(' ') {
            Some(("latency", rest)) => (0, rest),
            Some(("bandwidth", rest)) => (1, rest),
            _ => continue,
        };
        let value =
            rest.split_once(' ').and_then(|(size, value)| Some((size.parse().ok()?, value.parse().ok()?)));
        let (size, value): (u64, f64) = value.ok_or_else(|| format!("no measurement: {line:?}"))?;
        samples.entry(size).or_default()[index].push(value);
        found += 1;
    }
    match found {
        8 => Ok(()),
        _ => Err(format!("{found} of 8 measurements:\n{}", ending(text)).into()),
    }
}

fn median(values: &[f64], digits_of: usize) -> String {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let digits = if digits_of == 0 { 2 } else { 0 };
    match values.get(values.len() / 2) {
        None => "-".to_owned(),
        Some(value) if digits == 0 && *value < 1.0 => "<1".to_owned(),
        Some(value) => format!("{value:.digits$}"),
    }
}

/// When and where it was measured.
fn place() -> Result<String> {
    let date = Run::new("date").args(["-u", "+%F"]).output()?;
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named =
        text.lines().find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(": ")));
    let model = named.map_or("an unknown processor", |(_, name)| name.trim());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(format!("Measured on {} with two ranks, {model}, {processors} processors.", date.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_lacks_a_measurement_is_an_error() {
        let line = |what: &str, size: u64| format!("{what} {size} 1.5\n");
        let all: String =
            [8, 4096, 65536, 1_048_576].map(|size| line("latency", size) + &line("bandwidth", size)).concat();
        let mut samples = Samples::new();
        take(&format!("[0] MPI startup()\n{all}finalized\n"), &mut samples).expect("complete");
        assert_eq!(samples[&8], [vec![1.5], vec![1.5]]);
        assert!(take(&all.replace("latency 8 ", "latency x "), &mut samples).is_err());
        assert!(take(&line("latency", 8), &mut samples).is_err());
    }

    #[test]
    fn the_median_is_no_mean() {
        assert_eq!(median(&[9.0, 1.0, 2.0], 0), "2.00");
        assert_eq!(median(&[900.4, 100.0, 200.0], 1), "200");
        assert_eq!(median(&[0.4], 1), "<1");
        assert_eq!(median(&[], 1), "-");
    }
}
