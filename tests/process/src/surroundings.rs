//! Keeping a test away from what is configured where it runs.

use std::process::{Command, Stdio};

/// Set for a test that runs away from this machine's configuration.
const ALONE: &str = "DAT_TEST_ALONE";

/// Runs a test of this program once more, where nothing is configured but what is built in: neither by this user nor by
/// variables. Gives `false` in that run, in which the test does its work.
///
/// # Panics
/// When the test fails there.
pub fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let program = std::env::current_exe().expect("this test has a path");
    let run = Command::new(program)
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("DAT_PLUGIN_PATH", crate::peer::plugins())
        .env_remove("DAT_PLUGINS")
        .stdin(Stdio::null())
        .output()
        .expect("this test starts");
    let said = String::from_utf8_lossy(&run.stdout);
    said.lines().filter(|line| !line.starts_with("test ")).for_each(|line| println!("{line}"));
    assert!(run.status.success(), "{test}, run alone: {}", String::from_utf8_lossy(&run.stderr));
    assert!(said.contains("1 passed"), "{test} is no test of this program");
    true
}
