//! Files that are no plugin, or a bad one: each is refused with the right code and a line that says why, and the
//! process goes on.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use dat_plugin::{ChannelAttr, Opcode, PostFlag, Status};
use dat_registry::{OpenError, State};
use dat_types::{ReturnCode, ReturnType, Subtype};
use support::{plugin, registry_of};

/// Opens `x` on this library, expects "configured, but not loaded", and gives the sentence.
fn not_loaded(library: &Path) -> String {
    let registry = registry_of(library, "");
    let error = registry.open_device("x").expect_err("must not open");
    assert!(matches!(error, OpenError::NotLoadable { .. }), "{error}");
    assert_eq!(error.code(), ReturnCode::error(ReturnType::ProviderNotFound, Subtype::None));
    let text = error.to_string();
    assert!(text.starts_with("\"x\" is configured at "), "{text}");
    assert!(text.contains("test.toml:1:11 but was not loaded: "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    let status = registry.status().remove(0);
    assert!(status.state < State::Loadable, "{status:?}");
    assert!(text.ends_with(&status.reason), "{text} / {}", status.reason);
    let explanation = registry.explain("x");
    assert_eq!(explanation.chosen, None);
    assert!(explanation.to_string().contains(&status.reason), "{explanation}");
    text
}

#[test]
fn a_shared_object_without_a_note_is_no_plugin() {
    let text = not_loaded(&plugin("no-root"));
    assert!(text.contains("is a shared object but no dat plugin"), "{text}");
}

#[test]
fn a_note_with_nothing_behind_it_is_refused() {
    let text = not_loaded(&plugin("note-only"));
    assert!(text.contains("has other tables than this host expects"), "{text}");
}

#[test]
fn another_interface_version_is_refused_without_running_any_of_it() {
    let library = plugin("wrong-abi");
    let folder = tempfile::tempdir().expect("a folder");
    let mark = folder.path().join("mark");
    // First, that running it would show: the dynamic loader runs the constructor in another program.
    // By its name alone: the list ends a path at a space, and there may be one in the path of the folder.
    let name = Path::new(".").join(library.file_name().expect("a file"));
    let status = Command::new("/bin/true")
        .current_dir(library.parent().expect("a folder"))
        .env("LD_PRELOAD", name)
        .env("DAT_TEST_CONSTRUCTOR_FILE", &mark)
        .status()
        .expect("ran");
    assert!(status.success() && mark.exists(), "the constructor leaves no mark, so this test shows nothing");
    fs::remove_file(&mark).expect("removed");
    // The same in a process of its own, where the variable can be set.
    let child = Command::new(std::env::current_exe().expect("known"))
        .args(["--ignored", "--exact", "refuses_wrong_abi_in_a_child", "--nocapture"])
        .env("DAT_TEST_LIBRARY", &library)
        .env("DAT_TEST_CONSTRUCTOR_FILE", &mark)
        .output()
        .expect("ran");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
    assert!(!mark.exists(), "the constructor ran");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn refuses_wrong_abi_in_a_child() {
    let library = std::env::var_os("DAT_TEST_LIBRARY").expect("given by the test above");
    let text = not_loaded(Path::new(&library));
    assert!(text.contains("was built for plugin interface 99.0, this host loads 1 to 1"), "{text}");
}

#[test]
fn a_missing_symbol_gives_the_loaders_own_message() {
    let text = not_loaded(&plugin("missing-dep"));
    assert!(text.contains("undefined symbol: dat_test_symbol_that_nobody_defines"), "{text}");
    assert!(text.contains("libdat_test_missing_dep.so"), "{text}");
}

#[test]
fn tables_of_another_layout_are_refused() {
    let text = not_loaded(&plugin("layout-mismatch"));
    assert!(text.contains("has other tables than this host expects: incompatible type size"), "{text}");
}

#[test]
fn a_panic_in_open_is_a_failure_and_not_the_end() {
    let registry = registry_of(&plugin("panics-on-open"), "");
    for _ in 0..2 {
        let error = registry.open_device("x").expect_err("must not open");
        assert!(matches!(&error, OpenError::NoDevice { failure, .. } if failure.status == Status::PANICKED));
        assert_eq!(error.code().kind(), Some(ReturnType::InternalError));
        assert!(error.to_string().contains("is loaded but has no usable device"), "{error}");
    }
    let status = registry.status().remove(0);
    assert_eq!(status.state, State::Loadable, "{status:?}");
}

#[test]
fn a_panic_in_post_is_a_status_and_not_the_end() {
    let opened = registry_of(&plugin("panics-in-post"), "").open_device("x").expect("opens");
    let channel = opened.device.open_channel(&ChannelAttr::default(), None, None, None).expect("opens");
    for _ in 0..2 {
        let status = channel.post(Opcode::SEND, PostFlag::NONE, 1, &[], 0, Default::default());
        assert_eq!(status, Status::PANICKED);
        assert_eq!(channel.post_recv(PostFlag::NONE, 1, &[], 0), Status::PANICKED);
    }
}

#[test]
fn a_plugin_of_an_older_minor_version_works_without_what_it_lacks() {
    let registry = registry_of(&plugin("older-minor"), "");
    let opened = registry.open_device("x").expect("opens");
    assert_eq!(opened.plugin.abi(), (1, 0));
    assert_eq!(opened.device.describe(), "test-older-minor: moves nothing");
    let explanation = registry.explain("x");
    assert!(explanation.candidates[0].probes.is_empty(), "1.0 has no probing: {explanation}");
    assert_eq!(registry.status()[0].state, State::Usable);
    // The same code as the current version does have probes, so that the emptiness above means something.
    let current = registry_of(&plugin("panics-in-post"), "").explain("x");
    assert_eq!(current.candidates[0].probes.len(), 1, "{current}");
}

#[test]
fn a_plugin_of_a_newer_minor_version_works_and_what_it_has_more_is_left() {
    let registry = registry_of(&plugin("newer-minor"), "");
    let opened = registry.open_device("x").expect("opens");
    assert_eq!(opened.plugin.abi(), (1, dat_plugin::ABI_MINOR + 1));
    assert_eq!(opened.device.describe(), "test-newer-minor: moves nothing");
    assert_eq!(registry.explain("x").candidates[0].probes.len(), 1);
}

#[test]
fn files_that_are_no_library_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("libx.so");
    assert!(not_loaded(&path).contains("there is no "));
    fs::write(&path, "# a text file, renamed\n").expect("written");
    assert!(not_loaded(&path).contains("is no shared object for this machine"));
    fs::copy("/bin/true", &path).expect("copied");
    assert!(not_loaded(&path).contains("libx.so is "));
    assert!(not_loaded(folder.path()).contains("it is a folder"));
}

#[test]
fn a_library_that_was_cut_off_anywhere_is_refused() {
    let whole = fs::read(plugin("panics-in-post")).expect("read");
    let folder = tempfile::tempdir().expect("a folder");
    for len in [0, 3, 16, 63, 64, 100, 4096, whole.len() / 2, whole.len() - 1] {
        let path = folder.path().join(format!("lib{len}.so"));
        fs::write(&path, &whole[..len]).expect("written");
        let text = not_loaded(&path);
        assert!(text.contains("is no shared object for this machine"), "{len}: {text}");
    }
}

#[test]
fn an_unreadable_file_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("libx.so");
    fs::write(&path, "x").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("set");
    if fs::File::open(&path).is_ok() {
        eprintln!("NOT RUN: an_unreadable_file_is_refused: this user may read everything (root?)");
        return;
    }
    assert!(not_loaded(&path).contains("cannot be read: Permission denied"));
}

#[test]
fn an_untrusted_library_is_refused_before_anything_reads_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("libx.so");
    fs::copy(plugin("panics-in-post"), &path).expect("copied");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o757)).expect("set");
    let text = not_loaded(&path);
    assert!(text.contains("is not trusted") && text.contains("chmod o-w"), "{text}");
    let explanation = registry_of(&path, "").explain("x");
    assert!(explanation.candidates[0].note.is_none() && explanation.candidates[0].load.is_none());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    let pinned = registry_of(&path, &format!("sha256 = \"{}\"", "0".repeat(64)));
    let text = pinned.open_device("x").expect_err("another digest").to_string();
    assert!(text.contains("its sha256 is "), "{text}");
    let digest = text.split("its sha256 is ").nth(1).and_then(|rest| rest.get(..64)).expect("64 digits");
    registry_of(&path, &format!("sha256 = \"{digest}\"")).open_device("x").expect("opens");
}
