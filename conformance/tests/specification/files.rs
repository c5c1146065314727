//! The text files of the repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What may cite the specification.
const KINDS: [&str; 7] = ["rs", "md", "toml", "h", "c", "py", "sh"];

/// This test, whose bad examples cite identifiers that do not exist.
const OWN: &str = "conformance/tests/specification/";

const CHAPTERS: &str = "docs/spec/";

/// Texts by path below the root of the repository.
pub struct Files(BTreeMap<String, String>);

impl Files {
    pub fn read() -> Files {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = BTreeMap::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let entries =
                fs::read_dir(root.join(&folder)).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
            for entry in entries {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                let path = folder.join(&name);
                let kind = entry.file_type().unwrap();
                let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
                if kind.is_dir() && !name.starts_with('.') && name != "target" {
                    folders.push(path);
                } else if kind.is_file() && KINDS.contains(&extension) {
                    let text = fs::read(root.join(&path)).unwrap();
                    files.insert(path.display().to_string(), String::from_utf8_lossy(&text).into_owned());
                }
            }
        }
        Files(files)
    }

    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Files {
        Files(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    /// The chapters of the specification: name without extension, text.
    pub fn chapters(&self) -> Vec<(String, String)> {
        let name = |path: &str| Some(path.strip_prefix(CHAPTERS)?.strip_suffix(".md")?.to_owned());
        self.0.iter().filter_map(|(path, text)| Some((name(path)?, text.clone()))).collect()
    }

    /// All files but those of this test.
    pub fn all(&self) -> impl Iterator<Item = (String, &str)> {
        let files = self.0.iter().filter(|(path, _)| !path.starts_with(OWN));
        files.map(|(path, text)| (path.clone(), text.as_str()))
    }

    /// Whether a file of any kind, or a folder, exists in the repository.
    pub fn exists(&self, path: &str) -> bool {
        let inside = format!("{}/", path.trim_end_matches('/'));
        self.0.contains_key(path)
            || self.0.keys().any(|file| file.starts_with(&inside))
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path).exists()
    }
}
