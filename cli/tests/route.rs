//! Routes by the real command: the whole suite near and far, and what `explain` and `check` say of them.

mod support;

use std::path::PathBuf;

use support::{dat, start_with};

/// Routes whose near child never reaches a peer, so that everything goes through the far one, whose keys are others.
const ROUTES: &str = r#"
[provider.shm0]
library = "libdat_shm.so"
[provider.unreachable]
library = "libdat_loopback.so"
params = { domain = "unreachable", fail = "no_peer" }
[provider.process]
library = "libdat_loopback.so"
params = { domain = "process" }
[provider.absent]
library = "libdat_absent.so"
optional = true
[route.near]
near = ["shm0"]
far = ["absent"]
[route.far]
near = ["unreachable"]
far = ["shm0"]
[route.far-in-process]
near = ["unreachable"]
far = ["process"]
[route.both]
near = ["shm0"]
far = ["process"]
[route.nothing]
far = ["absent"]
"#;

/// A file with these lines.
fn file(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("plugins.toml");
    std::fs::write(&path, text).expect("written");
    path
}

fn conforms(route: &str, least: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder, ROUTES);
    let plugins = path.to_str().expect("a path in UTF-8");
    let done = dat(&["--plugins", plugins, "conformance", route, "--json"]).ok();
    let report = done.json();
    assert_eq!(report["conforming"], true, "{report:#}");
    // What a route lacks is told by its capabilities, and must not grow.
    assert!(report["passed"].as_u64().is_some_and(|passed| passed >= least), "{report:#}");
}

#[test]
fn every_clause_passes_near() {
    conforms("near", 330);
}

#[test]
fn every_clause_passes_with_translated_keys_between_two_processes() {
    conforms("far", 330);
}

#[test]
fn every_clause_passes_with_translated_keys_in_one_process() {
    conforms("far-in-process", 330);
}

#[test]
fn every_clause_passes_over_two_usable_children() {
    conforms("both", 330);
}

#[test]
fn explain_names_the_children_and_what_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder, ROUTES);
    let plugins = path.to_str().expect("a path in UTF-8");
    let text = dat(&["--plugins", plugins, "explain", "near"]).ok().out;
    assert!(text.contains("near is a route, defined at"), "{text}");
    assert!(text.contains("near shm0; far absent"), "{text}");
    assert!(text.contains("near opens over shm0; left out: absent"), "{text}");
    let text = dat(&["--plugins", plugins, "explain", "nothing"]).failed().out;
    assert!(text.contains("no child of the route is usable here"), "{text}");
    assert!(text.contains("libdat_absent.so"), "{text}");
    let text = dat(&["--plugins", plugins, "providers"]).ok().out;
    assert!(text.contains("route both: near shm0; far process"), "{text}");
}

#[test]
fn a_route_is_a_name_by_default_and_works_without_a_far_child() {
    let explained = dat(&["explain", "fabric0", "--json"]).ok().json();
    assert_eq!(explained["chosen"], "shm0", "{explained:#}");
    let server = start_with(&["ping", "fabric0", "--listen", "4747", "--once"], &[]);
    server.line();
    let pinged = dat(&["ping", "fabric0", "--connect", "127.0.0.1:4747", "--count", "3"]).ok();
    assert!(pinged.out.contains("shm0"), "the path is shown: {}", pinged.out);
    server.end().ok();
}

#[test]
fn a_peer_by_a_childs_own_name_is_refused() {
    let server = start_with(&["ping", "fabric0", "--listen", "4748"], &[]);
    server.line();
    let refused = dat(&["ping", "shm0", "--connect", "127.0.0.1:4748", "--count", "1"]).failed();
    // The words for NON_PEER_REJECTED.
    assert!(refused.err.contains("no process listens there"), "{}", refused.err);
    // The route still serves its own kind.
    dat(&["ping", "fabric0", "--connect", "127.0.0.1:4748", "--count", "1"]).ok();
}

#[test]
fn a_mistake_in_a_child_is_no_absence() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrong = ROUTES.replace("domain = \"process\"", "domian = \"process\"");
    let path = file(&folder, &wrong);
    let plugins = path.to_str().expect("a path in UTF-8");
    let text = dat(&["--plugins", plugins, "explain", "both"]).failed().out;
    assert!(text.contains("unknown parameter \"domian\""), "{text}");
    let wrong = format!("{ROUTES}[route.circle]\nnear = [\"near\"]\n");
    let path = file(&folder, &wrong);
    let plugins = path.to_str().expect("a path in UTF-8");
    let text = dat(&["--plugins", plugins, "explain", "circle"]).failed().err;
    assert!(text.contains("\"near\", which is not a provider; it is a route"), "{text}");
}
