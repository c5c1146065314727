//! What a process, and its peers, hold of the system's things.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Counted from outside, as the kernel shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Open descriptors of this process.
    pub descriptors: usize,
    /// Mappings of memory files in this process.
    pub segments: usize,
    /// Bytes of them.
    pub segment_bytes: u64,
    /// Threads of this process.
    pub threads: usize,
    /// Names in /dev/shm as those of this project would be, of any process.
    pub shm_files: usize,
}

impl Holdings {
    /// Of this process, now.
    pub fn now() -> Holdings {
        let entries = |path: &str| {
            fs::read_dir(path).map(|entries| entries.flatten().collect()).unwrap_or_else(|_| Vec::new())
        };
        let (mut segments, mut segment_bytes) = (0, 0);
        for line in read("/proc/self/maps").lines().filter(|line| line.contains("/memfd:")) {
            segments += 1;
            segment_bytes += length(line).unwrap_or(0);
        }
        let shm_files = entries("/dev/shm");
        let shm_files =
            shm_files.iter().filter(|entry| entry.file_name().to_string_lossy().starts_with("dat-shm"));
        Holdings {
            // Without the descriptor of this listing.
            descriptors: entries("/proc/self/fd").len() - 1,
            segments,
            segment_bytes,
            threads: entries("/proc/self/task").len(),
            shm_files: shm_files.count(),
        }
    }

    /// What this process holds once that has not changed for a tenth of a second.
    pub fn calm() -> Holdings {
        let mut last = Holdings::now();
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_millis(100) {
            thread::sleep(Duration::from_millis(10));
            let now = Holdings::now();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        last
    }

    /// What this process holds once it is this again, or, after ten seconds, what it holds then: threads that end and
    /// descriptors other threads close take a moment.
    pub fn settled(&self) -> Holdings {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let now = Holdings::now();
            if now == *self || Instant::now() > deadline {
                return now;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// How many descriptors of each kind this process has open: what to look at when some are left.
    pub fn kinds() -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            // `socket:[123]`, but `anon_inode:[eventfd]`.
            let numbered = |c: char| "[]".contains(c) || c.is_ascii_digit();
            let kind = target.to_string_lossy().trim_end_matches(numbered).to_owned();
            *kinds.entry(kind).or_default() += 1;
        }
        kinds
    }

    /// Bytes of memory that are this process's alone.
    pub fn private_bytes() -> u64 {
        let rollup = read("/proc/self/smaps_rollup");
        let kilobytes = rollup
            .lines()
            .filter(|line| line.starts_with("Private_"))
            .filter_map(|line| line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()));
        kilobytes.sum::<u64>() * 1024
    }

    /// Sockets whose name contains `part`, of any process on this machine.
    pub fn sockets_named(part: &str) -> usize {
        read("/proc/net/unix").lines().filter(|line| line.contains(part)).count()
    }
}

/// Bytes of the mapping a line of `/proc/self/maps` describes.
fn length(line: &str) -> Option<u64> {
    let (from, rest) = line.split_once('-')?;
    let (to, _) = rest.split_once(' ')?;
    Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
}

/// # Panics
/// When the file cannot be read: without it the tests would see nothing and pass.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}; these tests need /proc"))
}
