//! That plugins of yesterday and of other compilers load and conform: frozen ones of each released version, and one built
//! by the nightly compiler.

use fs_err as fs;
use std::path::{Path, PathBuf};

use super::authors::{compile_c, conformance, dat, inspect};
use crate::cargo::{cargo, nightly, target_dir};
use crate::need::nightly_with;
use crate::process::Run;
use crate::report::{Report, Result};
use crate::root::{files_below, root};

/// Where they are kept.
const FROZEN: &str = "tests/frozen";
/// A frozen plugin stays in the repository for ever.
const MOST_BYTES: u64 = 1 << 20;

/// Builds the plugins of the current version as they would be frozen, runs the suite over them and every frozen one; with
/// `keep`, puts them beside those.
pub fn frozen(keep: bool) -> Report {
    let dat = dat()?;
    let fresh = build()?;
    for plugin in &fresh {
        let size = fs::metadata(plugin)?.len();
        if size > MOST_BYTES {
            fail!("{} has {size} bytes; it is to be kept for ever", plugin.display());
        }
        inspect(&dat, plugin)?;
    }
    let kept = kept()?;
    let mut said = Vec::new();
    for plugin in fresh.iter().chain(&kept) {
        inspect(&dat, plugin)?;
        let mut arguments: Vec<&Path> = vec!["--plugin".as_ref(), plugin];
        // What later clauses ask that the version did not promise, each with its reason.
        let expected = plugin.with_extension("toml");
        if expected.exists() {
            arguments.extend([Path::new("--expected"), &expected]);
        }
        said.push(conformance(&dat, &arguments)?);
    }
    if keep {
        return self::keep(&fresh);
    }
    let versions = format!("{} of this version, {} of released versions", fresh.len(), kept.len());
    Ok(format!("{versions}: {}", said.join("; ")))
}

/// A plugin built by the nightly compiler loads into a host built by the stable one, and conforms.
pub fn by_nightly() -> Report {
    nightly_with(&[])?;
    let dat = dat()?;
    let target = target_dir()?.join("nightly");
    nightly()
        .args(["build", "--offline", "-p", "dat-loopback"])
        .env("CARGO_TARGET_DIR", &target)
        .without_env("RUSTFLAGS")
        .run()?;
    let plugin = target.join("debug/libdat_loopback.so");
    inspect(&dat, &plugin)?;
    conformance(&dat, &[Path::new("--plugin"), &plugin])
}

/// Builds both plugins small and stripped, with the compilers of this machine.
fn build() -> Result<Vec<PathBuf>> {
    let target = target_dir()?.join("frozen");
    // Nothing of where it was built stays in it: neither this tree's place nor that of the registry's crates.
    let home = std::env::var("CARGO_HOME").or(std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    let tree = fs::canonicalize(root())?;
    let from = [(tree.display().to_string(), "dat"), (home.unwrap_or("/cargo".into()), "cargo")];
    let flags = from.map(|(path, name)| format!("--remap-path-prefix={path}={name}")).join(" ");
    cargo()
        .args(["rustc", "--release", "-p", "dat-loopback", "--lib", "--crate-type", "cdylib"])
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", flags)
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "z")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .run()?;
    let rust = target.join("release/libdat_loopback.so");
    let c = target.join("release/libdat_example_c.so");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    compile_c(&compiler, &c)?;
    for plugin in [&rust, &c] {
        Run::new("strip").args([Path::new("--strip-all"), plugin]).run()?;
    }
    Ok(vec![rust, c])
}

fn kept() -> Result<Vec<PathBuf>> {
    let arch = std::env::consts::ARCH;
    let mut files = files_below(&root().join(FROZEN))?;
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".so") && name.contains(arch)
    });
    Ok(files)
}

/// Major and minor version of the plugin interface, as in `1.1`, by its C header.
fn interface_version() -> Result<String> {
    let file = root().join("include/dat_plugin.h");
    let text = fs::read_to_string(&file)?;
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("#define DATP_ABI_")?.strip_prefix(name));
        line.map(str::trim).ok_or(format!("{} has no {name}", file.display()))
    };
    Ok(format!("{}.{}", number("MAJOR")?, number("MINOR")?))
}

fn keep(fresh: &[PathBuf]) -> Report {
    let version = interface_version()?;
    let readme = root().join(FROZEN).join("README.md");
    let mut text = fs::read_to_string(&readme)?;
    let rustc = Run::new("rustc").args(["--version"]).output()?;
    let cc = Run::new("cc").args(["--version"]).output()?;
    let compilers = [rustc.trim(), cc.lines().next().unwrap_or_default()];
    for ((plugin, language), compiler) in fresh.iter().zip(["rust", "c"]).zip(compilers) {
        let name = format!("{version}-{}-{language}.so", std::env::consts::ARCH);
        let to = root().join(FROZEN).join(&name);
        if to.exists() {
            fail!("{} is there already; a frozen plugin is never rebuilt", to.display());
        }
        fs::copy(plugin, &to)?;
        let sum = Run::new("sha256sum").args([&to]).output()?;
        let sum = sum.split_whitespace().next().unwrap_or_default();
        let size = fs::metadata(&to)?.len();
        text.push_str(&format!("| `{name}` | {compiler} | {size} | `{sum}` |\n"));
    }
    fs::write(&readme, text)?;
    Ok(format!("plugins of interface {version} are in {FROZEN}; commit them"))
}
