//! Surroundings of the process: variables, executable, user, and whether they are trusted.

use std::ffi::OsString;
use std::path::PathBuf;

/// The surroundings that a lookup depends on. Read once, so tests can pass others.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// The program has more rights than its starter. Input that the starter controls is ignored.
    pub secure: bool,
    /// `DAT_PLUGINS`.
    pub plugins: Option<PathBuf>,
    /// `DAT_PLUGIN_PATH`, split.
    pub plugin_path: Vec<PathBuf>,
    /// `$XDG_CONFIG_HOME/dat` or `$HOME/.config/dat`.
    pub user: Option<PathBuf>,
    /// Where `etc` and `usr` are.
    pub root: PathBuf,
    /// The running executable.
    pub executable: Option<PathBuf>,
    /// Folders of a library that this one is part of.
    pub beside: Vec<PathBuf>,
}

impl Environment {
    /// Of this process.
    pub fn of_process() -> Environment {
        Environment::from_variables(is_secure(), |name| std::env::var_os(name))
    }

    fn from_variables(secure: bool, variable: impl Fn(&str) -> Option<OsString>) -> Environment {
        let variable = |name: &str| match secure {
            true => None,
            false => variable(name).filter(|value| !value.is_empty()),
        };
        let absolute = |path: PathBuf| path.is_absolute().then_some(path);
        let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).and_then(absolute);
        let home = || variable("HOME").map(|home| PathBuf::from(home).join(".config")).and_then(absolute);
        let path = variable("DAT_PLUGIN_PATH").unwrap_or_default();
        Environment {
            secure,
            plugins: variable("DAT_PLUGINS").map(PathBuf::from),
            plugin_path: std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect(),
            user: config.or_else(home).map(|folder| folder.join("dat")),
            root: PathBuf::from("/"),
            executable: std::env::current_exe().ok(),
            beside: Vec::new(),
        }
    }
}

/// Whether this program was started with more rights than its starter has (set-uid, set-gid, file capabilities).
fn is_secure() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    if getuid() != geteuid() || getgid() != getegid() {
        return true;
    }
    // The kernel's own verdict, which includes capabilities.
    is_secure_by(std::fs::read("/proc/self/auxv"))
}

/// The verdict of an auxiliary vector, or of why it cannot be read. Only where /proc is not mounted there is none. The
/// kernel may protect this process from its starter, or the starter may have left it no descriptor.
fn is_secure_by(auxv: std::io::Result<Vec<u8>>) -> bool {
    match auxv {
        Ok(bytes) => at_secure(&bytes),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// `AT_SECURE` of an auxiliary vector: pairs of machine words, key and value.
fn at_secure(auxv: &[u8]) -> bool {
    const AT_SECURE: usize = 23;
    const WORD: usize = size_of::<usize>();
    let word = |bytes: &[u8]| bytes.try_into().map(usize::from_ne_bytes).unwrap_or(0);
    auxv.chunks_exact(2 * WORD).any(|pair| word(&pair[..WORD]) == AT_SECURE && word(&pair[WORD..]) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(secure: bool, list: &[(&str, &str)]) -> Environment {
        Environment::from_variables(secure, |name| {
            list.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_program_with_more_rights_than_its_starter_believes_no_variable() {
        let list = [
            ("DAT_PLUGINS", "/x/plugins.toml"),
            ("DAT_PLUGIN_PATH", "/x:/y"),
            ("XDG_CONFIG_HOME", "/x/config"),
            ("HOME", "/x"),
        ];
        let plain = variables(false, &list);
        assert_eq!(plain.plugins, Some("/x/plugins.toml".into()));
        assert_eq!(plain.plugin_path, [PathBuf::from("/x"), PathBuf::from("/y")]);
        assert_eq!(plain.user, Some("/x/config/dat".into()));
        let secure = variables(true, &list);
        assert_eq!((secure.plugins, secure.user), (None, None));
        assert!(secure.plugin_path.is_empty());
    }

    #[test]
    fn home_stands_in_for_xdg_and_relative_folders_are_ignored() {
        let home = variables(false, &[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "relative")]);
        assert_eq!(home.user, Some("/home/a/.config/dat".into()));
        assert!(variables(false, &[("DAT_PLUGIN_PATH", "here:")]).plugin_path.is_empty());
    }

    #[test]
    fn the_auxiliary_vector_is_read() {
        let vector = |pairs: &[(usize, usize)]| -> Vec<u8> {
            pairs.iter().flat_map(|(k, v)| [k.to_ne_bytes(), v.to_ne_bytes()].concat()).collect()
        };
        assert!(at_secure(&vector(&[(6, 4096), (23, 1), (0, 0)])));
        assert!(!at_secure(&vector(&[(6, 23), (23, 0), (0, 0)])));
        assert!(!at_secure(&[1, 2, 3]));
    }

    /// The starter of a program with file capabilities may have taken all its descriptors away.
    #[test]
    fn a_vector_that_cannot_be_read_counts_as_secure() {
        use std::io::Error;
        let failed = |errno: rustix::io::Errno| is_secure_by(Err(Error::from(errno)));
        assert!(failed(rustix::io::Errno::MFILE) && failed(rustix::io::Errno::NFILE));
        assert!(failed(rustix::io::Errno::ACCESS) && failed(rustix::io::Errno::NOMEM));
        assert!(!failed(rustix::io::Errno::NOENT), "without /proc");
    }
}
