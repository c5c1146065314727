//! `cargo xtask new-provider NAME PATH`: a provider's crate outside of this tree, which builds, loads and conforms.
//!
//! It is the loopback provider under a new name: the executable model of the interface is tested with every change of
//! it, and an author replaces it piece by piece with a suite that passes from the first minute.

use fs_err as fs;
use std::path::Path;

use crate::report::{Report, Result};
use crate::root::{files_below, root};

const MODEL: &str = "providers/loopback/src";

/// What is written besides the model's sources: the file, and its text.
const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("../template/Cargo.toml.in")),
    ("README.md", include_str!("../template/README.md")),
    ("plugins.toml", include_str!("../template/plugins.toml")),
    ("tests/loads.rs", include_str!("../template/loads.rs.in")),
];
const LIB_DOCS: &str = include_str!("../template/lib.md");

/// Names of the model's types; what follows `Loop` stays.
const TYPES: [&str; 6] = ["LoopChannel", "LoopDevice", "LoopListener", "LoopQueue", "LoopSrq", "Loopback"];

/// Runs the command.
pub fn run(arguments: &[String]) -> Report {
    let [name, path] = arguments else {
        return Err("two arguments: the provider's name and the folder to make, as in `mine ../mine`".into());
    };
    let written = write(name, Path::new(path))?;
    Ok(format!(
        "{written} files in {path}; now:\n  cargo build --manifest-path {path}/Cargo.toml\n  cargo run -q -p dat-cli -- \
         conformance --plugin {path}/target/debug/lib{}.so",
        crate_name(name)
    ))
}

/// Writes the crate; the number of files.
pub fn write(name: &str, folder: &Path) -> Result<usize> {
    check(name)?;
    let there = match fs::read_dir(folder) {
        Ok(there) => there.count(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error.into()),
    };
    if there > 0 {
        fail!("{} is not empty; name a folder to make", folder.display());
    }
    let mut files: Vec<(String, String)> = Vec::new();
    let model = root().join(MODEL);
    for path in files_below(&model)? {
        let text = fs::read_to_string(&path)?;
        let file = path.strip_prefix(&model).unwrap_or(&path).to_string_lossy().into_owned();
        let text = if file == "lib.rs" { with_docs(&text, LIB_DOCS) } else { text };
        files.push((format!("src/{file}"), renamed(&text, name)));
    }
    files.extend(FILES.map(|(file, text)| (file.to_owned(), text.to_owned())));
    // The versions this tree was tested with, so that nothing needs to be fetched that was not.
    let lock = root().join("Cargo.lock");
    files.push(("Cargo.lock".into(), fs::read_to_string(&lock)?));
    files.push((".gitignore".into(), "/target\n".into()));
    for (file, text) in &files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(&path, filled(text, name)?)?;
    }
    Ok(files.len())
}

/// A name is part of a crate's, a library's and an adapter's.
fn check(name: &str) -> Result<()> {
    let good = name.len() <= 31
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-');
    match good {
        true => Ok(()),
        false => Err(format!(
            "{name:?} is no provider's name: at most 31 lower-case letters, digits, _ and -, a letter first"
        )
        .into()),
    }
}

fn crate_name(name: &str) -> String {
    format!("dat_{}", name.replace('-', "_"))
}

/// `my-fabric` as `MyFabric`.
fn type_name(name: &str) -> String {
    let capital = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_ascii_uppercase() + rest
    };
    name.split(['-', '_']).map(capital).collect()
}

/// The model's source under the new name.
fn renamed(text: &str, name: &str) -> String {
    let new = type_name(name);
    let text = TYPES.iter().fold(text.to_owned(), |text, old| {
        let kept = if *old == "Loopback" { "" } else { &old["Loop".len()..] };
        text.replace(old, &format!("{new}{kept}"))
    });
    text.replace("name: \"loopback\"", &format!("name: \"{name}\"")).replace(
        "devices of one process, for tests and for trying things out",
        "begun from the loopback provider",
    )
}

/// A source with other words at its head.
fn with_docs(text: &str, docs: &str) -> String {
    let code: Vec<&str> = text.lines().skip_while(|line| line.starts_with("//!")).collect();
    format!("{docs}{}\n", code.join("\n"))
}

/// The places of a template filled in.
fn filled(text: &str, name: &str) -> Result<String> {
    let manifest = root().join("Cargo.toml");
    let manifest = fs::read_to_string(&manifest)?;
    let line = |key: &str| {
        let found = manifest.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
        found.map(|value| value.trim().to_owned()).ok_or(format!("Cargo.toml has no {key}"))
    };
    let tree = fs::canonicalize(root())?;
    Ok(text
        .replace("@NAME@", name)
        .replace("@CRATE@", &crate_name(name))
        .replace("@PACKAGE@", &crate_name(name).replace('_', "-"))
        .replace("@TYPE@", &type_name(name))
        .replace("@ROOT@", &tree.to_string_lossy())
        .replace("@EDITION@", line("edition")?.trim_matches('"'))
        .replace("@RUST@", line("rust-version")?.trim_matches('"'))
        .replace("@RUSTIX@", &line("rustix")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_model_is_left_in_a_new_crate() {
        let folder = tempfile::tempdir().expect("a folder");
        let written = write("my-fabric2", folder.path()).expect("written");
        assert!(written >= 15, "{written}");
        let source = folder.path().join("src");
        for file in files_below(&source).expect("there") {
            let text = fs::read_to_string(file).expect("text");
            for old in TYPES {
                assert!(!text.contains(old), "{old} in {text}");
            }
            assert!(!text.contains('@') || text.contains(" @ "), "{text}");
        }
        let lib = fs::read_to_string(source.join("lib.rs")).expect("there");
        assert!(
            lib.starts_with("//! my-fabric2: a provider") && lib.contains("pub struct MyFabric2;"),
            "{lib}"
        );
        assert!(lib.contains("name: \"my-fabric2\""), "{lib}");
        let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).expect("there");
        assert!(manifest.contains("name = \"dat-my-fabric2\"") && !manifest.contains('@'), "{manifest}");
        // A folder that has something in it is left alone.
        assert!(write("other", folder.path()).expect_err("not empty").words().contains("is not empty"));
    }

    #[test]
    fn names_that_could_not_be_a_crates_are_refused() {
        for name in ["", "Mine", "2fast", "a b", "ä", &"n".repeat(32), "../x"] {
            assert!(check(name).is_err(), "{name}");
        }
        assert!(check("mlx5_fast-2").is_ok());
    }
}
