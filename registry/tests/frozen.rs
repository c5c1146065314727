//! The plugins of released versions of the interface (`tests/frozen`): each is the file that was frozen, and still loads
//! and opens. `cargo xtask frozen` runs the conformance suite over those that move bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dat_plugin::Config;
use dat_plugin::host::{Plugin, inspect};
use sha2::{Digest as _, Sha256};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/frozen")
}

/// File and digest of each row of the table.
fn listed() -> BTreeMap<String, String> {
    let text = fs::read_to_string(folder().join("README.md")).expect("the list");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        (cells[1].to_owned(), cells[cells.len() - 2].to_owned())
    })
    .collect()
}

#[test]
fn every_frozen_plugin_is_listed_and_none_was_changed() {
    let mut there: Vec<String> = fs::read_dir(folder())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".so"))
        .collect();
    there.sort();
    let listed = listed();
    assert_eq!(there, listed.keys().cloned().collect::<Vec<_>>());
    for (name, digest) in &listed {
        let bytes = fs::read(folder().join(name)).expect("there");
        let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(&found, digest, "{name} is not the file that was frozen");
        assert!(bytes.len() < 1 << 20, "{name} is kept for ever and has {} bytes", bytes.len());
    }
}

#[test]
fn every_frozen_plugin_for_this_architecture_loads_and_opens() {
    let listed = listed();
    let own: Vec<&String> = listed.keys().filter(|name| name.contains(std::env::consts::ARCH)).collect();
    if own.is_empty() && !cfg!(target_arch = "x86_64") {
        println!("NOT RUN: no frozen plugin is for {}", std::env::consts::ARCH);
        return;
    }
    for language in ["c", "rust"] {
        assert!(
            own.iter().any(|name| name.ends_with(&format!("-{language}.so"))),
            "none in {language}: {own:?}"
        );
    }
    for name in own {
        let path = folder().join(name);
        let noted = inspect(&path).expect("a plugin").abi;
        assert!(name.starts_with(&format!("{}.{}-", noted.0, noted.1)), "{name} says it is for {noted:?}");
        let plugin = Plugin::load(&path).unwrap_or_else(|error| panic!("{name} {error}"));
        assert_eq!(plugin.abi(), noted);
        let device = plugin.open(&Config { ia_name: "frozen".into(), ..Config::default() });
        let device = device.unwrap_or_else(|failure| panic!("{name}: {failure}"));
        assert!(!device.describe().is_empty() && device.attr().max_segments > 0, "{name}");
    }
}
