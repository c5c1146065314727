//! What the machine needs besides Rust. Says what is missing, and installs it where it may.

use crate::leg::{Outcome, Report};
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

const NEEDS: [Need; 3] = [
    Need { what: "a C linker", check: &["cc", "--version"], get: Get::Apt(&["gcc", "libc6-dev"]) },
    Need { what: "rustfmt", check: &["cargo", "fmt", "--version"], get: Get::Rustup("rustfmt") },
    Need { what: "clippy", check: &["cargo", "clippy", "--version"], get: Get::Rustup("clippy") },
];

/// Checks every need; fails when one cannot be met.
pub fn run() -> Report {
    let mut installed = Vec::new();
    for need in &NEEDS {
        if there(need) {
            continue;
        }
        println!("{} is missing", need.what);
        match need.get {
            Get::Apt(packages) => apt(packages)?,
            Get::Rustup(component) => Run::new("rustup").args(["component", "add", component]).run()?,
        }
        if !there(need) {
            return Err(format!("{} is still missing after installing it", need.what));
        }
        installed.push(need.what);
    }
    Ok(match installed.is_empty() {
        true => Outcome::passed("nothing to install"),
        false => Outcome::passed(format!("installed {}", installed.join(", "))),
    })
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
