//! `dat inspect` and `dat stats`, the real command.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::{dat, start};

/// The plugins of this build, beside the command.
fn library(name: &str) -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_dat")).parent().expect("a folder");
    let found = [folder.join(name), folder.join("deps").join(name)].into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not built")).display().to_string()
}

/// The plugin in C of `tests/plugins` with a fault.
fn in_c(folder: &Path, fault: u32) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = folder.join(format!("lib{fault}.so"));
    let status = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-std=c11", "-fPIC", "-shared"])
        .arg(format!("-DFAULT={fault}"))
        .arg("-I")
        .arg(root.join("include"))
        .arg("-o")
        .args([&out, &root.join("tests/plugins/broken.c")])
        .status()
        .expect("the C compiler that also links Rust programs");
    assert!(status.success());
    out
}

#[test]
fn inspect_reads_a_plugin_and_tries_it_when_asked() {
    let shm = library("libdat_shm.so");
    let text = dat(&["inspect", &shm]).ok().out;
    assert!(text.contains("interface") && text.contains("libc.so"), "{text}");
    assert!(text.ends_with("nothing in the file keeps this host from loading it"), "{text}");
    let json = dat(&["inspect", &shm, "--try", "--json"]).ok().json();
    assert_eq!((&json["file"]["says"]["name"], &json["trial"]["ok"]), (&"shm".into(), &true.into()));
    assert_eq!(json["trial"]["plugin"]["name"], "shm");
    assert!(json["trial"]["load_us"].as_u64().expect("a number") > 0);
    assert!(!json["trial"]["probes"].as_array().expect("a list").is_empty());
}

#[test]
fn a_file_that_is_no_plugin_fails_in_one_line() {
    let refused = dat(&["inspect", "/etc/passwd"]).failed();
    assert_eq!(refused.out.lines().count(), 1, "{}", refused.out);
    assert!(refused.out.contains("it is no ELF file"), "{}", refused.out);
    let json = dat(&["inspect", "/nonexistent.so", "--try", "--json"]).failed().json();
    assert_eq!((&json["file"]["loads"]["ok"], json["trial"].is_null()), (&false.into(), true));
}

#[test]
fn a_plugin_that_crashes_or_hangs_is_a_report_and_not_a_crash() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |fault| in_c(folder.path(), fault).display().to_string();
    let crashed = dat(&["inspect", "--try", &path(9)]).failed();
    assert!(crashed.out.contains("ended the child that loaded it: signal 6 (abort)"), "{}", crashed.out);
    let start = Instant::now();
    let hung = dat(&["inspect", "--try", "--timeout", "300ms", &path(10)]).failed();
    assert!(hung.out.contains("did not load within 300ms"), "{}", hung.out);
    assert!(start.elapsed() < Duration::from_secs(20));
    let file = folder.path().join("plugins.toml");
    let text = [("a", 6), ("b", 9), ("c", 0)]
        .map(|(name, fault)| format!("[provider.{name}]\nlibrary = {:?}\n", path(fault)));
    std::fs::write(&file, text.concat()).expect("written");
    let listed = dat(&["--plugins", &file.display().to_string(), "providers", "--json"]).ok().json();
    let reason = |at: usize| listed["providers"][at]["reason"].as_str().expect("a sentence").to_owned();
    assert!(reason(0).contains("ProviderOps has a null pointer"), "{listed}");
    assert!(
        reason(1).contains("it ended the process that loaded and opened it: signal 6 (abort)"),
        "{listed}"
    );
    assert!(reason(2).contains("NO_DEVICE"), "{listed}");
    let refused = dat(&["inspect", "--try", &path(6)]).failed();
    assert!(refused.out.contains("ProviderOps has a null pointer"), "{}", refused.out);
}

#[test]
fn a_file_of_this_folder_is_that_file_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = in_c(folder.path(), 0);
    let name = name.file_name().expect("a name");
    let run = Command::new(env!("CARGO_BIN_EXE_dat"))
        .args(["inspect", "--try"])
        .arg(name)
        .current_dir(folder.path())
        .output()
        .expect("dat starts");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("tried: loads in "), "{said}");
}

#[test]
fn stats_shows_the_counters_of_a_running_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("plugins.toml");
    let text =
        format!("[provider.counted]\nlibrary = {:?}\nlayers = [\"count\"]\n", library("libdat_shm.so"));
    std::fs::write(&file, text).expect("written");
    let file = file.display().to_string();
    let ping = start(&["--plugins", &file, "ping", "counted", "--count", "100000", "--interval", "1ms"]);
    let pid = ping.child.id().to_string();
    let deadline = Instant::now() + Duration::from_secs(30);
    let json = loop {
        let asked = dat(&["stats", &pid, "--json"]);
        if asked.code() == 0 && asked.json()["devices"][0]["totals"].as_array().is_some_and(|t| t.len() >= 4)
        {
            break asked.json();
        }
        assert!(Instant::now() < deadline, "no counters: {} {}", asked.out, asked.err);
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(
        (&json["devices"][0]["ia"], &json["devices"][0]["provider"]),
        (&"counted".into(), &"shm".into())
    );
    let page = dat(&["stats", &pid, "--prometheus"]).ok().out;
    assert!(page.contains("# TYPE dat_latency_seconds histogram"), "{page}");
    assert!(page.contains("dat_channel_posts_total{"), "{page}");
    let table = dat(&["stats", &pid, "--channels"]).ok().out;
    assert!(table.contains("all channels") && table.contains("channel 1 (connected)"), "{table}");
    let mine = dat(&["stats", &std::process::id().to_string()]).failed();
    assert!(mine.err.contains("no open device with the layer \"count\""), "{}", mine.err);
}
