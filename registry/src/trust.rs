//! Whether a file may be run: only trusted users can have created or changed it.
//!
//! A library's code runs with all rights of the process, so only trusted users may write to any path that leads to it.
//! The file is opened once, and its kind, owner, mode and digest are those of the open file. It is then loaded by its
//! canonical path, because the dynamic loader identifies libraries by path. A path through `/proc/self/fd` would merge two
//! libraries and break `$ORIGIN`. Between check and load, only users with write access could replace the file. The check
//! has found these users to be trusted.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read as _, Result as IoResult};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use dat_plugin::host::LoadError;
use sha2::{Digest as _, Sha256};

use crate::environment::Environment;
use crate::error::LoadFailure;

mod acl;
mod mount;

const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Trusted owners and groups.
#[derive(Clone, Debug)]
pub(crate) struct Trusted {
    owners: Vec<u32>,
    groups: Vec<u32>,
    /// Root may give write access to any group, as Debian does with `staff` below `/usr/local`.
    roots_choice: bool,
}

impl Trusted {
    /// Root, the user, and the owners of the executable and of the root folder, who control the process anyway. A
    /// program with more rights than its starter trusts root alone.
    pub fn of_process(environment: &Environment) -> Trusted {
        let owner = |path: &Path| path.metadata().map(|m| m.uid()).ok();
        if environment.secure {
            return Trusted { owners: vec![0], groups: vec![0], roots_choice: false };
        }
        let mut owners = vec![0, rustix::process::geteuid().as_raw()];
        owners.extend(environment.executable.as_deref().and_then(owner));
        owners.extend(owner(Path::new("/")));
        Trusted { owners, groups: vec![0, rustix::process::getegid().as_raw()], roots_choice: true }
    }

    /// The rule that `path` breaks, if any.
    fn fault(&self, path: &Path, found: &Metadata, sticky_helps: bool) -> Option<String> {
        let (shown, mode) = (path.display(), found.mode());
        let is = format!("{shown} (mode {:04o}, owner {}:{})", mode & 0o7777, found.uid(), found.gid());
        if !self.owners.contains(&found.uid()) {
            return Some(format!("{is} belongs to another user; mend it with: chown root {shown}"));
        }
        if sticky_helps && mode & STICKY != 0 {
            return None;
        }
        if mode & WRITABLE_BY_ALL != 0 {
            return Some(format!("{is} may be written by everybody; mend it with: chmod o-w {shown}"));
        }
        if mode & WRITABLE_BY_GROUP != 0
            && let Some(who) = acl::writer(path, &self.owners, &self.groups)
        {
            return Some(format!("{is} may be written by {who}; mend it with: setfacl -b {shown}"));
        }
        if let Some(mounter) = mount::mounter(found.dev()).filter(|mounter| !self.owners.contains(mounter)) {
            return Some(format!(
                "{is} is on a file system (FUSE) that user {mounter} mounted, who decides what is in it"
            ));
        }
        let group_is_fine = self.groups.contains(&found.gid()) || (self.roots_choice && found.uid() == 0);
        if mode & WRITABLE_BY_GROUP != 0 && !group_is_fine {
            return Some(format!(
                "{is} may be written by group {}; mend it with: chmod g-w {shown}",
                found.gid()
            ));
        }
        None
    }
}

/// Checks a library and returns its canonical path. None of its code has run.
pub(crate) fn check_library(
    path: &Path,
    sha256: Option<&str>,
    trusted: &Trusted,
) -> Result<PathBuf, LoadFailure> {
    let unreadable = |error| LoadFailure::Load { path: path.to_owned(), error: LoadError::Unreadable(error) };
    let canonical = path.canonicalize().map_err(unreadable)?;
    let mut file = open(&canonical).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        let kind = if found.is_dir() { "it is a folder" } else { "it is not a regular file" };
        let error = LoadError::NotALibrary(kind.into());
        return Err(LoadFailure::Load { path: path.to_owned(), error });
    }
    let untrusted = |reason| LoadFailure::Untrusted { path: canonical.clone(), reason };
    if let Some(reason) = trusted.fault(&canonical, &found, false) {
        return Err(untrusted(reason));
    }
    check_folders(&canonical, trusted)
        .map_err(unreadable)?
        .map_or(Ok(()), |reason| Err(untrusted(reason)))?;
    // Users who can replace a link choose the library, even if only among trusted ones.
    for link in links(path).map_err(unreadable)? {
        check_folders(&link, trusted).map_err(unreadable)?.map_or(Ok(()), |reason| Err(untrusted(reason)))?;
    }
    if let Some(wanted) = sha256 {
        let is = digest(&mut file).map_err(unreadable)?;
        if is != wanted {
            let reason = format!(
                "its sha256 is {is}, configured is {wanted}; put the right file there, or correct sha256"
            );
            return Err(untrusted(reason));
        }
    }
    Ok(canonical)
}

/// Checks a configuration file in a searched folder. Folders are not checked, because a configuration can name
/// libraries but cannot make them trusted.
pub(crate) fn check_configuration(path: &Path, found: &Metadata, trusted: &Trusted) -> Result<(), String> {
    trusted.fault(path, found, false).map_or(Ok(()), Err)
}

/// The first fault of a folder above a canonical path, up to the root. The sticky bit prevents replacing files of a
/// folder. It does not prevent adding files beside a library, so the library's own folder gets no exception.
fn check_folders(canonical: &Path, trusted: &Trusted) -> IoResult<Option<String>> {
    for (i, folder) in canonical.ancestors().skip(1).enumerate() {
        if let Some(fault) = trusted.fault(folder, &folder.metadata()?, i > 0) {
            return Ok(Some(fault));
        }
    }
    Ok(None)
}

/// All links on the way to a file: links to folders, and links to links. Each is in a canonical folder.
fn links(path: &Path) -> IoResult<Vec<PathBuf>> {
    /// The number that the kernel follows.
    const MOST: usize = 40;
    let mut rest: Vec<PathBuf> = vec![std::path::absolute(path)?];
    let (mut at, mut found) = (PathBuf::from("/"), Vec::new());
    while let Some(part) = rest.pop() {
        let mut parts = part.components();
        let Some(first) = parts.next() else { continue };
        rest.push(parts.as_path().to_owned());
        match first {
            Component::RootDir => at = PathBuf::from("/"),
            Component::ParentDir => {
                at.pop();
            }
            Component::Normal(name) => {
                let next = at.join(name);
                if !next.symlink_metadata()?.is_symlink() {
                    at = next;
                } else if found.len() < MOST {
                    rest.push(next.read_link()?);
                    found.push(next);
                } else {
                    return Err(rustix::io::Errno::LOOP.into());
                }
            }
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(found)
}

/// Opens without blocking, even if the library is a pipe.
fn open(path: &Path) -> IoResult<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

fn digest(file: &mut File) -> IoResult<String> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            n => hash.update(&chunk[..n]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn own() -> Trusted {
        let uid = rustix::process::geteuid().as_raw();
        let root = Path::new("/").metadata().expect("root").uid();
        let groups = vec![0, rustix::process::getegid().as_raw()];
        Trusted { owners: vec![0, uid, root], groups, roots_choice: true }
    }

    fn library(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.so");
        fs::write(&path, "abc").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        (folder, path)
    }

    fn reason(path: &Path, sha256: Option<&str>, trusted: &Trusted) -> String {
        match check_library(path, sha256, trusted) {
            Err(LoadFailure::Untrusted { reason, .. }) => reason,
            other => panic!("not refused for trust: {other:?}"),
        }
    }

    #[test]
    fn a_file_of_ones_own_is_trusted_and_one_for_everybody_is_not() {
        let (_folder, path) = library(0o644);
        assert_eq!(check_library(&path, None, &own()).ok(), path.canonicalize().ok());
        let (_folder, path) = library(0o646);
        let said = reason(&path, None, &own());
        assert!(said.contains("mode 0646") && said.contains("chmod o-w"), "{said}");
    }

    #[test]
    fn a_file_or_folder_of_another_user_is_refused() {
        let (_folder, path) = library(0o644);
        let stranger = Trusted { owners: vec![4_000_000], groups: vec![], roots_choice: false };
        assert!(reason(&path, None, &stranger).contains("belongs to another user"));
    }

    #[test]
    fn a_group_that_is_not_ones_own_may_not_write() {
        let (_folder, path) = library(0o664);
        let strict = Trusted { groups: vec![4_000_000], roots_choice: false, ..own() };
        assert!(reason(&path, None, &strict).contains("chmod g-w"));
        assert!(check_library(&path, None, &own()).is_ok());
    }

    #[test]
    fn the_librarys_own_folder_may_not_be_for_everybody_even_if_sticky() {
        let (folder, path) = library(0o644);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).expect("set");
        assert!(reason(&path, None, &own()).contains("may be written by everybody"));
    }

    #[test]
    fn a_folder_further_up_may_be_for_everybody_only_if_sticky() {
        let (folder, _) = library(0o644);
        let sub = folder.path().join("sub");
        fs::create_dir(&sub).expect("made");
        let path = sub.join("y.so");
        fs::write(&path, "y").expect("written");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("set");
        assert!(reason(&path, None, &own()).contains("may be written by everybody"));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).expect("set");
        assert!(check_library(&path, None, &own()).is_ok());
    }

    #[test]
    fn a_link_in_a_folder_for_everybody_is_refused_though_its_target_is_sound() {
        let (_folder, path) = library(0o644);
        let open = tempfile::tempdir().expect("a folder");
        let link = open.path().join("x.so");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert!(check_library(&link, None, &own()).is_ok());
        fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).expect("set");
        assert!(reason(&link, None, &own()).contains("may be written by everybody"));
    }

    /// Users with write access to a folder choose its links. This includes links to folders and to links.
    #[test]
    fn each_link_on_the_way_must_be_in_a_trusted_folder() {
        let (folder, path) = library(0o644);
        let open = tempfile::tempdir().expect("a folder");
        let sound = tempfile::tempdir().expect("a folder");
        let (of_folder, second) = (open.path().join("to-folder"), open.path().join("second"));
        std::os::unix::fs::symlink(folder.path(), &of_folder).expect("linked");
        std::os::unix::fs::symlink(&path, &second).expect("linked");
        let first = sound.path().join("first");
        std::os::unix::fs::symlink(&second, &first).expect("linked");
        let ways = [of_folder.join("x.so"), first];
        for way in &ways {
            assert!(check_library(way, None, &own()).is_ok(), "{}", way.display());
        }
        fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).expect("set");
        for way in &ways {
            assert!(reason(way, None, &own()).contains("may be written by everybody"), "{}", way.display());
        }
        let round = sound.path().join("round");
        std::os::unix::fs::symlink(&round, &round).expect("linked");
        assert!(links(&round).is_err());
    }

    #[test]
    fn a_user_whom_an_access_control_list_names_may_not_write() {
        let (_folder, path) = library(0o664);
        let list = |id: u32| acl::encode(&[(1, 6, 0), (2, 6, id), (4, 4, 0), (16, 6, 0), (32, 4, 0)]);
        let set =
            |id: u32| rustix::fs::setxattr(&path, acl::NAME, &list(id), rustix::fs::XattrFlags::empty());
        if let Err(why) = set(65534) {
            println!("NOT RUN: access control lists in {}: {why}", path.display());
            return;
        }
        assert!(reason(&path, None, &own()).contains("user 65534"));
        set(rustix::process::geteuid().as_raw()).expect("set");
        assert!(check_library(&path, None, &own()).is_ok(), "one's own name");
    }

    #[test]
    fn the_digest_must_match() {
        let (_folder, path) = library(0o644);
        // The published digest of "abc".
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(check_library(&path, Some(abc), &own()).is_ok());
        fs::write(&path, "abd").expect("written");
        assert!(reason(&path, Some(abc), &own()).contains("configured is ba7816bf"));
    }

    #[test]
    fn what_is_no_regular_file_is_no_library_and_never_blocks() {
        let (folder, _) = library(0o644);
        let said = |path: &Path| match check_library(path, None, &own()) {
            Err(failure @ LoadFailure::Load { .. }) => failure.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(said(folder.path()).contains("it is a folder"));
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("made");
        assert!(said(&pipe).contains("it is not a regular file"));
        assert!(said(&folder.path().join("absent")).contains("No such file"));
    }
}
