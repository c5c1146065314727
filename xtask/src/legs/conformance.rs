//! The clauses of the contract over every provider of the tree, and the matrix of the results.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::cargo::{cargo, target_dir};
use crate::leg::{Outcome, Report};
use crate::process::Run;

/// Builds the runner and the plugin, runs each provider, prints and saves the matrix.
pub fn run() -> Report {
    cargo().args(["build", "-p", "dat-conformance", "-p", "dat-shm", "-p", "dat-loopback"]).run()?;
    let built = target_dir()?.join("debug");
    let out = target_dir()?.join("conformance");
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let shm = built.join("libdat_shm.so");
    let subjects: [(&str, Vec<&str>); 2] = [
        ("loopback", vec!["loopback"]),
        ("shm0", vec!["--plugin", shm.to_str().ok_or("the target directory is no UTF-8")?, "--name", "shm0"]),
    ];
    let mut failures = Vec::new();
    let mut rows = Vec::new();
    for (name, arguments) in &subjects {
        let (json, junit) = (out.join(format!("{name}.json")), out.join(format!("{name}.junit.xml")));
        let _ = fs::remove_file(&json);
        let run = Run::new(&built.join("dat-conformance").to_string_lossy()).args(arguments);
        let run = run.args(["--json".as_ref(), json.as_os_str(), "--junit".as_ref(), junit.as_os_str()]);
        if let Err(message) = run.run() {
            failures.push(format!("{name}: {message}"));
        }
        rows.push(row(name, &json)?);
    }
    let table = matrix(&rows);
    println!("\n{table}");
    let file = out.join("matrix.md");
    fs::write(&file, &table).map_err(|error| format!("{}: {error}", file.display()))?;
    match failures.is_empty() {
        true => Ok(Outcome::passed(format!("{} providers, saved in {}", rows.len(), out.display()))),
        false => Err(failures.join("; ")),
    }
}

fn row(name: &str, json: &Path) -> Result<[String; 1], String> {
    let text = fs::read_to_string(json).map_err(|error| format!("{}: {error}", json.display()))?;
    let _value: Value =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", json.display()))?;
    Ok([name.to_owned()])
}

fn matrix(rows: &[[String; 1]]) -> String {
    rows.iter().map(|row| row.join(" | ")).collect::<Vec<_>>().join("\n")
}
