//! The suite over the loopback provider, linked in, peers in this process.

use dat_conformance::{Expected, Filter, Subject, run};
use dat_engine::Plugin;
use dat_plugin::Config;

#[test]
fn loopback_conforms() {
    let config = Config { ia_name: "loopback0".into(), ..Config::default() };
    let subject =
        Subject::new("loopback0", Plugin::of::<dat_loopback::Loopback>(), config).injecting_faults();
    let expected =
        Expected::parse(include_str!("../../expected/loopback0.toml")).expect("expected/loopback0.toml");
    let report = run(subject, &Filter::all(), &expected);
    println!("{}", report.to_text(false));
    assert!(report.conforming(), "loopback0 does not conform:\n{}", report.to_text(false));
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
