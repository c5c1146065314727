//! Reading configuration files. A file in a searched folder may be a pipe without a writer, or an endless device.
//! Opening a provider must neither block on it nor run out of memory.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::entry::Location;

/// Maximum length of a configuration file.
const MOST: u64 = 16 << 20;

/// Why a file was not read: an error of the system, or an error in its content with its location.
pub(crate) enum Unread {
    System(Error),
    Content(Location, String),
}

/// Text and metadata of a file. An explicitly named file may be a pipe, and reading it blocks.
pub(crate) fn text(path: &Path, explicit: bool) -> Result<(String, Metadata), Unread> {
    let wrong = |location, what: String| Err(Unread::Content(location, what));
    let file = open(path, explicit).map_err(Unread::System)?;
    let found = file.metadata().map_err(Unread::System)?;
    if found.is_dir() {
        return Err(Unread::System(ErrorKind::IsADirectory.into()));
    }
    if !explicit && !found.is_file() {
        return wrong(Location::of_file(path), "cannot be read: it is not a regular file".into());
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(Unread::System)?;
    if bytes.len() as u64 > MOST {
        let what = format!("cannot be read: it is longer than {} MiB", MOST >> 20);
        return wrong(Location::of_file(path), what);
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((text, found)),
        Err(error) => {
            let sound = error.utf8_error().valid_up_to();
            let before = String::from_utf8_lossy(&error.as_bytes()[..sound]);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
            let location = Location { line, column, ..Location::of_file(path) };
            wrong(location, "this is not TOML: it is not UTF-8 from here on".into())
        }
    }
}

fn open(path: &Path, explicit: bool) -> Result<File, Error> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true);
    if !explicit {
        options.custom_flags(flags.bits() as i32);
    }
    options.open(path)
}
