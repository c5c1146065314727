//! Builds the plugins of `tests/plugins`, which are broken on purpose, once for each test program.
#![allow(dead_code, reason = "each test program uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dat_registry::Registry;

const PLUGINS: [&str; 7] = [
    "no-root",
    "note-only",
    "wrong-abi",
    "panics-on-open",
    "panics-in-post",
    "missing-dep",
    "layout-mismatch",
];

/// The library of `dat-test-NAME`.
pub fn plugin(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(build);
    folder.join(format!("libdat_test_{}.so", name.replace('-', "_")))
}

/// A registry with one entry `x` for this library; `more` is added to the entry.
pub fn registry_of(library: &Path, more: &str) -> Registry {
    let toml = format!("[provider.x]\nlibrary = {:?}\n{more}\n", library.display().to_string());
    Registry::from_str("test.toml", &toml).expect("valid")
}

/// Cargo makes no `cdylib` for a test, so it is asked for them; in a folder of its own, because some are built with a
/// feature of dat-plugin that nothing else may see, and two builds of one folder would wait for each other.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
    let packages: Vec<String> = PLUGINS.iter().map(|name| format!("--package=dat-test-{name}")).collect();
    cargo(&target, &packages);
    for other in ["older", "newer"] {
        let package = format!("dat-test-{other}-minor");
        cargo(&target, &[format!("--package={package}"), format!("--features={package}/{other}")]);
    }
    target.join("debug")
}

fn cargo(target: &Path, arguments: &[String]) {
    std::fs::create_dir_all(target).expect("made");
    let log = target.join(format!("build-{}.log", std::process::id()));
    let mut child = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--offline", "--target-dir"])
        .arg(target)
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).expect("a log"))
        .spawn()
        .expect("cargo starts");
    let deadline = Instant::now() + Duration::from_secs(600);
    let status = loop {
        if let Some(status) = child.try_wait().expect("waited") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("cargo took longer than ten minutes for {arguments:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    assert!(status.success(), "cargo build {arguments:?} failed:\n{said}");
    let _ = std::fs::remove_file(&log);
}
