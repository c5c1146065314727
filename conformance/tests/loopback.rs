//! The suite over the loopback provider, linked in, peers in this process.

use std::collections::BTreeSet;

use dat_conformance::{Expected, Filter, Report, Subject, run};
use dat_engine::Plugin;
use dat_plugin::Config;
use dat_types::{ReturnCode, ReturnType};

#[test]
fn loopback_conforms() {
    let config = Config { ia_name: "loopback0".into(), ..Config::default() };
    let subject =
        Subject::new("loopback0", Plugin::of::<dat_loopback::Loopback>(), config).injecting_faults();
    let expected =
        Expected::parse(include_str!("../expected/loopback0.toml")).expect("expected/loopback0.toml");
    let report = run(subject, &Filter::all(), &expected);
    println!("{}", report.to_text(false));
    assert!(report.conforming(), "loopback0 does not conform:\n{}", report.to_text(false));
    every_code_was_met(&report);
    every_code_of_each_call_was_met(&report);
}

/// Codes that loopback cannot give, because it lacks nothing; clauses meet them over other providers.
const ELSEWHERE: [(&str, ReturnType); 3] = [
    ("dat_extension_op", ReturnType::NotImplemented),
    ("dat_ep_post_send_with_invalidate", ReturnType::ModelNotSupported),
    ("dat_srq_create", ReturnType::ModelNotSupported),
];

/// The same by call: each call returned every code that the specification lists for it, or cannot return it here.
fn every_code_of_each_call_was_met(report: &Report) {
    let unmet = report.unmet();
    let missing: Vec<_> = unmet
        .iter()
        .filter(|unmet| unmet.reason.is_none() && !ELSEWHERE.contains(&(unmet.call, unmet.code)))
        .collect();
    assert!(missing.is_empty(), "no clause produces {missing:?}");
    let stale: Vec<_> = dat_conformance::stale_reasons(&report.met);
    assert!(stale.is_empty(), "produced although listed as impossible: {stale:?}");
}

/// Return codes no clause can produce here, each with the reason.
const NOT_HERE: [(ReturnType, &str); 6] = [
    (ReturnType::Success, "no error"),
    (ReturnType::ReservedLmr, "of the kernel's interface; never returned here"),
    (
        ReturnType::InternalError,
        "a provider that breaks its contract causes it; the registry's tests have one",
    ),
    (ReturnType::ProviderAlreadyRegistered, "the C library's registry; its tests produce it"),
    (ReturnType::ProviderInUse, "the C library's registry; its tests produce it"),
    (
        ReturnType::NotImplemented,
        "operations a provider lacks, and loopback has all; C-358 produces it elsewhere",
    ),
];

/// Misuse, exhaustion and overflow: every code of the specification was returned by some call of the run.
fn every_code_was_met(report: &Report) {
    let met: BTreeSet<ReturnType> = report.codes.iter().filter_map(|code| ReturnCode(*code).kind()).collect();
    let all = (0..=0x3FFF).filter_map(|value| ReturnCode(value << 16).kind());
    let missing: Vec<ReturnType> =
        all.filter(|kind| !met.contains(kind) && NOT_HERE.iter().all(|(known, _)| known != kind)).collect();
    assert!(missing.is_empty(), "no clause produces {missing:?}");
    let stale: Vec<_> = NOT_HERE.iter().filter(|(kind, _)| met.contains(kind)).collect();
    assert!(stale.is_empty(), "produced although listed as impossible: {stale:?}");
}

#[test]
fn a_filter_that_takes_nothing_does_not_conform() {
    let config = Config { ia_name: "loopback0".into(), ..Config::default() };
    let subject = Subject::new("loopback0", Plugin::of::<dat_loopback::Loopback>(), config);
    let report = run(subject, &Filter::prefixes(["C-9".to_owned()]), &Expected::default());
    assert!(!report.conforming(), "a run of nothing passed");
}

#[test]
fn a_clause_that_passes_against_expectation_does_not_conform() {
    let config = Config { ia_name: "loopback0".into(), ..Config::default() };
    let subject = Subject::new("loopback0", Plugin::of::<dat_loopback::Loopback>(), config);
    let expected = Expected::parse("C-001 = \"a reason that is out of date\"").unwrap();
    let report = run(subject, &Filter::prefixes(["C-001".to_owned()]), &expected);
    assert!(!report.conforming(), "an unexpected pass went unnoticed");
}
