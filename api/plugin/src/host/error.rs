//! Why a plugin cannot be loaded.

use std::fmt;

use crate::abi::Status;
use crate::{ABI_MAJOR, ABI_OLDEST_MAJOR, Note};

/// Why a file is no plugin this host can use.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    Unreadable(std::io::Error),
    /// The file is no shared object for this machine.
    NotALibrary(String),
    /// A shared object without the note every plugin carries.
    NotAPlugin,
    /// Built for a version of the interface outside the host's window.
    Version {
        /// Major and minor of the plugin.
        plugin: (u32, u32),
    },
    /// The dynamic loader refused it; its message names what was missing and who asked for it.
    Loader(String),
    /// The layout of the tables differs from the host's.
    Layout(String),
    /// The plugin's own start failed.
    Init(Status),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Unreadable(error) => write!(f, "cannot be read: {error}"),
            LoadError::NotALibrary(why) => write!(f, "is no shared object for this machine: {why}"),
            LoadError::NotAPlugin => {
                write!(f, "is a shared object but no dat plugin: it has no section {}", Note::SECTION)
            }
            LoadError::Version { plugin: (major, minor) } => write!(
                f,
                "was built for plugin interface {major}.{minor}, this host loads {ABI_OLDEST_MAJOR} to {ABI_MAJOR}; \
                 install a plugin built for this version of dat"
            ),
            LoadError::Loader(message) => write!(f, "was refused by the dynamic loader: {message}"),
            LoadError::Layout(message) => write!(f, "has other tables than this host expects: {message}"),
            LoadError::Init(status) => write!(f, "failed to start: {status:?}"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}

/// The dynamic loader's own words, which libloading keeps below its error.
pub(super) fn loader_said(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}
