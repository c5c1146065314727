//! What the emulated machine boots: a distribution's kernel and an initial RAM file system with the modules Soft-RoCE
//! needs. Made once, and kept in the user's cache folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::cpio::Archive;
use crate::output;
use crate::process::Run;

/// A kernel and what it starts from.
pub struct Image {
    pub kernel: PathBuf,
    pub initrd: PathBuf,
}

/// The modules by name, in the order they are loaded; each after what it depends on. `rdma_rxe` uses `crc32_generic`
/// without saying so. When a device is taken away the kernel tells these modules of it last loaded first, and `ib_uverbs`
/// waits for every program to let go: so that programs hear of it from `rdma_cm`, that one is loaded later.
const MODULES: [&str; 14] = [
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
    "dummy",
    "veth",
    "crc32c_generic",
    "crc32_generic",
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
    "rdma_rxe",
    "ib_umad",
];

/// Distributions' names of a package that depends on their newest kernel: Debian's, Ubuntu's.
const KERNELS: [&str; 2] = ["linux-image-amd64", "linux-image-generic"];

const INIT: &str = include_str!("../../../tests/vm/init.sh");

/// The image, made when there is none yet. The error says what is missing and how to get it.
pub fn get() -> Result<Image, String> {
    let unpacked = match std::env::var_os("DAT_VM_ROOT") {
        Some(given) => PathBuf::from(given),
        None => unpacked_kernel()?,
    };
    let kernel = only_in(&unpacked.join("boot"), "vmlinuz-")?;
    let initrd = cache()?.join(format!("initrd-{}", file_name(&kernel)));
    // Made anew each time: it takes a moment, and so never is of another version than this program.
    write_atomically(&initrd, &initial_files(&unpacked)?)?;
    Ok(Image { kernel, initrd })
}

/// `$XDG_CACHE_HOME/dat-vm`.
fn cache() -> Result<PathBuf, String> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let folder = base.ok_or("neither XDG_CACHE_HOME nor HOME is set")?.join("dat-vm");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// The folder a kernel package was unpacked to; downloads it the first time.
fn unpacked_kernel() -> Result<PathBuf, String> {
    let cache = cache()?;
    let root = cache.join("root");
    if root.join("boot").is_dir() {
        return Ok(root);
    }
    let package = newest_package()?;
    output::show(&format!("first use: downloading {package} (about 70 MB) to {}", cache.display()));
    // A folder of this process's own, moved into place when complete: two first uses may run at a time.
    let work = cache.join(format!("work-{}", std::process::id()));
    fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let made = download(&package, &work);
    if made.is_ok() && fs::rename(work.join("root"), &root).is_err() && !root.join("boot").is_dir() {
        return Err(format!("{} could not be moved into place", work.display()));
    }
    let _ = fs::remove_dir_all(&work);
    made.map(|()| root)
}

fn newest_package() -> Result<String, String> {
    for name in KERNELS {
        let listed = Run::new("apt-cache").args(["depends", name]).output().unwrap_or_default();
        let dependency = listed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        if let Some(package) = dependency.into_iter().find(|package| package.starts_with("linux-image-")) {
            return Ok(package.to_owned());
        }
    }
    Err(format!(
        "apt knows none of the kernel packages {}; run `apt-get update`, or name a folder with boot/vmlinuz-* and \
         lib/modules/* in DAT_VM_ROOT",
        KERNELS.join(", ")
    ))
}

fn download(package: &str, work: &Path) -> Result<(), String> {
    // apt downloads to its working directory, as another user where it can, which a private folder would refuse.
    let script = format!(
        "cd '{}' && apt-get -o APT::Sandbox::User=root download {package} && dpkg -x {package}_*.deb root",
        work.display()
    );
    Run::new("sh").args(["-c", &script]).deadline(300).output()?;
    let root = work.join("root");
    let release = only_in(&root.join("lib/modules"), "")?;
    let (root, release) = (root.to_string_lossy(), file_name(&release));
    Run::new("depmod").args(["-b", &root, &release]).output().map(drop)
}

fn initial_files(unpacked: &Path) -> Result<Vec<u8>, String> {
    let release = file_name(&only_in(&unpacked.join("lib/modules"), "")?);
    let root = unpacked.to_string_lossy();
    let mut files: Vec<String> = Vec::new();
    for module in MODULES {
        let show = ["-d", &root, "-S", &release, "--show-depends", module];
        let listed = Run::new("modprobe").args(show).output()?;
        for file in listed.lines().filter_map(|line| line.strip_prefix("insmod ")) {
            let file = file.split_whitespace().next().unwrap_or_default().to_owned();
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    let mut archive = Archive::default();
    let mut list = String::new();
    for file in &files {
        let inside = file.strip_prefix(&*root).unwrap_or(file);
        archive.add(inside, &read(Path::new(file))?);
        list.push_str(inside);
        list.push('\n');
    }
    archive.add("/modules", list.as_bytes());
    archive.add("/bin/busybox", &read(&busybox()?)?);
    archive.add("/init", INIT.as_bytes());
    Ok(archive.finish())
}

/// The busybox that needs no library.
fn busybox() -> Result<PathBuf, String> {
    let places = ["/bin/busybox", "/usr/bin/busybox"];
    let found = places.iter().map(PathBuf::from).find(|place| place.exists());
    found.ok_or_else(|| "busybox is missing; install busybox-static".to_owned())
}

/// The one entry of a folder whose name begins with `prefix`.
fn only_in(folder: &Path, prefix: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found =
        entries.flatten().map(|entry| entry.path()).filter(|path| file_name(path).starts_with(prefix));
    found.next().ok_or_else(|| format!("{} has no {prefix}*", folder.display()))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn write_atomically(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let temporary = file.with_extension(format!("tmp{}", std::process::id()));
    let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, file));
    written.map_err(|error| format!("{}: {error}", file.display()))
}
