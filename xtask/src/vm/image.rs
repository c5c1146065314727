//! What the emulated machine boots: a distribution's kernel and an initial RAM file system with the modules Soft-RoCE
//! needs. Made once, and kept in the user's cache folder.

use crate::report::Result;
use fs_err as fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::need;
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
pub fn get() -> Result<Image> {
    let unpacked = match std::env::var_os("DAT_VM_ROOT") {
        Some(given) => PathBuf::from(given),
        None => unpacked_kernel()?,
    };
    let kernel = only_in(&unpacked.join("boot"), "vmlinuz-")?;
    let initrd = cache()?.join(format!("initrd-{}", file_name(&kernel)));
    // Made anew each time: it takes a moment, and so never is of another version than this program.
    pack(&unpacked, &initrd)?;
    Ok(Image { kernel, initrd })
}

/// `$XDG_CACHE_HOME/dat-vm`.
fn cache() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let folder = base.ok_or("neither XDG_CACHE_HOME nor HOME is set")?.join("dat-vm");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The folder a kernel package was unpacked to; downloads it the first time.
fn unpacked_kernel() -> Result<PathBuf> {
    let cache = cache()?;
    let root = cache.join("root");
    if root.join("boot").is_dir() {
        return Ok(root);
    }
    let package = newest_package()?;
    output::show(&format!("first use: downloading {package} (about 70 MB) to {}", cache.display()));
    // A folder of this process's own, moved into place when complete: two first uses may run at a time.
    let work = cache.join(format!("work-{}", std::process::id()));
    fs::create_dir_all(&work)?;
    let made = download(&package, &work);
    if made.is_ok() && fs::rename(work.join("root"), &root).is_err() && !root.join("boot").is_dir() {
        fail!("{} could not be moved into place", work.display());
    }
    let _ = fs::remove_dir_all(&work);
    made.map(|()| root)
}

fn newest_package() -> Result<String> {
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
    ).into())
}

fn download(package: &str, work: &Path) -> Result<()> {
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

/// Writes the initial RAM file system, at once complete.
fn pack(unpacked: &Path, initrd: &Path) -> Result<()> {
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
    // The tree of the archive, and the archive of it.
    let tree = tempfile::tempdir()?;
    let add = |path: &str, file: &Path| -> Result<()> {
        let to = tree.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap_or(tree.path()))?;
        fs::copy(file, &to)?;
        Ok(fs::set_permissions(to, std::fs::Permissions::from_mode(0o755))?)
    };
    let inside = |file: &String| file.strip_prefix(&*root).unwrap_or(file).to_owned();
    for file in &files {
        add(&inside(file), Path::new(file))?;
    }
    let busybox = need::find("busybox").ok_or("busybox is missing; install busybox-static")?;
    add("/bin/busybox", &busybox)?;
    fs::write(tree.path().join("modules"), files.iter().map(|file| inside(file) + "\n").collect::<String>())?;
    fs::write(tree.path().join("init"), INIT)?;
    fs::set_permissions(tree.path().join("init"), std::fs::Permissions::from_mode(0o755))?;
    let pack = "cd \"$1\" && find . | \"$2\" cpio -o -H newc -R 0:0 > \"$3\"";
    let new = initrd.with_extension(format!("tmp{}", std::process::id()));
    Run::new("sh").args(["-c", pack, "sh"]).args([tree.path(), &busybox, &new]).output()?;
    Ok(fs::rename(new, initrd)?)
}

/// The one entry of a folder whose name begins with `prefix`.
fn only_in(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder)?;
    let mut found =
        entries.flatten().map(|entry| entry.path()).filter(|path| file_name(path).starts_with(prefix));
    Ok(found.next().ok_or_else(|| format!("{} has no {prefix}*", folder.display()))?)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
