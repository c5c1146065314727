//! What the fuzzer calls: the readers of configuration files.
#![allow(missing_docs, clippy::missing_panics_doc, reason = "not part of the interface")]

use std::path::Path;

use crate::entry::Scope;
use crate::{dat_conf, schema};

/// A `plugins.toml`: mistakes with their places, or entries that read back the same from their own text.
pub fn plugins_toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let path = Path::new("/etc/dat/plugins.toml");
    match schema::parse(path, Scope::System, text) {
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            for mistake in mistakes {
                assert!(mistake.location.line >= 1 && mistake.location.column >= 1);
                let _ = mistake.to_string();
            }
        }
        Ok(file) => {
            for entry in file.entries {
                let again = schema::parse(path, Scope::System, &entry.to_toml()).expect("its own text");
                assert_eq!(
                    (&again.entries[0].name, &again.entries[0].library),
                    (&entry.name, &entry.library)
                );
                assert_eq!(again.entries[0].params, entry.params);
                assert_eq!(again.entries[0].layers, entry.layers);
            }
            for chain in file.chains {
                assert!(!chain.steps.is_empty());
            }
            for route in file.routes {
                assert!(route.children().next().is_some());
            }
        }
    }
}

/// A `dat.conf`.
pub fn dat_conf(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (entries, remarks) = dat_conf::import(&text, "/etc/dat.conf");
    assert!(entries.len() + remarks.len() <= text.lines().count());
    for remark in remarks {
        let _ = remark.to_string();
    }
    for entry in entries {
        // As the C library opens a line: by its own text.
        let toml = entry.to_toml();
        let again = schema::parse(Path::new("/etc/dat.conf"), Scope::Explicit, &toml);
        assert_eq!(again.expect("its own text").entries[0].name, entry.name);
    }
}
