//! `cargo xtask docs`: files of `docs/` that are printed from the code, and the manual pages and shell completions of
//! the command `dat`, which it prints itself, for packagers.

use std::fs;
use std::path::Path;

use crate::cargo::{cargo, target_dir};
use crate::leg::{Outcome, Report};
use crate::process::Run;
use crate::{header, root};

type Print = fn() -> Result<String, String>;

/// A file and the function that prints it.
const PRINTED: [(&str, Print); 2] =
    [("docs/ep-states.md", || Ok(dat_engine::states::print())), (header::FILE, header::text)];

/// Writes every printed file; with `check`, compares only and fails on a difference.
pub fn run(check: bool) -> Report {
    let mut stale = Vec::new();
    for (file, print) in PRINTED {
        if fs::read_to_string(root().join(file)).ok() != Some(print()?) {
            stale.push(file);
        }
    }
    if check {
        return match stale.is_empty() {
            true => Ok(Outcome::passed(format!("{} printed file(s) up to date", PRINTED.len()))),
            false => Err(format!("out of date: {}; run `cargo xtask docs`", stale.join(", "))),
        };
    }
    for (file, print) in PRINTED {
        let path = root().join(file);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(|e| format!("{file}: {e}"))?;
        fs::write(&path, print()?).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("wrote {file}");
    }
    pages()?;
    Ok(Outcome::passed(format!("{} of {} changed", stale.len(), PRINTED.len())))
}

/// Manual pages and completions, under the target directory.
fn pages() -> Result<(), String> {
    cargo().args(["build", "-p", "dat-cli"]).run()?;
    let target = target_dir()?;
    let dat = || Run::new(&target.join("debug/dat").to_string_lossy());
    let (man, completions) = (target.join("man"), target.join("completions"));
    for folder in [&man, &completions] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    dat().args(["man".as_ref(), man.as_os_str()]).run()?;
    for shell in ["bash", "zsh", "fish"] {
        let text = dat().args(["completions", shell]).output()?;
        let file = completions.join(format!("dat.{shell}"));
        fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    println!("wrote {} and {}", man.display(), completions.display());
    Ok(())
}
