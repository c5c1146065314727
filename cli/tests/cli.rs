//! The real `dat` with the real plugins.

mod support;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use support::{dat, start};

/// A qualifier of this test's own: tests run side by side.
fn qual(number: u32) -> String {
    (20_000 + std::process::id() % 4000 * 10 + number).to_string()
}

#[test]
fn help_lists_every_command_for_people_and_no_other() {
    let help = dat(&["--help"]).ok().out;
    for command in
        ["providers", "info", "explain", "check", "ping", "perf", "conformance", "inspect", "stats"]
    {
        assert!(help.contains(&format!("\n  {command} ")), "{command} in:\n{help}");
    }
    assert!(!help.contains("\n  peer ") && !help.contains("conformance-peer"), "{help}");
    assert!(dat(&["--version"]).ok().out.starts_with("dat "));
}

#[test]
fn the_manual_and_completions_come_from_the_same_table() {
    let folder = tempfile::tempdir().expect("a folder");
    dat(&["man", folder.path().to_str().expect("text")]).ok();
    let page = fs::read_to_string(folder.path().join("dat.1")).expect("the page");
    assert!(page.contains("providers") && page.contains("perf"));
    assert!(fs::read_to_string(folder.path().join("dat-ping.1")).expect("the page").contains("count"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(dat(&["completions", shell]).ok().out.contains("explain"), "{shell}");
    }
}

#[test]
fn a_wrong_command_line_is_2_and_json_if_asked_for() {
    assert_eq!(dat(&["pong"]).code(), 2);
    assert_eq!(dat(&["ping", "shm0", "--size", "0"]).code(), 2);
    assert_eq!(dat(&["ping", "shm0", "--listen", "--connect", "::1"]).code(), 2);
    let wrong = dat(&["--json", "ping", "shm0", "--count", "many"]);
    assert_eq!((wrong.code(), &wrong.json()["error"]["usage"]), (2, &true.into()));
}

#[test]
fn providers_lists_each_with_its_state() {
    let text = dat(&["providers"]).ok().out;
    for name in ["loopback0", "shm0"] {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in:\n{text}"));
        assert!(line.contains("usable") && line.contains(".so"), "{line}");
    }
    let json = dat(&["providers", "--json"]).ok().json();
    let shm =
        json["providers"].as_array().expect("a list").iter().find(|p| p["name"] == "shm0").expect("shm0");
    assert_eq!((&shm["state"], &shm["plugin"]["name"]), (&"usable".into(), &"shm".into()));
}

#[test]
fn a_missing_library_is_listed_as_missing_with_the_reason() {
    let file = toml("[provider.gone]\nlibrary = \"libdat_gone.so\"\noptional = true\n");
    let text = dat(&["--plugins", &file.path, "providers"]).ok().out;
    assert!(text.contains("missing (optional)") && text.contains("libdat_gone.so"), "{text}");
    let error = dat(&["--plugins", &file.path, "info", "gone"]).failed().err;
    assert!(error.contains("there is no \"libdat_gone.so\" in"), "{error}");
}

#[test]
fn info_shows_both_sets_of_attributes() {
    let text = dat(&["info", "shm0"]).ok().out;
    assert!(text.contains("max_dto_per_ep") && text.contains("DAT_INTER_PROCESS"), "{text}");
    let json = dat(&["info", "loopback0", "--json"]).ok().json();
    assert_eq!(json["provider"]["provider_specific"]["DAT_INTER_PROCESS"], "FALSE");
    assert!(json["adapter"]["max_eps"].as_u64().expect("a number") > 0);
}

#[test]
fn a_wrong_name_gets_a_suggestion() {
    let wrong = dat(&["ping", "shn0"]).failed();
    assert!(wrong.err.contains("did you mean \"shm0\"?"), "{}", wrong.err);
    let wrong = dat(&["ping", "shn0", "--json"]).failed();
    let json = wrong.json();
    assert!(json["error"]["code"].as_str().expect("a code").contains("DAT_PROVIDER_NOT_FOUND"), "{json}");
    assert!(dat(&["explain", "shn0"]).failed().out.contains("did you mean"));
}

#[test]
fn explain_tells_the_steps() {
    let text = dat(&["explain", "shm0"]).ok().out;
    assert!(text.contains("shm0 opens as shm0") && text.contains("owners and modes are safe"), "{text}");
    let json = dat(&["explain", "shm0", "--json"]).ok().json();
    assert_eq!(json["chosen"], "shm0");
}

#[test]
fn check_reports_every_error_with_its_place() {
    let file = toml("[provider.a]\nlibrary = \"a.so\"\ncolour = 1\n\n[provider.b]\nlibrary = 7\n");
    let wrong = dat(&["check", &file.path]).failed().out;
    assert!(wrong.contains(&format!("{}:3:", file.path)), "{wrong}");
    assert!(wrong.contains(&format!("{}:6:", file.path)), "{wrong}");
    let json = dat(&["check", "--json", &file.path]).failed().json();
    assert_eq!((&json["ok"], &json["diagnostics"][0]["location"]["line"]), (&false.into(), &3.into()));
    let right = toml("[provider.a]\nlibrary = \"a.so\"\n");
    assert!(dat(&["check", "--syntax", &right.path]).ok().out.contains("correct; providers: 1"));
    // The same file with any command: the line is named as well.
    let error = dat(&["--plugins", &file.path, "providers"]).failed().err;
    assert!(error.contains(&format!("{}:3:", file.path)), "{error}");
}

#[test]
fn check_takes_steps_of_other_scopes_and_looks_at_parameters_and_libraries() {
    // The file of the README: one of its steps is a built-in name.
    let readme = "[provider.fast]\nlibrary = \"libdat_shm.so\"\nparams = { ring_bytes = 65536 }\n\n\
                  [chain]\nany = [\"fast\", \"shm0\"]\n";
    let file = toml(readme);
    assert!(dat(&["check", &file.path]).ok().out.contains("correct; providers: 1, chains: 1"));
    for (wrong, expected) in [
        (readme.replace("ring_bytes", "ring_byts"), "unknown parameter \"ring_byts\""),
        (readme.replace("libdat_shm", "libdat_smh"), "there is no \"libdat_smh.so\""),
        (readme.replace("\"shm0\"", "\"smh0\""), "did you mean \"shm0\""),
    ] {
        let file = toml(&wrong);
        let refused = dat(&["check", &file.path]).failed().out;
        assert!(refused.contains(expected) && refused.starts_with("error: "), "{expected}: {refused}");
    }
    let optional = toml("[provider.a]\nlibrary = \"a.so\"\noptional = true\n");
    let noted = dat(&["check", &optional.path]).ok().out;
    assert!(noted.starts_with("note: ") && noted.contains("correct; providers: 1"), "{noted}");
}

#[test]
fn a_dat_conf_is_checked_and_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dat.conf");
    let good = "ib0 u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"ib0 0\" \"\"\n";
    fs::write(&path, format!("# old\n{good}ib1 u2.0 nonsense\n")).expect("written");
    let path = path.to_str().expect("text");
    let wrong = dat(&["check", path]).failed().out;
    assert!(wrong.contains("dat.conf:3: "), "{wrong}");
    fs::write(path, good).expect("written");
    let imported = dat(&["check", "--to-toml", path]).ok().out;
    let again = toml(&imported);
    assert!(dat(&["check", "--syntax", &again.path]).ok().out.contains("providers: 1"), "{imported}");
}

#[test]
fn ping_within_a_process() {
    let text = dat(&["ping", "loopback0", "--count", "20", "--size", "1000"]).ok().out;
    assert!(text.contains("80000 bytes verified") && text.contains("disconnected gracefully"), "{text}");
    assert!(text.contains("thread of this process"), "{text}");
}

#[test]
fn ping_between_processes_of_all_kinds_of_sizes() {
    for size in ["1", "31", "32", "4K", "70000", "1M"] {
        let json = dat(&["ping", "shm0", "--count", "5", "--size", size, "--json"]).ok().json();
        assert!(json["peer"].as_str().expect("text").starts_with("process "), "{json}");
        assert_eq!(json["verified_bytes"], json["size"].as_u64().expect("a number") * 20, "{json}");
        for what in ["round_trip", "write", "read"] {
            assert!(json[what]["median_ns"].as_f64().expect("a number") > 0.0, "{json}");
        }
    }
}

#[test]
fn listen_and_connect() {
    let qual = qual(1);
    let listening = start(&["ping", "shm0", "--listen", &qual, "--once"]);
    let ready = listening.line();
    let address = ready.strip_prefix("ready ").and_then(|rest| rest.split(' ').next()).expect("an address");
    // The error for a port in use names the port.
    let taken = dat(&["ping", "shm0", "--listen", &qual]).failed().err;
    assert!(taken.contains(&format!("cannot listen on {qual}")), "{taken}");
    let text = dat(&["ping", "shm0", "--count", "3", "--connect", &format!("{address}:{qual}")]).ok().out;
    assert!(text.contains("verified"), "{text}");
    listening.end().ok();
    let nobody = dat(&["ping", "shm0", "--connect", &format!("{address}:{qual}")]).failed().err;
    assert!(nobody.contains("no process listens there"), "{nobody}");
}

#[test]
fn a_killed_peer_is_told_within_a_second() {
    let qual = qual(2);
    let mut listening = start(&["ping", "shm0", "--listen", &qual]);
    let address = listening.line().split(' ').nth(1).expect("an address").to_owned();
    let target = format!("{address}:{qual}");
    let mut pinging =
        start(&["ping", "shm0", "--connect", &target, "--count", "1000000", "--interval", "100us"]);
    thread::sleep(Duration::from_millis(400));
    assert!(pinging.child.try_wait().expect("ours").is_none(), "it ended early: {}", pinging.end().err);
    listening.child.kill().expect("it runs");
    let killed = Instant::now();
    let done = pinging.end().failed();
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(done.err.contains("the peer is gone") && done.err.contains("round "), "{}", done.err);
}

#[test]
fn a_stopped_peer_is_told_when_the_time_is_up() {
    let qual = qual(4);
    let listening = start(&["ping", "shm0", "--listen", &qual]);
    let address = listening.line().split(' ').nth(1).expect("an address").to_owned();
    let target = format!("{address}:{qual}");
    let arguments = ["ping", "shm0", "--connect", &target, "--count", "1000000", "--timeout", "500ms"];
    let pinging = start(&arguments);
    thread::sleep(Duration::from_millis(300));
    let peer = rustix::process::Pid::from_child(&listening.child);
    rustix::process::kill_process(peer, rustix::process::Signal::STOP).expect("it runs");
    let done = pinging.end().failed();
    assert!(done.err.contains("did nothing for 500ms"), "{}", done.err);
    // Nor does a stopped listener keep a new connection waiting.
    let refused = dat(&arguments).failed().err;
    assert!(refused.contains(&format!("no connection to {target}")), "{refused}");
}

#[test]
fn a_killed_command_leaves_no_peer_behind() {
    let mut pinging = start(&["ping", "shm0", "--count", "1000000", "--interval", "1ms"]);
    let children = format!("/proc/{0}/task/{0}/children", pinging.child.id());
    let deadline = Instant::now() + Duration::from_secs(20);
    let peer = loop {
        let list = fs::read_to_string(&children).unwrap_or_default();
        if let Some(peer) = list.split_whitespace().next() {
            break peer.to_owned();
        }
        assert!(Instant::now() < deadline, "no peer was started");
        thread::sleep(Duration::from_millis(5));
    };
    pinging.child.kill().expect("it runs");
    pinging.child.wait().expect("ours");
    // Ended, or a zombie where no process adopts orphans.
    let alive = || fs::read_to_string(format!("/proc/{peer}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while alive() {
        assert!(Instant::now() < deadline, "the peer {peer} lives on");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn perf_measures_and_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let plot = folder.path().join("perf.svg");
    let plot_text = plot.to_str().expect("text");
    let sizes = ["--sizes", "8,4K", "--seconds", "1ms", "--iterations", "50"];
    for name in ["loopback0", "shm0"] {
        let done = dat(&[&["perf", name, "--json", "--plot", plot_text][..], &sizes[..]].concat()).ok();
        let json = done.json();
        // With a processor each they poll.
        let processors = rustix::thread::sched_getaffinity(None).expect("the processors").count();
        assert_eq!(json["wait"], processors < 2, "{json}");
        let results = json["results"].as_array().expect("a list");
        for test in ["send", "write", "read"] {
            for metric in ["latency", "bandwidth", "rate"] {
                for size in [8, 4096] {
                    let is = |row: &&serde_json::Value| {
                        row["operation"] == test && row["metric"] == metric && row["size"] == size
                    };
                    let row =
                        results.iter().find(is).unwrap_or_else(|| panic!("{test} {metric} {size} in {json}"));
                    let (p10, median) =
                        (row["p10"].as_f64().expect("p10"), row["median"].as_f64().expect("median"));
                    let ordered = if metric == "latency" { p10 <= median } else { p10 >= median };
                    assert!(ordered && median > 0.0, "{row}");
                }
            }
        }
        let drawing = fs::read_to_string(Path::new(&plot)).expect("the drawing");
        assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
        assert!(drawing.matches("<polyline").count() >= 9, "{drawing}");
    }
}

/// Polling, each would wait for the other's slice of time to end, at every message.
#[test]
fn perf_sleeps_where_both_sides_share_one_processor() {
    let measured = thread::spawn(|| {
        // What a thread starts may use the processors of that thread.
        let mut one = rustix::thread::CpuSet::new();
        let all = rustix::thread::sched_getaffinity(None).expect("the processors");
        one.set((0..).find(|cpu| all.is_set(*cpu)).expect("one"));
        rustix::thread::sched_setaffinity(None, &one).expect("one of them");
        dat(&["perf", "shm0", "--sizes", "8", "--seconds", "1ms", "--iterations", "50", "--json"]).ok()
    });
    let done = measured.join().expect("measured");
    let json = done.json();
    assert_eq!((&json["wait"], json["cpus"].is_null()), (&true.into(), true), "{json}");
    assert!(done.err.contains("only one processor"), "{}", done.err);
}

#[test]
fn perf_can_sleep_and_listen() {
    let qual = qual(3);
    let listening = start(&["perf", "shm0", "--listen", &qual, "--once", "--no-pin"]);
    let address = listening.line().split(' ').nth(1).expect("an address").to_owned();
    let target = format!("{address}:{qual}");
    let text = dat(&[
        "perf",
        "shm0",
        "--connect",
        &target,
        "--no-pin",
        "--wait",
        // Each size has connections of its own, all of the one peer that is served.
        "--sizes",
        "8,64",
        "--seconds",
        "1ms",
    ])
    .ok()
    .out;
    assert!(text.contains("post to completion") && text.contains("sleeping"), "{text}");
    listening.end().ok();
}

struct Toml {
    path: String,
    _folder: tempfile::TempDir,
}

fn toml(text: &str) -> Toml {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plugins.toml");
    fs::write(&path, text).expect("written");
    Toml { path: path.to_str().expect("text").to_owned(), _folder: folder }
}
