//! Files as plugins may be found: each kind has its own sentence, and none of them runs to get it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dat_registry::inspection::{FileReport, file, trial};

/// The plugin in C of `tests/plugins`, with one of its faults, compiled into `folder`. Linking Rust programs needs a C
/// compiler too, so there is one.
fn compiled(folder: &Path, fault: u32) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = folder.join(format!("libbroken{fault}.so"));
    let output = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-std=c11", "-Wall", "-Werror", "-fPIC", "-shared", "-O1"])
        .arg(format!("-DFAULT={fault}"))
        .arg("-I")
        .arg(root.join("include"))
        .arg("-o")
        .args([&out, &root.join("tests/plugins/broken.c")])
        .output()
        .expect("the C compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    out
}

/// The verdict on the file: always one line that begins with its path.
fn refused(report: &FileReport) -> String {
    let reason = &report.loads.reason;
    assert!(!report.loads.ok, "{reason}");
    assert_eq!(reason.lines().count(), 1, "{reason}");
    let rest = reason.strip_prefix(&report.path.display().to_string());
    rest.unwrap_or_else(|| panic!("{reason}")).trim().to_owned()
}

#[test]
fn a_sound_file_says_who_it_is_what_it_can_and_what_it_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = file(&compiled(folder.path(), 0));
    assert!(report.loads.ok, "{report:?}");
    let said = report.says.expect("a plugin");
    assert_eq!((said.name.as_str(), said.version.as_str()), ("test-c", "1.2.3"));
    assert_eq!(said.capabilities.expect("said"), ["RECEIVER_WAITS", "INTER_HOST"]);
    assert_eq!(said.root.as_deref(), Some("c dat_plugin_c_root"));
    assert!(said.needed.iter().any(|library| library.starts_with("libc.so")), "{:?}", said.needed);
    let json = serde_json::to_value(file(&folder.path().join("libbroken0.so"))).expect("serialises");
    assert_eq!(json["says"]["abi"][0], dat_plugin::ABI_MAJOR);
}

#[test]
fn a_file_for_something_else_is_told_by_its_head() {
    let folder = tempfile::tempdir().expect("a folder");
    let sound = fs::read(compiled(folder.path(), 0)).expect("read");
    let with = |at: usize, value: u8| {
        let mut bytes = sound.clone();
        bytes[at] = value;
        let path = folder.path().join("changed.so");
        fs::write(&path, bytes).expect("written");
        refused(&file(&path))
    };
    let prefix = "is no shared object for this machine: ";
    let cases = [
        (4, 1, "it is no 64-bit file"),
        (5, if cfg!(target_endian = "little") { 2 } else { 1 }, "-endian"),
        (16, 1, "it is an object file that was not linked yet"),
        (16, 2, "it is a program"),
        (16, 4, "it is a core dump"),
        (16, 77, "it is of ELF type 77"),
        (18, 8, "it is for ELF machine 8"),
        (1, b'e', "it is no ELF file"),
    ];
    for (at, value, expected) in cases {
        let said = with(at, value);
        assert!(said.starts_with(prefix) && said.contains(expected), "{said}");
    }
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let sound = fs::read(compiled(folder.path(), 0)).expect("read");
    for len in (0..200).chain((200..sound.len()).step_by(499)).chain([sound.len() - 1]) {
        let path = folder.path().join("cut.so");
        fs::write(&path, &sound[..len]).expect("written");
        assert!(refused(&file(&path)).starts_with("is no shared object for this machine"), "{len}");
    }
}

#[test]
fn whatever_bytes_are_changed_nothing_panics() {
    let folder = tempfile::tempdir().expect("a folder");
    let sound = fs::read(compiled(folder.path(), 0)).expect("read");
    let path = folder.path().join("hostile.so");
    // Bytes of the ELF header, the program headers and the section headers, to an extreme.
    let sections = u64::from_ne_bytes(sound[40..48].try_into().expect("eight")) as usize;
    for at in (0..64).chain((64..600).step_by(3)).chain((sections..sound.len()).step_by(7)) {
        let mut bytes = sound.clone();
        bytes[at] = if bytes[at] == 0xFF { 0 } else { 0xFF };
        fs::write(&path, bytes).expect("written");
        let report = file(&path);
        assert_eq!(report.loads.reason.lines().count(), 1, "{report:?}");
    }
}

#[test]
fn a_note_that_lies_is_refused_or_shown_harmlessly() {
    let folder = tempfile::tempdir().expect("a folder");
    let sound = fs::read(compiled(folder.path(), 0)).expect("read");
    let at = sound.windows(8).position(|bytes| bytes == b"DAT\0\x01\0\0\0").expect("the note") - 12;
    let with = |from: usize, value: &[u8]| {
        let mut bytes = sound.clone();
        bytes[at + from..at + from + value.len()].copy_from_slice(value);
        let path = folder.path().join("note.so");
        fs::write(&path, bytes).expect("written");
        file(&path)
    };
    for (from, value) in [(0, &[9u8, 0, 0, 0][..]), (4, &[8, 0, 0, 0]), (8, &[7, 0, 0, 0]), (12, b"GNU\0")] {
        assert!(refused(&with(from, value)).contains("holds no note of a plugin"));
    }
    // A length beyond the section says nothing more than the section holds.
    let long = with(4, &[0xFF; 4]);
    assert!(long.says.is_some_and(|said| said.name == "test-c"));
    let newer = refused(&with(16, &[99, 0, 0, 0]));
    assert!(newer.starts_with("was built for plugin interface 99."), "{newer}");
    // What a terminal would obey does not get through.
    let shown = with(24, b"\x1b[31mred\x07").says.expect("a plugin").name;
    assert!(!shown.chars().any(char::is_control) && shown.contains("[31mred"), "{shown:?}");
    // An older note, without capabilities.
    let older = with(4, &[72, 0, 0, 0]).says.expect("a plugin");
    assert_eq!((older.capabilities, older.name.as_str()), (None, "test-c"));
}

#[test]
fn a_stripped_plugin_still_says_who_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = compiled(folder.path(), 0);
    let strip = |option: &str| Command::new("strip").arg(option).arg(&path).status();
    match strip("--strip-all") {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            eprintln!("NOT RUN: a_stripped_plugin_still_says_who_it_is: no strip: {error}");
            return;
        }
    }
    let report = file(&path);
    assert!(report.loads.ok, "{report:?}");
    assert!(trial(&path).error.is_none());
    // What takes the section headers away too, as some packers do.
    let mut bytes = fs::read(&path).expect("read");
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    // Another file: the first is loaded, and what is mapped must not be written to.
    let bare = folder.path().join("bare.so");
    fs::write(&bare, bytes).expect("written");
    assert!(refused(&file(&bare)).contains("section headers were taken away"));
}

#[test]
fn a_sound_plugin_in_c_loads_and_each_broken_table_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let sound = trial(&compiled(folder.path(), 0));
    assert_eq!(sound.error, None);
    assert_eq!(sound.plugin.expect("loaded").name, "test-c");
    let newer = trial(&compiled(folder.path(), 13));
    assert_eq!(newer.error, None, "a later minor version has more, and loads");
    assert_eq!(newer.plugin.expect("loaded").abi, (dat_plugin::ABI_MAJOR, 9));
    let cases = [
        (1, "dat_plugin_c_root: it returned a null pointer"),
        (2, "dat_plugin_c_root: the module has 16 bytes, not "),
        (3, "dat_plugin_c_root: the module is for interface "),
        (4, "dat_plugin_c_root: the module has no QueueOps"),
        (5, "dat_plugin_c_root: ProviderOps has 8 bytes, not 24"),
        (6, "dat_plugin_c_root: ProviderOps has a null pointer at offset 16"),
        (7, "dat_plugin_c_root: ProviderOps has a reserved word that is not 0"),
        (8, "dat_plugin_c_root: the name makes no sense"),
        (11, "NO_DEVICE"),
        (12, "dat_plugin_c_root: the module's name is \"test-d\", the note's \"test-c\""),
    ];
    for (fault, expected) in cases {
        let error = trial(&compiled(folder.path(), fault)).error.expect("refused");
        assert!(error.contains(expected), "{fault}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
