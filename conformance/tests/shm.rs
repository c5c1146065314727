//! The suite over the shared memory provider as others run it: the plugin loaded by path, peers as processes.

use std::path::PathBuf;
use std::process::Command;

#[test]
fn shm_conforms() {
    let plugin = plugin();
    let expected = concat!(env!("CARGO_MANIFEST_DIR"), "/expected/shm0.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_dat-conformance"))
        .args(["--name", "shm0", "--expected", expected, "--plugin"])
        .arg(&plugin)
        .output()
        .expect("the runner starts");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} does not conform:\n{text}{said}", plugin.display());
}

/// `DAT_TEST_SHM`, or the library as cargo builds it now.
fn plugin() -> PathBuf {
    if let Some(path) = std::env::var_os("DAT_TEST_SHM") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "DAT_TEST_SHM names {}, which is no file", path.display());
        return path;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--package", "dat-shm", "--message-format=json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts; or set DAT_TEST_SHM to the path of libdat_shm.so");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "dat-shm does not build; set DAT_TEST_SHM to use another one:\n{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let path = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(PathBuf::from))
        .find(|name| name.ends_with("libdat_shm.so"));
    path.expect("cargo built dat-shm but named no libdat_shm.so; set DAT_TEST_SHM to its path")
}
