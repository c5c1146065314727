//! The figures of all rounds, and their medians.

use std::collections::BTreeMap;

use dat_measure::cpu::Placement;
use serde_json::{Value, json};

use super::points::{Point, Test};

/// The figures of all rounds.
#[derive(Default)]
pub(crate) struct Figures {
    rows: BTreeMap<(Test, u32, &'static str, String), Samples>,
    /// Who could not be measured, why, and how often.
    missing: BTreeMap<(String, String), u32>,
    pub(crate) dropped: u32,
    /// Samples of each test and program, dropped ones too.
    pub(crate) taken: BTreeMap<(Test, String), u32>,
}

#[derive(Default)]
struct Samples {
    values: Vec<f64>,
    probes: Vec<f64>,
}

impl Figures {
    pub(crate) fn add(&mut self, (test, size): Point, who: &str, place: Placement, probe: f64, value: f64) {
        *self.taken.entry((test, who.to_owned())).or_default() += 1;
        if place == Placement::Mixed {
            self.dropped += 1;
            return;
        }
        let row = self.rows.entry((test, size, place.name(), who.to_owned())).or_default();
        row.values.push(value);
        row.probes.push(probe);
    }

    pub(crate) fn miss(&mut self, who: &str, why: &str) {
        *self.missing.entry((who.to_owned(), why.to_owned())).or_default() += 1;
    }

    pub(crate) fn to_json(&self) -> (Vec<Value>, Vec<Value>) {
        let rows = self.rows.iter().map(|((test, size, place, who), samples)| {
            let mut sorted = samples.values.clone();
            sorted.sort_by(f64::total_cmp);
            if !test.less_is_better() {
                sorted.reverse();
            }
            json!({
                "test": test.name(), "size": size, "place": place, "who": who, "unit": test.unit(),
                "median": rounded(sorted[sorted.len() / 2]), "best": rounded(sorted[0]),
                "worst": rounded(sorted[sorted.len() - 1]), "samples": sorted.len(),
                "probe": rounded(median(&samples.probes)),
            })
        });
        let missing =
            self.missing.iter().map(|((who, why), times)| json!({ "who": who, "why": why, "times": times }));
        (rows.collect(), missing.collect())
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Four digits are more than any of the figures is worth.
fn rounded(value: f64) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}
