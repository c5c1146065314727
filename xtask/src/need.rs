//! What legs need of the machine. A leg that lacks something ends as NOT RUN, with the command that installs it.

use std::path::PathBuf;

use crate::cargo::nightly;
use crate::process::Run;
use crate::report::{Result, Stop};

/// Folders of programs; an ordinary user's PATH lacks some.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Where a program is.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Programs, each with the package of Debian and Ubuntu that has it.
pub fn programs(programs: &[(&str, &str)]) -> Result<()> {
    let missing = programs.iter().filter(|(program, _)| find(program).is_none());
    let mut packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    packages.dedup();
    match packages.as_slice() {
        [] => Ok(()),
        missing => Err(Stop::not_run(format!("missing here; run `apt-get install {}`", missing.join(" ")))),
    }
}

/// libfabric, by its program that lists fabrics.
pub fn libfabric() -> Result<()> {
    programs(&[("fi_info", "libfabric1 libfabric-bin libfabric-dev")])
}

/// A nightly toolchain with these components.
pub fn nightly_with(components: &[&str]) -> Result<()> {
    let advice = "`rustup toolchain install nightly`";
    if !nightly().args(["--version"]).works() {
        return Err(Stop::not_run(format!("there is no nightly toolchain; {advice}")));
    }
    match components.iter().find(|component| !has_nightly(component)) {
        None => Ok(()),
        Some(component) => Err(Stop::not_run(format!(
            "the nightly toolchain has no {component}; {advice} and `rustup component add --toolchain nightly {component}`"
        ))),
    }
}

/// Whether the nightly toolchain has a component.
pub fn has_nightly(component: &str) -> bool {
    if component == "rust-src" {
        let rustc =
            Run::new("rustc").without_env("RUSTUP_TOOLCHAIN").args(["+nightly", "--print", "sysroot"]);
        let sysroot = PathBuf::from(rustc.output().unwrap_or_default().trim());
        return sysroot.join("lib/rustlib/src/rust/library/Cargo.toml").exists();
    }
    nightly().args([component, "--version"]).works()
}

/// The one target with sanitizers, coverage and the emulated machine.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// That this is [`TARGET`].
pub fn x86_linux() -> Result<()> {
    match cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        true => Ok(()),
        false => Err(Stop::not_run(format!("only on {TARGET}"))),
    }
}
