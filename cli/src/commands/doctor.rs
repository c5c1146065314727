//! `dat doctor`: what of this machine keeps providers from working, or from working well, and how to mend it.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::fs::Access;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use serde_json::json;

use crate::failure::Outcome;
use crate::output::Shared;

/// Looks. Exit status 1 when something keeps a provider from working.
pub fn run(shared: &Shared) -> Outcome<ExitCode> {
    let machine = Machine {
        root: "/".into(),
        locked: getrlimit(Resource::Memlock).current,
        files: getrlimit(Resource::Nofile).current,
        is_root: rustix::process::geteuid().is_root(),
    };
    let findings = machine.examine();
    shared.print(|| json!({ "findings": findings }), || text(&findings))?;
    Ok(match findings.iter().any(|finding| finding.verdict == Verdict::Problem) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// What was found out about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    what: String,
    verdict: Verdict,
    found: String,
    /// How to mend it; empty when there is nothing to mend.
    mend: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    /// Works, but less well than it could.
    Advice,
    /// Something does not work.
    Problem,
}

/// The examined parts of the machine. Files are below `root`.
struct Machine {
    root: PathBuf,
    /// Limits; `None` is without limit.
    locked: Option<u64>,
    files: Option<u64>,
    is_root: bool,
}

/// Less lockable memory than this is soon used up.
const PLENTY: u64 = 1 << 30;

/// Each shm connection takes a descriptor, each RDMA adapter a few.
const FILES: u64 = 4096;

impl Machine {
    fn examine(&self) -> Vec<Finding> {
        let devices = self.devices();
        let mut findings =
            vec![self.locked_memory(!devices.is_empty()), self.descriptors(), self.yama(), self.huge_pages()];
        if devices.is_empty() {
            findings
                .push(good("RDMA devices", "none: /sys/class/infiniband is empty; nothing to check".into()));
            return findings;
        }
        findings.push(self.nodes(&devices));
        findings.extend(devices.iter().flat_map(|device| self.ports(device)));
        findings
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn devices(&self) -> Vec<String> {
        self.names("sys/class/infiniband")
    }

    fn locked_memory(&self, needed: bool) -> Finding {
        let what = "locked memory";
        match self.locked {
            None => good(what, "without limit".into()),
            Some(bytes) if bytes >= PLENTY => good(what, format!("up to {} MiB", bytes >> 20)),
            Some(bytes) if self.is_root => {
                good(what, format!("limit {} KiB, which root may exceed", bytes >> 10))
            }
            Some(bytes) => {
                let found = format!("at most {} KiB may be registered with an RDMA device", bytes >> 10);
                let mend = "raise `ulimit -l`: a line `* - memlock unlimited` in /etc/security/limits.d/rdma.conf and a \
                            new login, or LimitMEMLOCK=infinity in the service's systemd unit";
                finding(what, if needed { Verdict::Problem } else { Verdict::Advice }, found, mend)
            }
        }
    }

    fn descriptors(&self) -> Finding {
        let what = "open files";
        match self.files {
            Some(count) if count < FILES => finding(
                what,
                Verdict::Advice,
                format!("at most {count}; every shm connection takes one"),
                "raise `ulimit -n`, or LimitNOFILE= in the service's systemd unit",
            ),
            Some(count) => good(what, format!("up to {count}")),
            None => good(what, "without limit".into()),
        }
    }

    fn yama(&self) -> Finding {
        let what = "reading a peer's memory (yama)";
        match self.read("proc/sys/kernel/yama/ptrace_scope").as_deref() {
            None => good(what, "not restricted: this kernel has no yama".into()),
            Some("0") => good(what, "allowed between processes of one user (ptrace_scope 0)".into()),
            Some(scope) => finding(
                what,
                Verdict::Advice,
                format!("ptrace_scope is {scope}: shm cannot use process_vm_readv and copies twice"),
                "as root: `sysctl kernel.yama.ptrace_scope=0`, if this machine's policy allows it; without it RDMA writes \
                 and reads of memory the adapter allocates are mapped all the same, messages are not",
            ),
        }
    }

    fn huge_pages(&self) -> Finding {
        let what = "huge pages";
        let pages = "sys/kernel/mm/hugepages/hugepages-2048kB";
        let number =
            |name: &str| self.read(&format!("{pages}/{name}")).and_then(|text| text.parse::<u64>().ok());
        match (number("nr_hugepages"), number("free_hugepages")) {
            (Some(all), Some(free)) if all > 0 => good(what, format!("{free} of {all} of 2 MiB are free")),
            (Some(_), _) => good(
                what,
                "none reserved; needed only for the parameter hugepages (`sysctl vm.nr_hugepages=N` reserves some)".into(),
            ),
            _ => good(what, "this kernel has none of 2 MiB".into()),
        }
    }

    fn nodes(&self, devices: &[String]) -> Finding {
        let what = "device nodes";
        let verbs: Vec<String> =
            self.names("dev/infiniband").into_iter().filter(|name| name.starts_with("uverbs")).collect();
        if verbs.is_empty() {
            let found = format!("{} in the kernel, but no /dev/infiniband/uverbs*", devices.join(", "));
            return finding(what, Verdict::Problem, found, "load the module: `modprobe ib_uverbs`");
        }
        if !self.root.join("dev/infiniband/rdma_cm").exists() {
            let found = "no /dev/infiniband/rdma_cm, so no connections".into();
            return finding(what, Verdict::Problem, found, "load the module: `modprobe rdma_ucm`");
        }
        let all = verbs.iter().map(String::as_str).chain(["rdma_cm"]);
        let shut: Vec<&str> = all
            .filter(|name| {
                let path = self.root.join("dev/infiniband").join(name);
                rustix::fs::access(&path, Access::READ_OK | Access::WRITE_OK).is_err()
            })
            .collect();
        match shut.is_empty() {
            true => good(what, format!("{} and rdma_cm can be opened", verbs.join(", "))),
            false => finding(
                what,
                Verdict::Problem,
                format!("this user may not open {} in /dev/infiniband", shut.join(", ")),
                "put the user into the nodes' group (`ls -l /dev/infiniband`), or set their mode by a udev rule",
            ),
        }
    }

    fn ports(&self, device: &str) -> Vec<Finding> {
        let folder = format!("sys/class/infiniband/{device}/ports");
        let of = |port: &String| {
            let read =
                |name: &str| self.read(&format!("{folder}/{port}/{name}")).unwrap_or_else(|| "?".into());
            let (what, state) = (format!("{device} port {port}"), read("state"));
            let found = format!("link {state}, {}, {}", read("link_layer"), read("rate"));
            match state.starts_with('4') {
                true => good(&what, found),
                false => finding(
                    &what,
                    Verdict::Problem,
                    found,
                    "check the cable; RoCE: `ip link set INTERFACE up`; InfiniBand: is a subnet manager running?",
                ),
            }
        };
        self.names(&folder).iter().map(of).collect()
    }
}

fn good(what: &str, found: String) -> Finding {
    finding(what, Verdict::Good, found, "")
}

fn finding(what: &str, verdict: Verdict, found: String, mend: &str) -> Finding {
    Finding { what: what.into(), verdict, found, mend: mend.into() }
}

fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for Finding { what, verdict, found, mend } in findings {
        let mark = match verdict {
            Verdict::Good => "good   ",
            Verdict::Advice => "advice ",
            Verdict::Problem => "PROBLEM",
        };
        out.push_str(&format!("{mark}  {what}: {found}\n"));
        if !mend.is_empty() {
            out.push_str(&format!("         -> {mend}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, text).expect("a file");
        }
        let machine =
            Machine { root: root.path().into(), locked: None, files: Some(1 << 20), is_root: false };
        (root, machine)
    }

    fn problems(machine: &Machine) -> Vec<String> {
        let findings = machine.examine().into_iter();
        findings.filter(|finding| finding.verdict == Verdict::Problem).map(|finding| finding.what).collect()
    }

    const DEVICE: [(&str, &str); 4] = [
        ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
        ("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
        ("dev/infiniband/uverbs0", ""),
        ("dev/infiniband/rdma_cm", ""),
    ];

    #[test]
    fn a_machine_without_rdma_has_no_problem() {
        let (_root, mut machine) = machine(&[("proc/sys/kernel/yama/ptrace_scope", "1\n")]);
        machine.locked = Some(65_536);
        assert_eq!(problems(&machine), Vec::<String>::new());
        let advice: Vec<_> = machine.examine().into_iter().filter(|f| f.verdict == Verdict::Advice).collect();
        assert_eq!(advice.len(), 2, "locked memory and yama: {advice:?}");
        assert!(advice.iter().all(|finding| !finding.mend.is_empty()));
    }

    #[test]
    fn a_sound_device_is_good_and_faults_are_named() {
        let (_root, mut sound) = machine(&DEVICE);
        assert_eq!(problems(&sound), Vec::<String>::new());
        sound.locked = Some(65_536);
        assert_eq!(problems(&sound), ["locked memory"]);
        let (_root, down) = machine(&[&DEVICE[1..], &[(DEVICE[0].0, "1: DOWN\n")]].concat());
        assert_eq!(problems(&down), ["mlx5_0 port 1"]);
        let (_root, no_cm) = machine(&DEVICE[..3]);
        assert_eq!(problems(&no_cm), ["device nodes"]);
        assert!(text(&no_cm.examine()).contains("modprobe rdma_ucm"));
        let (_root, no_nodes) = machine(&DEVICE[..2]);
        assert!(text(&no_nodes.examine()).contains("modprobe ib_uverbs"));
    }
}
