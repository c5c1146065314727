//! Names of endpoints that are files in `/dev/shm`. libfabric names one after its process's number, which is not unique
//! where containers share the folder, and a process that is killed leaves it behind, several MiB each. So a device takes a
//! name of its own, and removes those of its kind whose process is no more.

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

/// The number of this process's space of process numbers.
fn space() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |space| space.ino())
}

/// Removes what processes of this space left that are no more.
fn sweep(folder: &Path) {
    let Ok(all) = fs::read_dir(folder) else { return };
    let space = space();
    for file in all.flatten() {
        let left = file.file_name().to_str().and_then(|name| process_of(name, space)).is_some_and(is_gone);
        if left && let Err(error) = fs::remove_file(file.path()) {
            tracing::debug!(%error, file = %file.path().display(), "another user's, or removed by somebody else");
        }
    }
}

/// The process a file is of, if it is one of these files and of this space.
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
    fn files_of_the_dead_go_and_others_stay() {
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
