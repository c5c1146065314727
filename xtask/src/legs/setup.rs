//! What the machine needs besides Rust. Says what is missing, and installs it where it may.

use crate::leg::{Outcome, Report};
use crate::output;
use crate::process::Run;

/// A tool, how to see that it is there, and how to get it.
struct Need {
    what: &'static str,
    check: &'static [&'static str],
    get: Get,
}

enum Get {
    /// Packages of Debian and Ubuntu; needs root.
    Apt(&'static [&'static str]),
    /// A component of the Rust toolchain in use.
    Rustup(&'static str),
}

/// What building anything needs.
const LINKER: Need =
    Need { what: "a C linker", check: &["cc", "--version"], get: Get::Apt(&["gcc", "libc6-dev"]) };

const NEEDS: [Need; 3] = [
    LINKER,
    Need { what: "rustfmt", check: &["cargo", "fmt", "--version"], get: Get::Rustup("rustfmt") },
    Need { what: "clippy", check: &["cargo", "clippy", "--version"], get: Get::Rustup("clippy") },
];

/// Packages some legs use; a leg that lacks one says so itself and counts as not run.
const WANTED: &[(&str, &[&str])] = &[
    ("layouts checked against C", &["libibverbs-dev", "librdmacm-dev", "libfabric-dev", "libdapl-dev"]),
    ("a C++ compiler", &["g++"]),
    ("the emulated machine", &["qemu-system-x86", "busybox-static", "kmod"]),
    (
        "programs to interoperate and compare with",
        &["rdmacm-utils", "perftest", "ibverbs-utils", "ibverbs-providers", "libfabric-bin"],
    ),
    ("existing uDAPL programs", &["dapl2-utils", "libdapl2", "binutils"]),
    ("network namespaces", &["iproute2"]),
    ("counts of instructions, and peers to compare speed with", &["valgrind", "ucx-utils"]),
];

/// Checks every need; fails when one cannot be met.
pub fn run() -> Report {
    let mut installed = wanted();
    for need in &NEEDS {
        installed.extend(meet(need)?);
    }
    Ok(match installed.is_empty() {
        true => Outcome::passed("nothing to install"),
        false => Outcome::passed(format!("installed {}", installed.join(", "))),
    })
}

/// The same for what is built and not tested: nothing else is looked for, or installed.
pub fn to_build() -> Result<(), String> {
    meet(&LINKER).map(|_| ())
}

/// What was installed, if it was missing.
fn meet(need: &Need) -> Result<Option<&'static str>, String> {
    if there(need) {
        return Ok(None);
    }
    output::show(&format!("{} is missing", need.what));
    match need.get {
        Get::Apt(packages) => apt(packages)?,
        Get::Rustup(component) => Run::new("rustup").args(["component", "add", component]).run()?,
    }
    match there(need) {
        true => Ok(Some(need.what)),
        false => Err(format!("{} is still missing after installing it", need.what)),
    }
}

/// Installs what is wanted and not there, where that is possible.
fn wanted() -> Vec<&'static str> {
    let has = |package: &&str| Run::new("dpkg").args(["-s", *package]).works();
    let missing: Vec<_> = WANTED.iter().filter(|(_, packages)| !packages.iter().all(&has)).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let packages: Vec<&str> = missing.iter().flat_map(|(_, packages)| packages.iter().copied()).collect();
    output::show(&format!("installing, for the legs that use it: {}", packages.join(" ")));
    match apt(&packages) {
        Ok(()) => missing.iter().map(|(what, _)| *what).collect(),
        Err(why) => {
            output::show(&format!("not installed: {why}"));
            Vec::new()
        }
    }
}

fn there(need: &Need) -> bool {
    Run::new(need.check[0]).args(&need.check[1..]).works()
}

fn apt(packages: &[&str]) -> Result<(), String> {
    let by_hand = format!("apt-get install {}", packages.join(" "));
    let root = rustix::process::geteuid().is_root();
    if !root && !Run::new("sudo").args(["-n", "true"]).works() {
        return Err(format!("neither root nor sudo without a password; run `{by_hand}` as root"));
    }
    let as_root = |command: &[&str]| match root {
        true => Run::new(command[0]).args(&command[1..]),
        false => Run::new("sudo").args(["-n"]).args(command),
    };
    as_root(&["apt-get", "update"]).run()?;
    as_root(&[&["apt-get", "install", "-y", "--no-install-recommends"], packages].concat()).run()
}
