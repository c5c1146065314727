//! Preconditions of all legs: a target directory that passes the rules of plugin trust, and a working loopback interface.

use crate::report::Result;
use fs_err as fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::Mode;

use crate::cargo::target_dir;

const BY_OTHERS: u32 = 0o022;
const BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Files made from now on can be written by their owner only.
pub fn restrict_umask() {
    let mask = rustix::process::umask(Mode::from_raw_mode(BY_OTHERS));
    rustix::process::umask(mask | Mode::from_raw_mode(BY_OTHERS));
}

/// Removes the write permission of others from the folders cargo has made before this program started. Fails when a
/// folder above them is unsafe: then no test that loads a plugin can pass.
pub fn is_trusted() -> Result<()> {
    let target = target_dir()?;
    fs::create_dir_all(&target)?;
    let target = target.canonicalize()?;
    for made in ["", "debug", "debug/deps", "debug/examples", "release", "release/deps", "release/examples"] {
        let folder = target.join(made);
        let Ok(found) = folder.metadata() else { continue };
        if found.mode() & BY_OTHERS != 0 && found.uid() == rustix::process::geteuid().as_raw() {
            let mode = std::fs::Permissions::from_mode(found.mode() & !BY_OTHERS);
            fs::set_permissions(&folder, mode)?;
        }
    }
    for folder in target.ancestors() {
        if let Some(fault) = fault(folder)? {
            fail!(
                "{fault}; `dat` refuses plugins below it, because others could have put them there. Change it, or \
                 set CARGO_TARGET_DIR to another folder"
            );
        }
    }
    Ok(())
}

/// What is wrong with a folder, by the registry's rule.
fn fault(folder: &Path) -> Result<Option<String>> {
    let found = folder.metadata()?;
    let root = Path::new("/").metadata().map_err(|error| format!("/: {error}"))?;
    let shown = folder.display();
    if ![0, rustix::process::geteuid().as_raw(), root.uid()].contains(&found.uid()) {
        return Ok(Some(format!("{shown} belongs to user {}, not to the user that runs this", found.uid())));
    }
    let writable = found.mode() & BY_ALL != 0 && found.mode() & STICKY == 0;
    Ok(writable.then(|| format!("{shown} can be written by everybody (chmod o-w '{shown}')")))
}

/// Fails unless the loopback interface works, which many tests need.
pub fn reaches_itself() -> Result<()> {
    let reached = TcpListener::bind("127.0.0.1:0").and_then(|listener| {
        let address = listener.local_addr()?;
        TcpStream::connect_timeout(&address, Duration::from_secs(5))
    });
    match reached {
        Ok(_) => Ok(()),
        Err(error) => fail!("127.0.0.1: {error}; is the loopback interface up (ip link set lo up, as root)?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_writable_folder_is_a_fault_unless_it_is_sticky() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |mode| {
            fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).expect("ours");
            fault(folder.path()).expect("there")
        };
        assert_eq!((of(0o755), of(0o1777)), (None, None));
        assert!(of(0o777).is_some_and(|fault| fault.contains("chmod o-w")));
    }

    #[test]
    fn new_files_are_not_writable_by_others() {
        restrict_umask();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("made");
        fs::write(&file, "").expect("written");
        assert_eq!(file.metadata().expect("there").mode() & BY_OTHERS, 0);
    }
}
