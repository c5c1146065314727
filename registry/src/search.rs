//! From a library's name in `plugins.toml` to a file.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::entry::Entry;
use crate::environment::Environment;

/// One searched path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Looked {
    /// The path.
    pub path: PathBuf,
    /// Why it is searched.
    pub because: String,
    /// Whether the path exists.
    pub exists: bool,
}

/// All paths where the entry's library may be, in order. The first that exists is taken, usable or not.
pub(crate) fn places(entry: &Entry, environment: &Environment) -> Vec<Looked> {
    let look = |path: PathBuf, because: &str| Looked {
        // A broken link counts as existing: the loader reports it, and no other file replaces it.
        exists: path.symlink_metadata().is_ok(),
        path,
        because: because.to_owned(),
    };
    let library = Path::new(&entry.library);
    if library.is_absolute() {
        return vec![look(library.to_owned(), "absolute path")];
    }
    if entry.library.contains('/') {
        return vec![look(entry.folder().join(library), "relative to the defining file")];
    }
    let mut folders: Vec<(PathBuf, &str)> = Vec::new();
    let mut add = |folder: PathBuf, because| {
        if folders.iter().all(|(known, _)| *known != folder) {
            folders.push((folder, because));
        }
    };
    entry.search.iter().for_each(|folder| add(folder.clone(), "search of the defining file"));
    environment.plugin_path.iter().for_each(|folder| add(folder.clone(), "DAT_PLUGIN_PATH"));
    if entry.defined.file.is_absolute() {
        add(entry.folder().to_owned(), "folder of the defining file");
    }
    if let Some(folder) = environment.executable.as_deref().and_then(Path::parent) {
        add(folder.to_owned(), "folder of the executable");
        if let Some(parent) = folder.parent() {
            // Cargo puts tests and examples one folder below the libraries.
            // `deps` has the libraries that were built for an example. Those above may be older.
            if folder.ends_with("examples") {
                add(parent.join("deps"), "build folder of the executable");
            }
            if folder.ends_with("deps") || folder.ends_with("examples") {
                add(parent.to_owned(), "build folder of the executable");
            }
            add(parent.join("lib/dat"), "lib/dat beside the executable's folder");
        }
    }
    environment.beside.iter().for_each(|folder| add(folder.clone(), "beside this library"));
    add(environment.root.join("usr/local/lib/dat"), "system");
    add(environment.root.join("usr/lib/dat"), "system");
    folders.into_iter().map(|(folder, because)| look(folder.join(library), because)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(library: &str, executable: &str) -> Vec<String> {
        let text = format!("[registry]\nsearch = [\"lib\"]\n[provider.a]\nlibrary = {library:?}\n");
        let crate::scopes::Found { entries, .. } =
            crate::scopes::text("/conf/plugins.toml", &text).expect("valid");
        let environment = Environment {
            secure: false,
            plugins: None,
            plugin_path: vec!["/env".into()],
            user: None,
            root: "/".into(),
            executable: Some(executable.into()),
            beside: Vec::new(),
        };
        places(&entries[0], &environment).iter().map(|place| place.path.display().to_string()).collect()
    }

    #[test]
    fn a_file_name_is_looked_for_in_the_documented_order() {
        assert_eq!(
            paths("x.so", "/opt/bin/app"),
            [
                "/conf/lib/x.so",
                "/env/x.so",
                "/conf/x.so",
                "/opt/bin/x.so",
                "/opt/lib/dat/x.so",
                "/usr/local/lib/dat/x.so",
                "/usr/lib/dat/x.so"
            ]
        );
    }

    #[test]
    fn tests_and_examples_find_the_build_folder() {
        assert!(paths("x.so", "/t/debug/deps/test-1").contains(&"/t/debug/x.so".into()));
        assert!(paths("x.so", "/t/debug/examples/hello").contains(&"/t/debug/x.so".into()));
    }

    #[test]
    fn a_path_is_that_file_and_no_other() {
        assert_eq!(paths("/a/x.so", "/opt/bin/app"), ["/a/x.so"]);
        assert_eq!(paths("sub/x.so", "/opt/bin/app"), ["/conf/sub/x.so"]);
    }
}
