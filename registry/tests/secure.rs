//! A program with more rights than its starter believes none of the starter's variables.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use dat_registry::Registry;

const NOBODY: u32 = 65534;

#[test]
fn a_set_uid_program_ignores_the_environment() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN: a_set_uid_program_ignores_the_environment: only root can make a set-uid program");
        return;
    }
    // Even root may not where a container has taken that right away, or has no such user.
    if let Err(why) = Command::new("true").uid(NOBODY).gid(NOBODY).current_dir("/").status() {
        eprintln!("NOT RUN: a_set_uid_program_ignores_the_environment: no becoming user {NOBODY}: {why}");
        return;
    }
    let folder = tempfile::tempdir().expect("made");
    // Independent of this process's umask.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("set");
    let file = folder.path().join("planted.toml");
    fs::write(&file, "[provider.planted]\nlibrary = \"libplanted.so\"\n").expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("set");
    // Root's own HOME, which user `nobody` cannot access: no reason to fail.
    let home = folder.path().join("home");
    fs::create_dir(&home).expect("made");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("set");
    let program = folder.path().join("program");
    fs::copy(std::env::current_exe().expect("known"), &program).expect("copied");

    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    let plain = names_as_nobody(&program, &file, &home);
    assert!(plain.contains("euid 65534") && plain.contains("planted"), "{plain}");

    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("set");
    let secure = names_as_nobody(&program, &file, &home);
    if secure.contains("euid 65534") {
        eprintln!(
            "NOT RUN: a_set_uid_program_ignores_the_environment: {} is mounted nosuid",
            folder.path().display()
        );
        return;
    }
    assert!(secure.contains("euid 0") && secure.contains("shm0") && !secure.contains("planted"), "{secure}");
}

fn names_as_nobody(program: &Path, file: &Path, home: &Path) -> String {
    let output = Command::new(program)
        .args(["--ignored", "--exact", "prints_the_names", "--nocapture", "--test-threads=1"])
        .env("DAT_PLUGINS", file)
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME")
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output()
        .expect("ran");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
#[ignore = "run by the test above, in processes of its own"]
fn prints_the_names() {
    let registry = Registry::open().expect("valid");
    let names: Vec<_> = registry.entries().iter().map(|entry| entry.name.as_str()).collect();
    println!("euid {} names {}", rustix::process::geteuid().as_raw(), names.join(" "));
}
