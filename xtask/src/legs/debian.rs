//! The project on another release of Debian: a tree made by debootstrap, entered with chroot. The repository and the Rust
//! toolchain are this machine's; compiler, C library and libfabric are the release's.
//!
//! The tree and what is built in it stay below the target directory. Only making the tree needs the network.

use fs_err as fs;
use std::path::{Path, PathBuf};

use crate::cargo::target_dir;
use crate::need;
use crate::output;
use crate::process::Run;
use crate::report::{Report, Result};
use crate::root::root;

/// Releases and their names.
const RELEASES: [(&str, &str); 2] = [("12", "bookworm"), ("13", "trixie")];

/// Enters a tree.
const ENTER: &str = "tests/distribution/enter.sh";

/// What tests and examples need there.
const PACKAGES: [&str; 12] = [
    "binutils",
    "g++",
    "gcc",
    "git",
    "iproute2",
    "libc6-dev",
    "libfabric-bin",
    "libfabric-dev",
    "libfabric1",
    "libibverbs-dev",
    "librdmacm-dev",
    "pkg-config",
];

/// Written into a tree that is complete; a list of its packages.
const COMPLETE: &str = "dat-packages";

/// Seconds for the legs inside, which build everything once.
const INSIDE: u64 = 5400;

/// The legs of [`crate::suite::distribution`] on a release.
pub fn run(release: &str) -> Report {
    let Some((_, name)) = RELEASES.iter().find(|(number, _)| *number == release) else {
        let known = RELEASES.map(|(number, _)| number).join(", ");
        fail!("there is no release {release:?} here; there are {known}");
    };
    let folder = target_dir()?.join("debian");
    let tree = folder.join(name);
    make(&folder, &tree, name)
        .map_err(|stop| stop.into_not_run().of(format!("no tree of Debian {release}")))?;
    let mut said = None;
    let build = folder.join(format!("{name}-target"));
    fs::create_dir_all(&build)?;
    let ran = inside(&tree)?
        .env("CARGO_TARGET_DIR", &build)
        .args(["cargo", "run", "--quiet", "--package", "xtask", "--", "distribution"])
        .deadline(INSIDE)
        .lines(|line| said = line.strip_prefix("xtask distribution: ").map(str::to_owned).or(said.take()));
    let version = version(&tree);
    ran.map_err(|stop| format!("{version}: {}", said.clone().unwrap_or(stop.words())))?;
    let said = said.ok_or("it ended without a result")?;
    Ok(format!("{version}: {said}"))
}

/// The versions that make a difference.
fn version(tree: &Path) -> String {
    let packages = fs::read_to_string(tree.join(COMPLETE)).unwrap_or_default();
    let wanted = ["libc6 ", "libfabric1 ", "gcc "];
    let lines = packages.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name)));
    lines.collect::<Vec<_>>().join(", ")
}

/// Makes the tree, once.
fn make(folder: &Path, tree: &Path, name: &str) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root may enter one".into());
    }
    if tree.join(COMPLETE).exists() {
        return Ok(());
    }
    need::programs(&[("debootstrap", "debootstrap")])?;
    fs::create_dir_all(folder)?;
    if tree.exists() {
        // Of a run that was ended.
        fs::remove_dir_all(tree)?;
    }
    output::stdout_line(&format!("making {}; this takes minutes", tree.display()));
    Run::new("debootstrap")
        .args(["--variant=minbase".as_ref(), name.as_ref(), tree.as_os_str()])
        .deadline(1200)
        .run()?;
    let install = [
        "export DEBIAN_FRONTEND=noninteractive; apt-get update && apt-get install -y --no-install-recommends",
        &PACKAGES.join(" "),
        "&& apt-get clean && dpkg-query -W -f '${Package} ${Version}\\n' > /dat-packages.new",
    ];
    enter(tree, &[]).args(["sh", "-c", &install.join(" ")]).env("DAT_NETWORK", "1").deadline(1200).run()?;
    Ok(fs::rename(tree.join("dat-packages.new"), tree.join(COMPLETE))?)
}

/// A command in the tree that sees these folders.
fn enter(tree: &Path, folders: &[PathBuf]) -> Run {
    let run = Run::new(&root().join(ENTER).to_string_lossy()).args([tree]).args(folders);
    run.args(["--"]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LANG", "C.UTF-8")
}

/// The same with the repository and the toolchain, in the repository. Nothing is downloaded or installed there.
fn inside(tree: &Path) -> Result<Run> {
    let here = root().canonicalize().map_err(|error| format!("the repository: {error}"))?;
    let target = target_dir()?;
    let home = std::env::var_os("HOME").map(PathBuf::from).ok_or("HOME is not set")?;
    let of =
        |variable: &str, folder: &str| std::env::var_os(variable).map_or(home.join(folder), PathBuf::from);
    let (cargo, rustup) = (of("CARGO_HOME", ".cargo"), of("RUSTUP_HOME", ".rustup"));
    let mut folders = vec![here.clone(), cargo.clone(), rustup.clone()];
    if !target.starts_with(&here) {
        fs::create_dir_all(&target)?;
        folders.push(target);
    }
    folders.retain(|folder| folder.exists());
    let path = format!("{}/bin:/usr/sbin:/usr/bin:/sbin:/bin", cargo.display());
    let run = enter(tree, &folders)
        .args(["sh", "-c", "cd \"$1\" && shift && PATH=$1 && shift && exec \"$@\"", "sh"])
        .args([here.as_os_str(), path.as_ref()]);
    let run = run.env("CARGO_HOME", cargo).env("RUSTUP_HOME", rustup).env("HOME", home);
    Ok(run
        .env("CARGO_NET_OFFLINE", "true")
        .env("DAT_NO_INSTALL", "1")
        .without_env("CARGO")
        .without_env("RUSTC"))
}
