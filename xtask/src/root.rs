//! Where the workspace is, and what is in it.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::report::Result;

/// The workspace's root.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All files below a folder, in order of their names; none if there is no such folder.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if folder.is_dir() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => files.extend(files_below(&path)?),
                false => files.push(path),
            }
        }
    }
    files.sort();
    Ok(files)
}
