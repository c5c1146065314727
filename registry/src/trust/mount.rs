//! Who mounted a file system of FUSE: owners and modes in it are that user's words.

/// The user who mounted the file system with this device number, if it is one of FUSE.
pub(super) fn mounter(device: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // FUSE has no device of its own: its numbers have major 0.
    if major != 0 {
        return None;
    }
    mounter_in(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, &format!("{major}:{minor}"))
}

/// As the kernel lists mounts: number, parent, device, root, place, options, optional fields, a dash, type, source and the
/// options of the file system.
fn mounter_in(mounts: &str, device: &str) -> Option<u32> {
    mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let is_fuse = system.next()?.starts_with("fuse");
        if !is_fuse || mount.split(' ').nth(2)? != device {
            return None;
        }
        system.nth(1)?.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mounter_of_a_fuse_file_system_is_found() {
        let mounts = "22 1 0:21 / /proc rw shared:5 - proc proc rw\n\
                      90 22 0:51 / /home/m/x rw,nosuid shared:9 - fuse.sshfs h:/ rw,user_id=1000,group_id=7,allow_other\n\
                      91 22 0:52 / /mnt rw - virtiofs share rw\n";
        assert_eq!(mounter_in(mounts, "0:51"), Some(1000));
        assert_eq!(mounter_in(mounts, "0:21"), None);
        assert_eq!(mounter_in(mounts, "0:52"), None);
        assert_eq!(mounter_in("nonsense - fuse\n\n", "0:51"), None);
    }
}
