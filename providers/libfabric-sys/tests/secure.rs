//! A program with more rights than its starter never loads libfabric: the library would load code from folders that the
//! starter names in the environment.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use libfabric_sys::Library;

const NOBODY: u32 = 65_534;

#[test]
fn a_set_uid_program_does_not_load_libfabric() {
    // A set-uid file of another user makes the child's effective user differ from its real one.
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("set-uid");
    fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    if chown(&program, Some(NOBODY), Some(NOBODY)).is_err() {
        println!("NOT RUN: only root can give a file to another user");
        return;
    }
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("a folder others may enter");
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("set-uid");
    let output = Command::new(&program)
        .args(["--exact", "child_tries_to_load_libfabric", "--ignored", "--nocapture"])
        .output()
        .expect("the child runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.contains("AT_SECURE=false") {
        println!("NOT RUN: this file system or container ignores the set-uid bit");
        return;
    }
    assert!(text.contains("AT_SECURE=true"), "the child did not run: {text}");
    assert!(text.contains("refused: libfabric.so.1 is not loaded"), "{text}");
}

#[test]
#[ignore = "the child process of the test above"]
fn child_tries_to_load_libfabric() {
    println!("AT_SECURE={}", libfabric_sys::is_secure_execution());
    match Library::get() {
        Ok(_) => println!("loaded"),
        Err(why) => println!("refused: {why}"),
    }
}
