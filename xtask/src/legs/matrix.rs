//! The matrix of providers and clauses, from the reports the legs leave below the target directory.

use fs_err as fs;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::cargo::target_dir;
use crate::markdown::{Markdown, put};
use crate::output;
use crate::report::{Report, Result};
use crate::root::root;
use crate::values::list;

/// The rows, by the names of their reports, and the leg each comes from.
const ROWS: [(&str, &str); 10] = [
    ("loopback0", "conformance"),
    ("shm0", "conformance"),
    ("libfabric-tcp-msg", "libfabric"),
    ("libfabric-tcp-rdm", "libfabric"),
    ("libfabric-udp-rdm", "libfabric"),
    ("libfabric-shm", "libfabric"),
    ("libfabric-tcp-msg-two-hosts", "two hosts"),
    ("libfabric-tcp-rdm-two-hosts", "two hosts"),
    ("libfabric-verbs", "rdma"),
    ("ibverbs0", "rdma"),
];

/// Where the matrix is kept in the repository; and where its counts are repeated.
const SAVED: &str = "docs/conformance.md";
const README: &str = "README.md";
const MARKS: [&str; 2] = ["<!-- matrix -->\n", "<!-- end of matrix -->"];

/// Prints the matrix of all reports there are, with `save` into the repository too.
pub fn run(save: bool) -> Report {
    let folder = target_dir()?.join("conformance");
    let mut reports = Vec::new();
    let mut missing = Vec::new();
    for (name, leg) in ROWS {
        match read(&folder.join(format!("{name}.json"))) {
            Ok(report) => reports.push(report),
            Err(_) => missing.push(format!("{name} (leg {leg})")),
        }
    }
    let page = page(&reports);
    output::show(&format!("\n{page}"));
    if !missing.is_empty() {
        output::show(&format!("NOT RUN, no report: {}", missing.join(", ")));
    }
    fs::write(folder.join("matrix.md"), &page)?;
    if save {
        fs::write(root().join(SAVED), &page)?;
        put(README, MARKS, &counts(&reports))?;
    }
    let found = reports.len();
    match missing.is_empty() {
        true => Ok(format!("{found} providers")),
        false => Ok(format!("{found} providers; NOT RUN: {}", missing.join(", "))),
    }
}

/// A report.
pub(super) fn read(json: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(json)?)?)
}

/// The counts of each provider, as a table.
fn counts(reports: &[Value]) -> String {
    let heads =
        ["provider", "clauses", "run", "passed", "expected failures", "not supported", "n/a", "failed"];
    let mut table = Markdown::new(&heads, 1);
    for report in reports {
        let count = |verdicts: &[&str]| with(report, verdicts).count().to_string();
        table.row(vec![
            text(&report["provider"]).to_owned(),
            list(&report["clauses"]).len().to_string(),
            report["ran"].to_string(),
            report["passed"].to_string(),
            count(&["expected failure"]),
            count(&["not supported"]),
            count(&["not applicable"]),
            count(&BAD),
        ]);
    }
    table.text()
}

/// The matrix, and every clause that did not simply pass.
pub(super) fn page(reports: &[Value]) -> String {
    let mut out = String::from(
        "# Conformance\n\nWritten by `cargo xtask matrix --save`: the clauses of the [specification](spec/README.md) over each \
         provider. `dat conformance NAME` tests any other provider.\n\n- Not supported: the clause is about an \
         optional feature that the provider does not offer.\n- n/a: the situation of the clause cannot arise with \
         the provider, or cannot be arranged.\n\n[Choices](spec/choices.md) lists the clauses that accept more than \
         one answer.\n\n",
    );
    out.push_str(&counts(reports));
    if let Some(report) = reports.first() {
        let pending: u64 = list(&report["not_written_yet"]).iter().map(span).sum();
        let by_type = list(&report["ruled_out_by_types"]).len();
        let by_engine = list(&report["ruled_out_by_engine"]).len();
        let _ = writeln!(
            out,
            "\nFurther clauses: {pending} not written yet, {by_type} excluded by Rust's types, {by_engine} by the engine."
        );
    }
    for report in reports {
        let _ = writeln!(out, "\n## {}\n", text(&report["provider"]));
        let notable: Vec<&Value> = with(report, &["expected failure", "not supported", "not applicable"])
            .chain(with(report, &BAD))
            .collect();
        if notable.is_empty() {
            out.push_str("All clauses that ran passed.\n");
        }
        for clause in notable {
            let (number, title) = (text(&clause["clause"]), text(&clause["title"]));
            let _ = writeln!(
                out,
                "- {number} {}: {title} ({})",
                text(&clause["verdict"]),
                text(&clause["message"])
            );
        }
    }
    out.push_str(&return_codes(reports));
    if let Some(report) = reports.first() {
        out.push_str(
            "\n## Excluded clauses\n\nThe calls of these clauses cannot be written in Rust, or the engine excludes \
             the case for every provider.\n\n",
        );
        let reasons = ["ruled_out_by_types", "ruled_out_by_engine"];
        for clause in reasons.iter().flat_map(|key| list(&report[*key])) {
            let _ = writeln!(
                out,
                "- C-{:03}: {}",
                clause["clause"].as_u64().unwrap_or(0),
                text(&clause["reason"])
            );
        }
    }
    out
}

/// The return codes that calls can give: how many clauses met, over any provider, and the others.
fn return_codes(reports: &[Value]) -> String {
    let Some((first, others)) = reports.split_first() else { return String::new() };
    let is = |code: &Value, other: &Value| code["call"] == other["call"] && code["code"] == other["code"];
    let unmet_by = |report: &Value, code: &Value| {
        list(&report["return_codes_not_met"]).iter().any(|other| is(code, other))
    };
    let unmet: Vec<&Value> = list(&first["return_codes_not_met"])
        .iter()
        .filter(|code| others.iter().all(|report| unmet_by(report, code)))
        .collect();
    let all = first["return_codes_of_calls"].as_u64().unwrap_or(0);
    let met = all.saturating_sub(unmet.len() as u64);
    let mut out = format!(
        "\n## Return codes\n\nThe specification lists {all} return codes, call by call. Clauses met {met} of them. The \
         others:\n\n"
    );
    for code in unmet {
        let reason = code["reason"].as_str().unwrap_or("no clause produces it");
        let _ = writeln!(out, "- {} {}: {reason}", text(&code["call"]), text(&code["code"]));
    }
    out
}

const BAD: [&str; 2] = ["failed", "unexpected pass"];

fn with<'a>(report: &'a Value, verdicts: &'a [&str]) -> impl Iterator<Item = &'a Value> {
    list(&report["clauses"]).iter().filter(|clause| verdicts.contains(&text(&clause["verdict"])))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

/// How many clauses a range holds.
fn span(range: &Value) -> u64 {
    let number = |key: &str| range[key].as_u64().unwrap_or(0);
    (number("last") + 1).saturating_sub(number("first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_counts_and_names_what_did_not_pass() {
        let report = serde_json::json!({
            "provider": "shm0", "ran": 2, "passed": 1,
            "clauses": [
                {"clause": "C-001", "title": "a", "verdict": "passed", "message": ""},
                {"clause": "C-002", "title": "b", "verdict": "failed", "message": "seen c"},
                {"clause": "C-003", "title": "d", "verdict": "not supported", "message": "no e"},
                {"clause": "C-004", "title": "f", "verdict": "not applicable", "message": "no g"},
            ],
            "not_written_yet": [{"first": 10, "last": 12, "reason": "later"}],
            "ruled_out_by_types": [{"clause": 9, "reason": "no null"}],
            "ruled_out_by_engine": [{"clause": 8, "reason": "all have it"}],
            "return_codes_of_calls": 12,
            "return_codes_not_met": [
                {"call": "dat_a", "code": "DAT_X", "reason": "nobody can"},
                {"call": "dat_a", "code": "DAT_Y", "reason": null},
            ],
        });
        let mut other = report.clone();
        other["return_codes_not_met"] =
            serde_json::json!([{"call": "dat_a", "code": "DAT_X", "reason": "nobody can"}]);
        let page = page(&[report, other]);
        assert!(page.contains("lists 12 return codes") && page.contains("met 11 of them"), "{page}");
        assert!(page.contains("- dat_a DAT_X: nobody can") && !page.contains("DAT_Y"), "{page}");
        assert!(page.split_whitespace().collect::<String>().contains("|shm0|4|2|1|0|1|1|1|"), "{page}");
        assert!(page.contains("3 not written yet, 1 excluded by Rust's types, 1 by the engine"), "{page}");
        assert!(page.contains("- C-002 failed: b (seen c)") && !page.contains("C-001"), "{page}");
        assert!(page.contains("- C-009: no null") && page.contains("- C-008: all have it"), "{page}");
    }
}
