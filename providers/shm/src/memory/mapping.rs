//! Shared memory: the one type for a memory file that is mapped, whichever process made it.
//!
//! Each file is a `memfd` with seals, so that its size is fixed before anybody maps it. A file from a peer passes one
//! check, in [`SharedMapping::open`], before it is mapped: it is memory, of the right kind and size, and cannot shrink.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::foreign::ForeignFd;

/// Whether allocated memory is made of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugePages {
    Off,
    Try,
    Require,
}

/// Who may write to a memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seals {
    /// Both sides: the size is fixed.
    BothWrite,
    /// The maker alone, through the mapping it made before it sealed the file. Others cannot map it writable, and
    /// cannot punch holes into it.
    MakerWrites,
}

impl Seals {
    fn flags(self) -> SealFlags {
        let size = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        match self {
            Seals::BothWrite => size,
            Seals::MakerWrites => size | SealFlags::FUTURE_WRITE,
        }
    }
}

/// Pages of a memory file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    Normal,
    Huge,
}

/// What a file from a peer must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Its exact length in bytes.
    pub(crate) len: u64,
    pub(crate) seals: Seals,
    /// Files of huge pages pass too. Their pages can be taken away in spite of all seals, and an access is then a
    /// signal, so only a device that uses huge pages itself accepts them.
    pub(crate) huge: bool,
    /// All its pages exist. A hole is filled on access, and where memory is short that is a signal.
    pub(crate) filled: bool,
}

/// A mapped memory file. The mapping is writable unless a peer made the file and seals it against that.
#[derive(Debug)]
pub(crate) struct SharedMapping {
    base: *mut u8,
    len: usize,
    /// `None` when it is no longer needed: see [`SharedMapping::without_file`].
    fd: Option<OwnedFd>,
    /// The process that mapped it. A child made by fork has no such mapping.
    pid: u32,
}

// SAFETY: plain shared memory. Users access it by atomics and copies, which are sound from any thread.
unsafe impl Send for SharedMapping {}
// SAFETY: the methods only compute addresses and pass the descriptor to the kernel.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// A new memory file of `len` bytes, all zeros, mapped and sealed. Its pages are holes until [`SharedMapping::fill`].
    pub(crate) fn create(name: &str, len: usize, pages: Pages, seals: Seals) -> io::Result<SharedMapping> {
        // Where files may not be that long, the system would end the process with a signal; here it is an error.
        let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if most.is_some_and(|most| most < len as u64) {
            let why = format!(
                "{len} bytes of shared memory are more than the limit of a file's size; raise `ulimit -f`"
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let kind = match pages {
            Pages::Normal => MemfdFlags::empty(),
            Pages::Huge => MemfdFlags::HUGETLB,
        };
        let fd = rustix::fs::memfd_create(name, kind | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        let made = SharedMapping::map(fd, len, true)?;
        // After mapping: the seal against writing spares mappings that exist.
        if let Some(file) = made.file() {
            rustix::fs::fcntl_add_seals(file, seals.flags())?;
        }
        Ok(made)
    }

    /// Checks a file that a peer sent, then maps it.
    pub(crate) fn open(fd: ForeignFd, expected: Expected) -> Result<SharedMapping, String> {
        let write = expected.seals == Seals::BothWrite;
        SharedMapping::open_as(fd, expected, write)
    }

    /// As [`SharedMapping::open`], mapped to be read although the peer's seals would allow more.
    pub(crate) fn open_to_read(fd: ForeignFd, expected: Expected) -> Result<SharedMapping, String> {
        SharedMapping::open_as(fd, expected, false)
    }

    fn open_as(fd: ForeignFd, expected: Expected, write: bool) -> Result<SharedMapping, String> {
        check(&fd, expected)?;
        // A memory file: to close it waits for nobody.
        let fd = fd.trusted().ok_or("no descriptor")?;
        let len = usize::try_from(expected.len).map_err(|_| format!("{} bytes", expected.len))?;
        SharedMapping::map(fd, len, write).map_err(|e| format!("mmap of {len} bytes: {e}"))
    }

    /// A child made by fork does not get the mapping: it would write into its parent's connections.
    fn map(fd: OwnedFd, len: usize, write: bool) -> io::Result<SharedMapping> {
        let prot = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address the kernel chooses.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, &fd, 0)? };
        let made = SharedMapping { base: base.cast(), len, fd: Some(fd), pid: std::process::id() };
        // SAFETY: the mapping just made; on failure its drop unmaps it.
        unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontFork)? };
        Ok(made)
    }

    /// Takes the pages of a range from the system, so that no access has to fill a hole.
    pub(crate) fn fill(&self, offset: usize, len: usize) -> io::Result<()> {
        // A pending signal interrupts the call, which then undoes its work. In small pieces it comes to an end even
        // under a timer that interrupts a hundred times a second.
        const PIECE: usize = 1 << 20;
        let file = self.file().ok_or(io::ErrorKind::Unsupported)?;
        let end = (offset + len).min(self.len);
        let mut at = offset;
        while at < end {
            // Pieces end at multiples of `PIECE`, and huge pages are at least as long: then one piece is one page.
            let piece = PIECE.min(end - at);
            match rustix::fs::fallocate(file, FallocateFlags::empty(), at as u64, piece as u64) {
                Ok(()) => at += piece,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The first byte of the mapping.
    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes mapped.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of `len` bytes at `offset`; `None` when they are not all inside.
    #[inline]
    pub(crate) fn at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len as u64);
        inside.then(|| self.base.wrapping_add(offset as usize))
    }

    /// The file, to be sent to a peer.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Keeps the mapping and closes the file: descriptors are scarce.
    pub(crate) fn without_file(mut self) -> SharedMapping {
        self.fd = None;
        self
    }

    /// Whether this process mapped it. A child made by fork must not touch the memory.
    pub(crate) fn is_here(&self) -> bool {
        std::process::id() == self.pid
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        // SAFETY: mapped by `map` in this process. Whoever got an address keeps this value, so no access comes later.
        if let Err(error) = unsafe { rustix::mm::munmap(self.base.cast(), self.len) } {
            tracing::error!(%error, "munmap");
        }
    }
}

/// What can be known of a file before it is mapped. It stays true: the seals see to the size, and seals stay.
fn check(fd: &ForeignFd, expected: Expected) -> Result<(), String> {
    const TMPFS: i64 = 0x0102_1994;
    const HUGETLBFS: i64 = 0x9584_58f6;
    // Fails for everything but memory files, so nothing below reaches a file system that answers when it likes.
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|e| format!("no memory file: {e}"))?;
    if !seals.contains(expected.seals.flags() - SealFlags::SEAL) {
        return Err("a memory file without the seals against resizing and writing".into());
    }
    let kind = rustix::fs::fstatfs(fd).map_err(|e| format!("fstatfs: {e}"))?.f_type;
    match kind as i64 & 0xFFFF_FFFF {
        TMPFS => {}
        HUGETLBFS if expected.huge => {}
        HUGETLBFS => return Err("memory of huge pages, which this device does not use; see hugepages".into()),
        other => return Err(format!("a file of file system {other:#x}")),
    }
    let stat = rustix::fs::fstat(fd).map_err(|e| format!("fstat: {e}"))?;
    if expected.len == 0 || stat.st_size as u64 != expected.len {
        return Err(format!("{} bytes in place of {}", stat.st_size, expected.len));
    }
    // `st_blocks` counts 512 bytes each.
    if expected.filled && (stat.st_blocks as u64).saturating_mul(512) < expected.len {
        return Err("memory with holes".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected = Expected { len: 8192, seals: Seals::BothWrite, huge: false, filled: false };

    fn file(len: u64, seals: SealFlags) -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, len).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    #[test]
    #[cfg_attr(miri, ignore = "memory files")]
    fn what_one_side_writes_the_other_reads() {
        let made = SharedMapping::create("test", 8192, Pages::Normal, Seals::BothWrite).unwrap();
        made.fill(0, 8192).unwrap();
        let filled = Expected { filled: true, ..EXPECTED };
        let theirs =
            SharedMapping::open(made.file().unwrap().try_clone_to_owned().unwrap().into(), filled).unwrap();
        // SAFETY: both addresses are inside their mappings.
        unsafe {
            theirs.base().add(8191).write(7);
            assert_eq!(made.base().add(8191).read(), 7);
        }
    }

    /// A pending signal interrupts the call that fills memory, as often as a profiler's timer wants.
    #[test]
    #[cfg_attr(miri, ignore = "memory files")]
    #[allow(
        clippy::disallowed_methods,
        reason = "a signal handler of the test, which is the application here"
    )]
    fn memory_is_filled_although_signals_interrupt_it() {
        extern "C" fn nothing(_: libc::c_int) {}
        const LEN: usize = 256 << 20;
        let made = SharedMapping::create("test", LEN, Pages::Normal, Seals::BothWrite).unwrap();
        let nothing: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: a handler that does nothing; the thread that gets the signals outlives the one that sends them.
        let filler = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &action, ptr::null_mut()), 0);
            libc::pthread_self()
        };
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    // SAFETY: the thread waits for this one.
                    unsafe { libc::pthread_kill(filler, libc::SIGUSR2) };
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
            let filled = made.fill(0, LEN);
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
            filled.unwrap();
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "memory files")]
    fn a_file_its_maker_writes_cannot_be_written_or_punched_by_others() {
        let made = SharedMapping::create("test", 8192, Pages::Normal, Seals::MakerWrites).unwrap();
        made.fill(0, 8192).unwrap();
        // SAFETY: inside the mapping, which stays writable.
        unsafe { made.base().write(1) };
        let fd = made.file().unwrap().try_clone_to_owned().unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(rustix::fs::fallocate(&fd, punch, 0, 4096), Err(Errno::PERM));
        assert!(SharedMapping::map(fd.try_clone().unwrap(), 8192, true).is_err());
        assert!(SharedMapping::open(fd.into(), Expected { seals: Seals::MakerWrites, ..EXPECTED }).is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "memory files")]
    fn other_files_are_refused() {
        let size = SealFlags::SHRINK | SealFlags::GROW;
        let expect = |fd: OwnedFd, expected| SharedMapping::open(fd.into(), expected).unwrap_err();
        let maker = Expected { seals: Seals::MakerWrites, ..EXPECTED };
        let filled = Expected { filled: true, ..EXPECTED };
        assert!(expect(file(8192, SealFlags::SHRINK), EXPECTED).contains("seals"));
        assert!(expect(file(8192, size), maker).contains("seals"));
        assert!(expect(file(4096, size), EXPECTED).contains("in place of"));
        assert!(expect(file(8192, size), filled).contains("holes"));
        assert!(expect(file(8192, size | SealFlags::WRITE), EXPECTED).contains("mmap"));
        assert!(
            expect(std::fs::File::open("/dev/zero").unwrap().into(), EXPECTED).contains("no memory file")
        );
        assert!(SharedMapping::open(file(8192, size).into(), EXPECTED).is_ok());
    }
}
