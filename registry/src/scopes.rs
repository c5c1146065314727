//! The scopes: which files apply, in which order, and which definition of a name wins.
//!
//! A name in an earlier scope overrides the same name in a later one. `explain` shows overridden definitions. Within one
//! scope nothing has precedence: a name that is defined twice is an error that names both locations.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::entry::{Chain, Diagnostic, Entry, Location, Route, Scope, Severity};
use crate::environment::Environment;
use crate::error::{RegistryError, nearest};
use crate::read::{self, Unread};
use crate::schema::{self, File};
use crate::trust;

/// The names of all scopes.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub entries: Vec<Entry>,
    pub chains: Vec<Chain>,
    pub routes: Vec<Route>,
}

/// The built-in default, which is also the documented example.
const DEFAULT: &str = include_str!("../../plugins.toml");

/// Every scope.
pub(crate) fn all(environment: &Environment) -> Result<Found, RegistryError> {
    let mut reading = Reading { environment: Some(environment), ..Reading::default() };
    if let Some(file) = &environment.plugins {
        reading.named_file(file, Scope::Environment);
    }
    if let Some(folder) = environment.user.as_ref().filter(|folder| is_own(folder)) {
        reading.optional_file(&folder.join("plugins.toml"), Scope::User);
        reading.drop_ins(&folder.join("plugins.d"), Scope::User);
    }
    let under = |path: &str| environment.root.join(path);
    reading.optional_file(&under("etc/dat/plugins.toml"), Scope::System);
    reading.drop_ins(&under("etc/dat/plugins.d"), Scope::System);
    reading.drop_ins(&under("usr/share/dat/plugins.d"), Scope::Vendor);
    reading.text(Path::new("built-in/plugins.toml"), Scope::Default, DEFAULT);
    reading.merge()
}

/// One file, named by the program.
pub(crate) fn explicit(path: &Path) -> Result<Found, RegistryError> {
    let mut reading = Reading::default();
    reading.named_file(path, Scope::Explicit);
    reading.merge()
}

/// One file. A step of a chain or a child of a route may also be one of the `known` names, which other scopes define.
pub(crate) fn checked(path: &Path, known: &[Entry]) -> Result<Found, RegistryError> {
    let mut reading = Reading { known, ..Reading::default() };
    reading.named_file(path, Scope::Explicit);
    reading.merge()
}

/// One text.
pub(crate) fn text(name: &str, text: &str) -> Result<Found, RegistryError> {
    let mut reading = Reading::default();
    reading.text(Path::new(name), Scope::Explicit, text);
    reading.merge()
}

/// Files in the order of scopes, and their errors.
#[derive(Default)]
struct Reading<'a> {
    /// Present if files are searched. Their owners are then checked.
    environment: Option<&'a Environment>,
    /// Providers of scopes that are not read.
    known: &'a [Entry],
    files: Vec<File>,
    diagnostics: Vec<Diagnostic>,
}

impl Reading<'_> {
    /// A named file. It must exist.
    fn named_file(&mut self, path: &Path, scope: Scope) {
        // Folders inside are relative to the file, so its path must not depend on the working directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        match read::text(&path, scope == Scope::Explicit) {
            Ok((text, found)) => self.trusted_text(&path, scope, &text, &found),
            Err(unread) => self.not_read(&path, unread),
        }
    }

    /// A file at a known path. It may be absent.
    fn optional_file(&mut self, path: &Path, scope: Scope) {
        match read::text(path, false) {
            Ok((text, found)) => self.trusted_text(path, scope, &text, &found),
            Err(Unread::System(error)) if is_absence(&error) => {}
            Err(unread) => self.not_read(path, unread),
        }
    }

    fn not_read(&mut self, path: &Path, unread: Unread) {
        match unread {
            Unread::System(error) => self.complain(path, cannot_read(&error)),
            Unread::Content(location, message) => {
                self.diagnostics.push(Diagnostic { severity: Severity::Error, location, message });
            }
        }
    }

    /// Every `*.toml` of a folder, in the order of their names.
    fn drop_ins(&mut self, folder: &Path, scope: Scope) {
        let listing = fs::read_dir(folder).and_then(|items| {
            items.map(|item| item.map(|item| item.path())).collect::<Result<Vec<PathBuf>, _>>()
        });
        match listing {
            Ok(mut paths) => {
                // Editors leave hidden files behind.
                let hidden = |path: &Path| path.file_name().is_none_or(|n| n.as_encoded_bytes()[0] == b'.');
                paths.retain(|path| path.extension().is_some_and(|e| e == "toml") && !hidden(path));
                paths.sort();
                paths.iter().for_each(|path| self.named_file(path, scope));
            }
            Err(error) if is_absence(&error) => {}
            Err(error) => self.complain(folder, cannot_read(&error)),
        }
    }

    fn trusted_text(&mut self, path: &Path, scope: Scope, text: &str, found: &fs::Metadata) {
        let distrust = self.environment.and_then(|environment| {
            trust::check_configuration(path, found, &trust::Trusted::of_process(environment)).err()
        });
        match distrust {
            Some(reason) => self.complain(path, format!("this file is not trusted: {reason}")),
            None => self.text(path, scope, text),
        }
    }

    fn text(&mut self, path: &Path, scope: Scope, text: &str) {
        match schema::parse(path, scope, text) {
            Ok(file) => self.files.push(file),
            Err(mut diagnostics) => self.diagnostics.append(&mut diagnostics),
        }
    }

    fn complain(&mut self, path: &Path, message: String) {
        let location = Location::of_file(path);
        self.diagnostics.push(Diagnostic { severity: Severity::Error, location, message });
    }

    fn merge(mut self) -> Result<Found, RegistryError> {
        let mut names: Vec<Name> = Vec::new();
        for file in std::mem::take(&mut self.files) {
            let entries = file.entries.into_iter().map(Name::Entry);
            let chains = file.chains.into_iter().map(Name::Chain);
            for mut new in entries.chain(chains).chain(file.routes.into_iter().map(Name::Route)) {
                let (name, scope, defined, _) = new.parts();
                let Some(old) = names.iter_mut().position(|old| old.parts().0 == name) else {
                    names.push(new);
                    continue;
                };
                let (_, first_scope, first, overrides) = names[old].parts();
                if first_scope == scope {
                    let message = format!(
                        "{name:?} is defined at {first} already, in the same scope ({scope}); rename one"
                    );
                    let location = defined.clone();
                    self.diagnostics.push(Diagnostic { severity: Severity::Error, location, message });
                } else {
                    overrides.push(defined.clone());
                }
            }
        }
        let mut found = Found::default();
        for name in names {
            match name {
                Name::Entry(entry) => found.entries.push(entry),
                Name::Chain(chain) => found.chains.push(chain),
                Name::Route(route) => found.routes.push(route),
            }
        }
        found.entries.sort_by(|a, b| a.name.cmp(&b.name));
        found.chains.sort_by(|a, b| a.name.cmp(&b.name));
        found.routes.sort_by(|a, b| a.name.cmp(&b.name));
        // Another error may have hidden the definition of a step, so steps are checked last.
        if self.diagnostics.is_empty() {
            self.diagnostics = unknown_providers(&found, self.known);
        }
        match self.diagnostics.is_empty() {
            true => Ok(found),
            false => Err(RegistryError { diagnostics: self.diagnostics }),
        }
    }
}

/// Steps of chains and children of routes that are no provider. A typing error must not look like an absent device.
fn unknown_providers(found: &Found, known: &[Entry]) -> Vec<Diagnostic> {
    let providers = || found.entries.iter().chain(known).map(|entry| entry.name.as_str());
    let fault = |what: String, name: &str, location: &Location| {
        if providers().any(|provider| provider == name) {
            return None;
        }
        let hint = if found.chains.iter().any(|chain| chain.name == name) {
            "; it is a chain, and only providers may stand there".into()
        } else if found.routes.iter().any(|route| route.name == name) {
            "; it is a route, and only providers may stand there".into()
        } else if let Some(nearest) = nearest(name, providers()) {
            format!("; did you mean {nearest:?}?")
        } else {
            "; define it, with optional = true where it may be absent".into()
        };
        let message = format!("{what} {name:?}, which is not a provider{hint}");
        Some(Diagnostic { severity: Severity::Error, location: location.clone(), message })
    };
    let of_chains = found.chains.iter().flat_map(|chain| {
        let what = format!("the chain {:?} has the step", chain.name);
        chain.steps.iter().map(move |step| (what.clone(), step.as_str(), &chain.defined))
    });
    let of_routes = found.routes.iter().flat_map(|route| {
        let what = format!("the route {:?} has the child", route.name);
        route.children().map(move |(child, _)| (what.clone(), child, &route.defined))
    });
    of_chains.chain(of_routes).filter_map(|(what, name, location)| fault(what, name, location)).collect()
}

enum Name {
    Entry(Entry),
    Chain(Chain),
    Route(Route),
}

impl Name {
    fn parts(&mut self) -> (&str, Scope, &Location, &mut Vec<Location>) {
        match self {
            Name::Entry(Entry { name, scope, defined, overrides, .. }) => (name, *scope, defined, overrides),
            Name::Chain(Chain { name, scope, defined, overrides, .. }) => (name, *scope, defined, overrides),
            Name::Route(Route { name, scope, defined, overrides, .. }) => (name, *scope, defined, overrides),
        }
    }
}

/// Whether the user's folder is accessible. A service that gave up root's rights may still have root's HOME. That folder
/// is not its configuration, and no reason to fail.
fn is_own(folder: &Path) -> bool {
    let closed = folder.metadata().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if closed {
        tracing::warn!(target: "dat.registry", folder = %folder.display(), "not reachable for this user, left out");
    }
    !closed
}

fn cannot_read(error: &std::io::Error) -> String {
    format!("cannot be read: {error}")
}

fn is_absence(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root folder with files, and the environment of a process that lives in it.
    fn world(files: &[(&str, &str)]) -> (tempfile::TempDir, Environment) {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let environment = Environment {
            secure: false,
            plugins: None,
            plugin_path: Vec::new(),
            user: Some(root.path().join("home/dat")),
            root: root.path().to_owned(),
            executable: None,
            beside: Vec::new(),
        };
        (root, environment)
    }

    fn provider(name: &str, library: &str) -> String {
        format!("[provider.{name}]\nlibrary = {library:?}\n")
    }

    #[test]
    fn with_no_file_the_built_in_default_applies() {
        let (_root, environment) = world(&[]);
        let Found { entries, .. } = all(&environment).expect("valid");
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["ibverbs0", "loopback0", "ofi-rdm", "ofi-tcp", "shm0"]);
        assert!(entries.iter().all(|entry| entry.scope == Scope::Default));
    }

    #[test]
    fn the_earlier_scope_wins_and_the_losers_are_remembered() {
        let (root, mut environment) = world(&[
            ("env.toml", &provider("shm0", "env.so")),
            ("home/dat/plugins.toml", &provider("shm0", "user.so")),
            ("home/dat/plugins.d/a.toml", &provider("a", "user-a.so")),
            ("etc/dat/plugins.toml", &provider("shm0", "system.so")),
            ("etc/dat/plugins.d/b.toml", &provider("b", "b.so")),
            ("etc/dat/plugins.d/.hidden.toml", "nonsense"),
            ("etc/dat/plugins.d/readme.txt", "nonsense"),
            ("usr/share/dat/plugins.d/a.toml", &provider("a", "vendor-a.so")),
        ]);
        environment.plugins = Some(root.path().join("env.toml"));
        let Found { entries, .. } = all(&environment).expect("valid");
        let of = |name: &str| entries.iter().find(|entry| entry.name == name).expect("there");
        assert_eq!((of("shm0").library.as_str(), of("shm0").scope), ("env.so", Scope::Environment));
        assert_eq!(of("shm0").overrides.len(), 3, "user, system, default");
        assert_eq!((of("a").library.as_str(), of("a").overrides.len()), ("user-a.so", 1));
        assert_eq!(of("b").scope, Scope::System);
    }

    #[test]
    fn a_name_twice_in_one_scope_is_an_error_that_names_both_places() {
        let (_root, environment) = world(&[
            ("etc/dat/plugins.d/a.toml", &provider("x", "1.so")),
            ("etc/dat/plugins.d/b.toml", &provider("x", "2.so")),
        ]);
        let text = all(&environment).expect_err("duplicate").to_string();
        assert!(text.contains("b.toml:1:11: \"x\" is defined at "), "{text}");
        assert!(text.contains("a.toml:1:11 already"), "{text}");
    }

    #[test]
    fn a_named_file_must_exist_and_found_files_must_be_sound() {
        let (root, mut environment) = world(&[("etc/dat/plugins.toml", "[provider")]);
        environment.plugins = Some(root.path().join("absent.toml"));
        let error = all(&environment).expect_err("two mistakes");
        assert_eq!(error.diagnostics.len(), 2, "{error}");
        assert!(error.to_string().contains("absent.toml: cannot be read: No such file"), "{error}");
        assert!(error.to_string().contains("plugins.toml:1:"), "{error}");
    }

    /// Opening a provider must not block on a file in a searched folder.
    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        let (root, environment) = world(&[("etc/dat/plugins.d/a.toml", &provider("x", "1.so"))]);
        let folder = root.path().join("etc/dat/plugins.d");
        for (name, make) in [("pipe", true), ("zero", false)] {
            let path = folder.join(format!("{name}.toml"));
            match make {
                true => {
                    let made = std::process::Command::new("mkfifo").arg(&path).status();
                    assert!(made.expect("mkfifo runs").success());
                }
                false => std::os::unix::fs::symlink("/dev/zero", &path).expect("a link"),
            }
            let (sender, receiver) = std::sync::mpsc::channel();
            let environment = environment.clone();
            std::thread::spawn(move || sender.send(all(&environment).map(drop)));
            let answer = receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("an answer");
            let text = answer.expect_err("refused").to_string();
            assert!(
                text.contains(&format!("{name}.toml: cannot be read: it is not a regular file")),
                "{text}"
            );
            fs::remove_file(&path).expect("was there");
        }
        fs::File::create(folder.join("long.toml")).and_then(|file| file.set_len(17 << 20)).expect("a file");
        let text = all(&environment).expect_err("refused").to_string();
        assert!(text.contains("long.toml: cannot be read: it is longer than 16 MiB"), "{text}");
    }

    #[test]
    fn what_is_not_utf_8_is_named_with_its_place() {
        let (root, environment) = world(&[("etc/dat/plugins.toml", "")]);
        let text = b"# one\n[provider.x]\nlibrary = \"\xFC.so\"\n";
        fs::write(root.path().join("etc/dat/plugins.toml"), text).expect("written");
        let text = all(&environment).expect_err("refused").to_string();
        assert!(text.contains("plugins.toml:3:12: this is not TOML: it is not UTF-8"), "{text}");
    }

    #[test]
    fn a_file_everybody_may_write_is_refused_in_a_scope() {
        use std::os::unix::fs::PermissionsExt as _;
        let (root, environment) = world(&[("etc/dat/plugins.toml", &provider("x", "x.so"))]);
        let path = root.path().join("etc/dat/plugins.toml");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("set");
        let text = all(&environment).expect_err("refused").to_string();
        assert!(text.contains("chmod o-w"), "{text}");
    }

    #[test]
    fn a_chain_may_cross_scopes_but_not_name_what_is_not_there() {
        let (root, environment) = world(&[
            ("home/dat/plugins.toml", "[chain]\nfast = [\"ib0\", \"shm0\"]\n"),
            ("etc/dat/plugins.toml", &provider("ib0", "ib.so")),
        ]);
        let Found { chains, .. } = all(&environment).expect("valid");
        assert_eq!(chains[0].steps, ["ib0", "shm0"]);
        fs::write(root.path().join("home/dat/plugins.toml"), "[chain]\nfast = [\"shmo\"]\n")
            .expect("written");
        let text = all(&environment).expect_err("unknown step").to_string();
        assert!(text.contains("plugins.toml:2:1: ") && text.contains("did you mean \"shm0\"?"), "{text}");
        fs::write(root.path().join("home/dat/plugins.toml"), "[chain]\na = [\"b\"]\nb = [\"shm0\"]\n")
            .expect("w");
        assert!(all(&environment).expect_err("nested").to_string().contains("it is a chain"));
    }
}
