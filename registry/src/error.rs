//! Errors of reading a registry and of opening a name, each with its DAT return code.

use std::fmt;
use std::path::PathBuf;

use dat_plugin::host::LoadError;
use dat_plugin::{Failure, Status};
use dat_types::{ReturnCode, ReturnType, Subtype};
use serde::Serialize;

use crate::entry::{Diagnostic, Location};

/// An unusable configuration, with all its errors.
#[derive(Clone, Debug)]
pub struct RegistryError {
    /// All errors, in the order of the files; not empty.
    pub diagnostics: Vec<Diagnostic>,
}

impl RegistryError {
    /// The return code of `dat_ia_open`: without a registry there is no provider.
    pub fn code(&self) -> ReturnCode {
        ReturnCode::error(ReturnType::ProviderNotFound, Subtype::None)
    }
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.diagnostics.iter().enumerate() {
            write!(f, "{}{diagnostic}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for RegistryError {}

impl From<RegistryError> for dat_types::Error {
    fn from(error: RegistryError) -> dat_types::Error {
        dat_types::Error::new("dat_ia_open", ReturnType::ProviderNotFound, Subtype::None, error.to_string())
            .with_source(error)
    }
}

/// Why a name did not open.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// No IA can have this name.
    InvalidName {
        /// The requested name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing of this name is configured.
    UnknownName {
        /// The requested name.
        name: String,
        /// All names there are.
        known: Vec<String>,
        /// The most similar known name.
        nearest: Option<String>,
    },
    /// It is configured, but its library was not loaded.
    NotLoadable {
        /// The IA name.
        name: String,
        /// Where it is configured.
        defined: Location,
        /// Why not.
        reason: LoadFailure,
    },
    /// Its library is loaded, but gives no device with this configuration.
    NoDevice {
        /// The IA name.
        name: String,
        /// Where it is configured.
        defined: Location,
        /// The provider's error.
        failure: Failure,
    },
    /// The children that opened make no route.
    Route {
        /// The route's name.
        name: String,
        /// Where it is configured.
        defined: Location,
        /// Result of each child.
        steps: Vec<Step>,
        /// Why.
        failure: Box<Failure>,
    },
    /// No step of a chain opened.
    Chain {
        /// The chain's name.
        name: String,
        /// Where it is configured.
        defined: Location,
        /// Result of each attempted step.
        steps: Vec<Step>,
        /// The error of the last attempted step.
        last: Box<OpenError>,
    },
}

/// One attempt to open a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The IA name.
    pub name: String,
    /// Whether it opened.
    pub opened: bool,
    /// What was opened, or why it did not.
    pub reason: String,
}

/// Why a configured library was not loaded.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadFailure {
    /// No searched folder has such a file.
    NotFound {
        /// The library's file name.
        library: String,
        /// All searched folders.
        folders: Vec<PathBuf>,
    },
    /// `builtin:NAME`, but the program has no such provider.
    NotBuiltIn {
        /// The name.
        provider: String,
    },
    /// The file is not trusted; none of its code ran.
    Untrusted {
        /// The file.
        path: PathBuf,
        /// Which rule, about which path, and how to mend it.
        reason: String,
    },
    /// The file cannot be loaded.
    Load {
        /// The file.
        path: PathBuf,
        /// Why.
        error: LoadError,
    },
}

impl OpenError {
    /// The DAT return code of `dat_ia_open`.
    pub fn code(&self) -> ReturnCode {
        let (kind, subtype) = self.kind();
        ReturnCode::error(kind, subtype)
    }

    fn kind(&self) -> (ReturnType, Subtype) {
        match self {
            OpenError::InvalidName { .. } => (ReturnType::InvalidParameter, Subtype::Arg1),
            OpenError::UnknownName { .. } => (ReturnType::ProviderNotFound, Subtype::NameNotRegistered),
            OpenError::NotLoadable { .. } => (ReturnType::ProviderNotFound, Subtype::None),
            OpenError::NoDevice { failure, .. } => code_of(failure.status),
            OpenError::Route { failure, .. } => code_of(failure.status),
            OpenError::Chain { last, .. } => last.kind(),
        }
    }

    /// Whether a chain continues after this error. It continues if this machine lacks something. It stops at a wrong
    /// configuration or an untrusted file, because continuing would hide that.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            OpenError::NotLoadable { reason, .. } => !matches!(reason, LoadFailure::Untrusted { .. }),
            OpenError::NoDevice { failure, .. } => {
                !matches!(failure.status, Status::BAD_CONFIG | Status::FORKED)
            }
            _ => false,
        }
    }
}

/// The return code of `dat_ia_open` for a provider's status.
fn code_of(status: Status) -> (ReturnType, Subtype) {
    match status {
        Status::NO_RESOURCE => (ReturnType::InsufficientResources, Subtype::None),
        Status::NO_DEVICE | Status::PERMISSION | Status::IN_USE => {
            (ReturnType::InsufficientResources, Subtype::ResourceDevice)
        }
        Status::BAD_CONFIG | Status::INVALID => (ReturnType::InvalidParameter, Subtype::Arg1),
        Status::BAD_ADDRESS => (ReturnType::InvalidAddress, Subtype::AddressUnsupported),
        Status::UNREACHABLE => (ReturnType::InvalidAddress, Subtype::AddressUnreachable),
        Status::NOT_SUPPORTED => (ReturnType::ModelNotSupported, Subtype::None),
        Status::FORKED => (ReturnType::InvalidState, Subtype::None),
        _ => (ReturnType::InternalError, Subtype::None),
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::InvalidName { name, reason } => {
                let shown: String = name.chars().take(40).collect();
                let more = if shown.len() < name.len() { "…" } else { "" };
                write!(f, "{shown:?}{more} is not a valid IA name: {reason}")
            }
            OpenError::UnknownName { name, known, nearest } => {
                write!(f, "no provider is named {name:?}")?;
                if let Some(nearest) = nearest {
                    write!(f, "; did you mean {nearest:?}?")?;
                }
                match known.is_empty() {
                    true => write!(f, "; no provider is configured"),
                    false => write!(f, "; known names: {}", known.join(", ")),
                }
            }
            OpenError::NotLoadable { name, defined, reason } => {
                write!(f, "{name:?} is configured at {defined} but was not loaded: {reason}")
            }
            OpenError::NoDevice { name, defined, failure } => {
                write!(f, "{name:?}, configured at {defined}, is loaded but has no usable device: {failure}")
            }
            OpenError::Route { name, defined, steps, failure } => {
                write!(f, "the route {name:?}, configured at {defined}, does not open: {failure}")?;
                let left_out = steps.iter().filter(|step| !step.opened);
                left_out.into_iter().try_for_each(|step| write!(f, "; {}: {}", step.name, step.reason))
            }
            OpenError::Chain { name, defined, steps, .. } => {
                write!(f, "no step of the chain {name:?}, configured at {defined}, opened")?;
                steps.iter().try_for_each(|step| write!(f, "; {}: {}", step.name, step.reason))
            }
        }
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadFailure::NotFound { library, folders } => {
                let folders: Vec<String> =
                    folders.iter().map(|folder| folder.display().to_string()).collect();
                write!(f, "there is no {library:?} in {}", folders.join(", "))
            }
            LoadFailure::NotBuiltIn { provider } => {
                write!(
                    f,
                    "no provider {provider:?} is linked into this program; name its library file instead"
                )
            }
            LoadFailure::Untrusted { path, reason } => {
                write!(f, "{} is not trusted: {reason}", path.display())
            }
            LoadFailure::Load { path, error } => write!(f, "{} {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::NotLoadable { reason: LoadFailure::Load { error, .. }, .. } => Some(error),
            OpenError::NoDevice { failure, .. } => Some(failure),
            OpenError::Route { failure, .. } => Some(failure),
            OpenError::Chain { last, .. } => Some(last),
            _ => None,
        }
    }
}

impl From<OpenError> for dat_types::Error {
    fn from(error: OpenError) -> dat_types::Error {
        let (kind, subtype) = error.kind();
        dat_types::Error::new("dat_ia_open", kind, subtype, error.to_string()).with_source(error)
    }
}

/// The known name that is most similar to `name`, if a typing error is likely.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let limit = name.chars().count().div_ceil(3).min(3);
    known
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate.to_owned())
}

/// Levenshtein distance of two names, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["shm0", "loopback0", "ib0"];
        assert_eq!(nearest("smh0", known), Some("shm0".into()));
        assert_eq!(nearest("SHM0", known), Some("shm0".into()));
        assert_eq!(nearest("loopbak", known), Some("loopback0".into()));
        assert_eq!(nearest("verbs7", known), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn every_status_has_an_error_code() {
        let open = |status| OpenError::NoDevice {
            name: "x".into(),
            defined: Location::of_file("f".as_ref()),
            failure: Failure::new(status, "why"),
        };
        let kind = |status| open(status).code().kind();
        assert_eq!(kind(Status::NO_RESOURCE), Some(ReturnType::InsufficientResources));
        assert_eq!(kind(Status::BAD_CONFIG), Some(ReturnType::InvalidParameter));
        assert_eq!(kind(Status::PANICKED), Some(ReturnType::InternalError));
        assert_eq!(kind(Status(-999)), Some(ReturnType::InternalError));
        assert!(open(Status::NO_DEVICE).is_absence());
        assert!(!open(Status::BAD_CONFIG).is_absence());
    }
}
