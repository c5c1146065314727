//! The specification in `docs/spec` against the suite, the code and the documentation.
//!
//! Each check returns a list of faults, so that tests can give it bad input as well.

mod files;
mod ids;
mod links;
mod spec;

use dat_conformance::{BY_ENGINE, BY_TYPE, clauses};

use files::Files;
use spec::{Spec, Test};

fn read() -> (Files, Spec) {
    let files = Files::read();
    let (spec, faults) = Spec::parse(&files.chapters());
    none(&faults);
    (files, spec)
}

#[track_caller]
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_clause_has_a_test_or_a_reason_and_equal_titles() {
    let (_, spec) = read();
    let tests: Vec<Test> = clauses()
        .into_iter()
        .map(|clause| Test {
            id: clause.name(),
            title: clause.title.to_owned(),
            chapter: clause.chapter().to_owned(),
        })
        .collect();
    let excluded = BY_TYPE.iter().chain(BY_ENGINE);
    let reasons: Vec<(String, String)> =
        excluded.map(|(number, reason)| (format!("C-{number:03}"), (*reason).to_owned())).collect();
    assert!(tests.len() > 350 && spec.len() > 400, "{} tests, {} entries", tests.len(), spec.len());
    none(&spec.against(&tests, &reasons));
}

#[test]
fn every_identifier_in_use_is_specified() {
    let (files, spec) = read();
    let mut faults = Vec::new();
    let mut used = 0;
    for (path, text) in files.all() {
        used += ids::used(text).len();
        faults.extend(ids::faults(&path, text, &spec));
    }
    assert!(used > 600, "only {used} identifiers were found");
    none(&faults);
}

#[test]
fn links_between_documents_lead_to_files_and_anchors() {
    let (files, _) = read();
    let (count, faults) = links::faults(&files);
    assert!(count > 100, "only {count} links were found");
    none(&faults);
}
