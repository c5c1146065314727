//! What the machine needs besides Rust. Set-up first prints what it is going to install and for what, then installs it.
//! With `DAT_NO_INSTALL=1` it only prints.

use crate::cargo::nightly;
use crate::need::has_nightly;
use crate::output;
use crate::process::Run;
use crate::report::{Report, Result};

/// Set to anything but `0`, nothing is installed.
const NO_INSTALL: &str = "DAT_NO_INSTALL";

/// Something that legs use.
struct Need {
    what: &'static str,
    /// Whether every leg needs it. A leg that lacks something else reports NOT RUN itself.
    required: bool,
    get: Get,
}

#[derive(Clone, Copy)]
enum Get {
    /// A program, and the packages of Debian and Ubuntu that have it.
    Program(&'static [&'static str], &'static [&'static str]),
    /// Packages of Debian and Ubuntu.
    Apt(&'static [&'static str]),
    /// A component of the Rust toolchain in use, and a cargo command that shows it.
    Component(&'static str, &'static str),
    /// Components of the nightly toolchain, where there is one.
    Nightly(&'static [&'static str]),
}

/// What building anything needs.
const LINKER: Need = Need {
    what: "linking anything",
    required: true,
    get: Get::Program(&["cc", "--version"], &["gcc", "libc6-dev"]),
};

const NEEDS: [Need; 13] = [
    LINKER,
    Need { what: "the leg format", required: true, get: Get::Component("rustfmt", "fmt") },
    Need { what: "the leg clippy", required: true, get: Get::Component("clippy", "clippy") },
    Need { what: "miri and the sanitizers", required: false, get: Get::Nightly(&["miri", "rust-src"]) },
    optional(
        "layouts checked against C headers",
        &["libibverbs-dev", "librdmacm-dev", "libfabric-dev", "libdapl-dev"],
    ),
    optional("plugins and programs in C and C++", &["g++", "pkg-config"]),
    optional("the emulated machine with RDMA devices", &["qemu-system-x86", "busybox-static", "kmod"]),
    optional(
        "programs to interoperate and compare with",
        &["rdmacm-utils", "perftest", "ibverbs-utils", "ibverbs-providers", "libfabric-bin"],
    ),
    optional("existing uDAPL programs", &["dapl2-utils", "libdapl2", "binutils"]),
    optional("a real MPI over the C library", &["python3-venv"]),
    optional("network namespaces", &["iproute2"]),
    optional("another release of Debian", &["debootstrap"]),
    optional("counts of instructions, and peers to compare speed with", &["valgrind", "ucx-utils"]),
];

const fn optional(what: &'static str, packages: &'static [&'static str]) -> Need {
    Need { what, required: false, get: Get::Apt(packages) }
}

/// Installs what is missing. Fails when something required is still missing then.
pub fn run() -> Report {
    install(&NEEDS)
}

/// The same for building alone.
pub fn to_build() -> Result<()> {
    install(&[LINKER]).map(|_| ())
}

fn install(needs: &[Need]) -> Report {
    let missing: Vec<&Need> = needs.iter().filter(|need| !need.get.is_there()).collect();
    let packages = |needs: &[&Need]| needs.iter().flat_map(|need| need.get.packages()).copied().collect();
    let all: Vec<&str> = packages(&needs.iter().collect::<Vec<_>>());
    let absent: Vec<&str> = all.into_iter().filter(|package| is_absent(package)).collect();
    let allowed = std::env::var(NO_INSTALL).map_or(true, |value| value == "0");
    if !missing.is_empty() {
        output::show(&match allowed {
            true => format!("Set-up installs these; {NO_INSTALL}=1 leaves the machine as it is:"),
            false => format!("Not installed, because {NO_INSTALL} is set:"),
        });
    }
    for need in &missing {
        output::show(&format!("  {:<60} for {}", need.get.command(), need.what));
    }
    let wanted: Vec<&str> = packages(&missing);
    if allowed && !wanted.is_empty() {
        report(apt(&wanted));
    }
    let (mut installed, mut left) = (Vec::new(), Vec::new());
    for need in &missing {
        if let (true, Some(rustup)) = (allowed, need.get.rustup()) {
            report(rustup.run());
        }
        match need.get.is_there() {
            true => installed.push(need.what),
            false if need.required => fail!("{} needs `{}`", need.what, need.get.command()),
            false => left.push(need.what),
        }
    }
    let lists = [("installed for", installed), ("missing for", left), ("this distribution has no", absent)];
    let mut words: Vec<String> =
        if missing.is_empty() { vec!["nothing to install".into()] } else { Vec::new() };
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    words.extend(lists.map(|(what, list)| format!("{what} {}", list.join(", "))));
    Ok(words.join("; "))
}

/// Shows why something could not be installed.
fn report(result: Result<()>) {
    if let Err(stop) = result {
        output::show(&format!("not installed: {}", stop.words()));
    }
}

impl Get {
    fn is_there(self) -> bool {
        match self {
            Get::Program(check, _) => Run::new(check[0]).args(&check[1..]).works(),
            Get::Apt(packages) => packages.iter().all(|package| is_installed(package) || is_absent(package)),
            Get::Component(_, command) => Run::new("cargo").args([command, "--version"]).works(),
            Get::Nightly(components) => {
                !nightly().args(["--version"]).works() || components.iter().all(|name| has_nightly(name))
            }
        }
    }

    /// The command that installs it by hand.
    fn command(self) -> String {
        match self {
            Get::Program(_, packages) | Get::Apt(packages) => {
                format!("apt-get install {}", packages.join(" "))
            }
            Get::Component(name, _) => format!("rustup component add {name}"),
            Get::Nightly(names) => format!("rustup component add --toolchain nightly {}", names.join(" ")),
        }
    }

    fn packages(self) -> &'static [&'static str] {
        match self {
            Get::Program(_, packages) | Get::Apt(packages) => packages,
            _ => &[],
        }
    }

    fn rustup(self) -> Option<Run> {
        let add = Run::new("rustup").args(["component", "add"]);
        match self {
            Get::Component(name, _) => Some(add.args([name])),
            Get::Nightly(names) => Some(add.args(["--toolchain", "nightly"]).args(names)),
            _ => None,
        }
    }
}

fn is_installed(package: &str) -> bool {
    Run::new("dpkg").args(["-s", package]).works()
}

/// Whether the distribution lacks a package: its lists are here, and do not have it. Debian 13 has no `libdapl-dev`.
fn is_absent(package: &str) -> bool {
    let listed = |name: &str| {
        Run::new("apt-cache").args(["madison", name]).output().is_ok_and(|lines| !lines.trim().is_empty())
    };
    !is_installed(package) && !listed(package) && listed("libc6")
}

/// Installs packages; those that the distribution lacks are left out, because apt would then install none.
fn apt(packages: &[&str]) -> Result<()> {
    let root = rustix::process::geteuid().is_root();
    if !root && !Run::new("sudo").args(["-n", "true"]).works() {
        fail!(
            "neither root nor sudo without a password; run `apt-get install {}` as root",
            packages.join(" ")
        );
    }
    let apt_get = || if root { Run::new("apt-get") } else { Run::new("sudo").args(["-n", "apt-get"]) };
    apt_get().args(["update"]).run()?;
    let had = packages.iter().filter(|package| !is_absent(package));
    apt_get().args(["install", "-y", "--no-install-recommends"]).args(had).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_says_how_to_meet_it() {
        for need in &NEEDS {
            let command = need.get.command();
            assert!(command.contains("install ") || command.contains("add "), "{}: {command}", need.what);
            assert!(need.get.rustup().is_some() == need.get.packages().is_empty(), "{}: one way", need.what);
        }
    }

    #[test]
    fn a_package_that_no_distribution_has_is_not_asked_for_again() {
        // Without lists of packages nothing is known to be absent, and there is nothing to test.
        let lists = Run::new("apt-cache").args(["madison", "libc6"]).output().unwrap_or_default();
        if lists.trim().is_empty() {
            println!("NOT RUN: there are no lists of packages here (apt-get update)");
            return;
        }
        let get = Get::Apt(&["libc6", "there-is-no-such-package"]);
        assert!(get.is_there() && is_absent("there-is-no-such-package") && !is_absent("libc6"));
    }
}
