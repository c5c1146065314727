//! `dat perf`, a program of its own like the others.

use std::path::{Path, PathBuf};
use std::process::Command;

use dat_measure::cpu::Placement;
use serde_json::Value;

use super::points::{Contender, Point, Test};
use super::programs;

pub(crate) struct Dat {
    name: &'static str,
    /// One buffer each way, as the others have; otherwise one for each operation under way.
    one_buffer: bool,
    program: PathBuf,
    cpus: (usize, usize),
    quick: bool,
}

impl Dat {
    pub(crate) fn new(program: &Path, cpus: (usize, usize), quick: bool) -> Dat {
        Dat { name: "dat", one_buffer: true, program: program.to_owned(), cpus, quick }
    }

    /// The same with data that does not stay in the first caches.
    pub(crate) fn many_buffers(program: &Path, cpus: (usize, usize), quick: bool) -> Dat {
        Dat { name: "dat, many buffers", one_buffer: false, ..Dat::new(program, cpus, quick) }
    }
}

impl Contender for Dat {
    fn name(&self) -> &str {
        self.name
    }

    fn takes(&self, (test, _): Point) -> bool {
        words(test).is_some() && (self.one_buffer || test.is_bandwidth())
    }

    fn measure(&mut self, (test, size): Point) -> Result<Vec<(Option<Placement>, f64)>, String> {
        let (name, operation, metric) = words(test).ok_or("no such test")?;
        let mut command = Command::new(&self.program);
        command.args(["--json", "perf", name, "--test", operation, "--metric", metric]);
        command.args(["--seconds", if self.quick { "50ms" } else { "300ms" }]);
        command.args(["--sizes", &size.to_string(), "--cpus", &format!("{},{}", self.cpus.0, self.cpus.1)]);
        if self.one_buffer {
            command.args(["--buffers", "1"]);
        }
        if matches!(test, Test::HeapLatency | Test::HeapBandwidth) {
            command.arg("--heap");
        }
        if test == Test::TcpLatency {
            // Both sides spin in system calls: short batches, or it takes minutes on a machine that is not calm.
            command.args(["--iterations", if self.quick { "20" } else { "200" }]);
        }
        let text = programs::output(&mut command, self.cpus.0, self.cpus.0)?;
        let result: Value = serde_json::from_str(&text).map_err(|error| format!("dat perf: {error}"))?;
        let lines = result["results"].as_array().ok_or("dat perf printed no results")?;
        let places = [Placement::Same, Placement::Near, Placement::Far, Placement::Mixed, Placement::Unknown];
        let figures = lines.iter().filter_map(|line| {
            let place = places.into_iter().find(|place| line["place"] == serde_json::json!(place))?;
            Some((Some(place), line["median"].as_f64()?))
        });
        Ok(figures.collect())
    }
}

/// Name, operation and metric on the command line.
fn words(test: Test) -> Option<(&'static str, &'static str, &'static str)> {
    Some(match test {
        Test::SendLatency | Test::HeapLatency => ("shm0", "send", "latency"),
        Test::SendRate => ("shm0", "send", "rate"),
        Test::SendBandwidth | Test::HeapBandwidth => ("shm0", "send", "bandwidth"),
        Test::WriteLatency => ("shm0", "write", "latency"),
        Test::WriteBandwidth => ("shm0", "write", "bandwidth"),
        Test::ReadBandwidth => ("shm0", "read", "bandwidth"),
        Test::TcpLatency => ("ofi-tcp", "send", "latency"),
        _ => return None,
    })
}
