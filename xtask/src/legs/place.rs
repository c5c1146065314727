//! Where all of this runs: folders that only those may write who are trusted, for `dat` loads no plugin out of others; and
//! a network to this very machine.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::Mode;

use crate::cargo::target_dir;

const BY_OTHERS: u32 = 0o022;
const BY_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// From now on nobody else may write what is made.
pub fn nobody_else_writes() {
    let mask = rustix::process::umask(Mode::from_raw_mode(BY_OTHERS));
    rustix::process::umask(mask | Mode::from_raw_mode(BY_OTHERS));
}

/// Takes the rights of others away from the folders cargo has made before this program began, and fails when a folder
/// above them is not in safe hands: then no test that loads a plugin can pass, nor the demonstration.
pub fn is_trusted() -> Result<(), String> {
    let target = target_dir()?;
    fs::create_dir_all(&target).map_err(|error| format!("{}: {error}", target.display()))?;
    let target = target.canonicalize().map_err(|error| format!("{}: {error}", target.display()))?;
    for made in ["", "debug", "debug/deps", "debug/examples", "release", "release/deps", "release/examples"] {
        let folder = target.join(made);
        let Ok(found) = folder.metadata() else { continue };
        if found.mode() & BY_OTHERS != 0 && found.uid() == rustix::process::geteuid().as_raw() {
            let mode = fs::Permissions::from_mode(found.mode() & !BY_OTHERS);
            fs::set_permissions(&folder, mode).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
    }
    for folder in target.ancestors() {
        if let Some(fault) = fault(folder)? {
            return Err(format!(
                "{fault}; `dat` loads no plugin from below it, because anybody could have put it there. Mend it, or \
                 set CARGO_TARGET_DIR to a folder elsewhere"
            ));
        }
    }
    Ok(())
}

/// What is wrong with a folder; the rule is that of the registry.
fn fault(folder: &Path) -> Result<Option<String>, String> {
    let found = folder.metadata().map_err(|error| format!("{}: {error}", folder.display()))?;
    let root = Path::new("/").metadata().map_err(|error| format!("/: {error}"))?;
    let shown = folder.display();
    if ![0, rustix::process::geteuid().as_raw(), root.uid()].contains(&found.uid()) {
        return Ok(Some(format!(
            "{shown} belongs to user {}, who is not the one that runs this",
            found.uid()
        )));
    }
    let writable = found.mode() & BY_ALL != 0 && found.mode() & STICKY == 0;
    Ok(writable.then(|| format!("{shown} may be written by everybody (chmod o-w '{shown}')")))
}

/// Fails unless this machine reaches itself, which many tests need.
pub fn reaches_itself() -> Result<(), String> {
    let reached = TcpListener::bind("127.0.0.1:0").and_then(|listener| {
        let address = listener.local_addr()?;
        TcpStream::connect_timeout(&address, Duration::from_secs(5))
    });
    reached.map(drop).map_err(|error| {
        format!(
            "127.0.0.1 cannot be reached: {error}; is the loopback interface up (ip link set lo up, as root)?"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_for_everybody_is_a_fault_unless_only_owners_may_remove_from_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let of = |mode| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).expect("ours");
            fault(folder.path()).expect("there")
        };
        assert_eq!((of(0o755), of(0o1777)), (None, None));
        assert!(of(0o777).is_some_and(|fault| fault.contains("chmod o-w")));
    }

    #[test]
    fn what_is_made_is_ours_alone() {
        nobody_else_writes();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("made");
        fs::write(&file, "").expect("written");
        assert_eq!(file.metadata().expect("there").mode() & BY_OTHERS, 0);
    }
}
