//! Names of endpoints that are files in `/dev/shm`. libfabric builds the name from the process number, which is not unique
//! where containers share the folder. A killed process leaves its file behind, several MiB each. So a device chooses its
//! own name, and removes files of such names whose process has ended.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::address::Raw;

const FOLDER: &str = "/dev/shm";

/// The name of an endpoint, in the format of the fabric's addresses. `number` makes it unique in the process.
pub fn name(number: u64) -> Option<Raw> {
    sweep(Path::new(FOLDER));
    let (space, process) = (space(), std::process::id());
    Raw::new(format!("fi_shm://dat-{space}-{process}-{:08x}\0", number as u32).as_bytes())
}

/// The number of this process's pid namespace.
fn space() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |space| space.ino())
}

/// Removes the files of ended processes of this pid namespace.
fn sweep(folder: &Path) {
    let Ok(all) = fs::read_dir(folder) else { return };
    let space = space();
    for file in all.flatten() {
        let left = file.file_name().to_str().and_then(|name| process_of(name, space)).is_some_and(is_gone);
        if left && let Err(error) = fs::remove_file(file.path()) {
            tracing::debug!(%error, file = %file.path().display(), "cannot remove a stale endpoint file: another user owns it, or it is gone");
        }
    }
}

/// The process of a file with such a name, if it belongs to this pid namespace.
fn process_of(file: &str, space: u64) -> Option<u32> {
    let mut words = file.strip_prefix("dat-")?.split('-');
    let (its, process, rest) = (words.next()?, words.next()?, words.next()?);
    let whole = words.next().is_none() && rest.len() > 8 && rest.as_bytes()[8] == b':';
    (whole && space != 0 && its.parse() == Ok(space)).then(|| process.parse().ok()).flatten()
}

fn is_gone(process: u32) -> bool {
    let Some(process) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) else {
        return false;
    };
    rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_ended_processes_are_removed() {
        let folder = std::env::temp_dir().join(format!("dat-segments-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let dead = child.id();
        child.wait().expect("ends");
        let (space, own) = (space(), std::process::id());
        let gone = format!("dat-{space}-{dead}-0123abcd:0:0");
        let stay = [
            format!("dat-{space}-{own}-0123abcd:0:0"),
            format!("dat-{}-{dead}-0123abcd:0:0", space + 1),
            format!("dat-{space}-{dead}-0123abcd"),
            format!("dat-{space}-x-0123abcd:0:0"),
            format!("{dead}:0:0"),
        ];
        for file in stay.iter().chain([&gone]) {
            fs::write(folder.join(file), b"").expect("a file");
        }
        sweep(&folder);
        let left = |file: &String| folder.join(file).exists();
        let (removed, kept) = (!left(&gone), stay.iter().all(left));
        fs::remove_dir_all(&folder).expect("removed");
        assert!(removed && kept, "removed {removed}, kept {kept}");
    }
}
