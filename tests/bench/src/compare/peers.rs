//! The measuring programs of UCX and libfabric, as the distribution packages them.

use std::process::Command;

use dat_measure::cpu::Placement;

use super::points::{Contender, Point, Test};
use super::programs;

/// `ucx_perftest`.
pub(crate) struct Ucx {
    name: &'static str,
    cpus: (usize, usize),
    /// The program's test and transports for one of ours.
    test: fn(Test) -> Option<&'static str>,
    /// Words of a transport chosen by hand.
    more: &'static [&'static str],
    transports: &'static str,
    most: u32,
    /// A tenth of the iterations.
    quick: bool,
}

impl Ucx {
    /// Its upper layer: messages matched by tag, writes and reads.
    pub(crate) fn new(cpus: (usize, usize), quick: bool) -> Ucx {
        let test = |test| match test {
            Test::SendLatency | Test::HeapLatency => Some("tag_lat"),
            Test::SendRate | Test::SendBandwidth | Test::HeapBandwidth => Some("tag_bw"),
            Test::WriteLatency => Some("ucp_put_lat"),
            Test::WriteBandwidth => Some("ucp_put_bw"),
            Test::ReadBandwidth => Some("ucp_get"),
            _ => None,
        };
        Ucx { name: "UCX", cpus, test, more: &[], transports: "posix,cma", most: u32::MAX, quick }
    }

    /// Messages handed to a function of the receiver's, without a posted receive.
    pub(crate) fn active(cpus: (usize, usize), quick: bool) -> Ucx {
        let test = |test| match test {
            Test::SendLatency | Test::HeapLatency => Some("ucp_am_lat"),
            Test::SendRate | Test::SendBandwidth | Test::HeapBandwidth => Some("ucp_am_bw"),
            _ => None,
        };
        Ucx { name: "UCX am", test, ..Ucx::new(cpus, quick) }
    }

    /// The same below its upper layer: no posted receive, no completion.
    pub(crate) fn transport(cpus: (usize, usize), quick: bool) -> Ucx {
        let test = |test| match test {
            Test::SendLatency => Some("am_lat"),
            Test::SendRate => Some("am_bw"),
            _ => None,
        };
        let more = &["-x", "posix", "-d", "memory"];
        Ucx { name: "UCX uct", test, more, transports: "all", most: 64, ..Ucx::new(cpus, quick) }
    }
}

impl Contender for Ucx {
    fn name(&self) -> &str {
        self.name
    }

    fn takes(&self, (test, size): Point) -> bool {
        (self.test)(test).is_some() && size <= self.most
    }

    fn measure(&mut self, (test, size): Point) -> Result<Vec<(Option<Placement>, f64)>, String> {
        if !programs::there("ucx_perftest") {
            return Err("ucx_perftest is not installed (apt-get install ucx-utils)".to_owned());
        }
        let latency = matches!(test, Test::SendLatency | Test::HeapLatency | Test::WriteLatency);
        let count = iterations(size, latency, self.quick);
        let port = programs::port();
        let command = || {
            let mut command = Command::new("ucx_perftest");
            command.envs([
                ("UCX_TLS", self.transports),
                ("UCX_LOG_LEVEL", "error"),
                ("UCX_WARN_UNUSED_ENV_VARS", "n"),
            ]);
            command.args(["-p", &port.to_string(), "-s", &size.to_string(), "-n", &count.to_string()]);
            command.args(["-w", &(count / 10).to_string(), "-t", (self.test)(test).unwrap_or_default()]);
            command.args(self.more);
            command
        };
        let mut client = command();
        client.args(["127.0.0.1", "-f", "-v"]);
        let text = programs::pair(&mut command(), &mut client, port, self.cpus)?;
        let value = match test {
            _ if latency => column(&text, "percentile_lat").map(|us| us * 1e3),
            Test::SendRate => column(&text, "overall_mr").map(|rate| rate / 1e6),
            _ => column(&text, "overall_bw").map(|mib| mib * 1_048_576.0 / 1e9),
        };
        let value = value.ok_or_else(|| format!("ucx_perftest printed no figure: {:?}", text.trim()))?;
        Ok(vec![(None, value)])
    }
}

/// A value by part of its heading, of the comma-separated table `-v` gives.
fn column(text: &str, heading: &str) -> Option<f64> {
    let at = text.lines().find_map(|line| line.split(',').position(|name| name.contains(heading)))?;
    let values =
        text.lines().rev().find(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))?;
    values.split(',').nth(at)?.trim().parse().ok()
}

/// Some tenths of a second's worth, or some hundredths.
fn iterations(size: u32, latency: bool, quick: bool) -> u64 {
    let size = u64::from(size);
    let count = match latency {
        true => (400_000_000 / (size + 4000)).min(100_000),
        false => (2_000_000_000 / (size + 1000)).min(500_000),
    };
    (if quick { count / 10 } else { count }).max(100)
}

/// `fi_pingpong`, which knows latency only.
pub(crate) struct Fabric {
    cpus: (usize, usize),
    quick: bool,
}

impl Fabric {
    pub(crate) fn new(cpus: (usize, usize), quick: bool) -> Fabric {
        Fabric { cpus, quick }
    }
}

impl Contender for Fabric {
    fn name(&self) -> &str {
        "libfabric"
    }

    fn takes(&self, (test, _): Point) -> bool {
        matches!(test, Test::SendLatency | Test::TcpLatency)
    }

    fn measure(&mut self, (test, size): Point) -> Result<Vec<(Option<Placement>, f64)>, String> {
        if !programs::there("fi_pingpong") {
            return Err("fi_pingpong is not installed (apt-get install libfabric-bin)".to_owned());
        }
        let port = programs::port();
        let tcp = test == Test::TcpLatency;
        let count = iterations(size, true, self.quick) / if tcp { 50 } else { 2 } + 50;
        let command = |port_option: &str| {
            let mut command = Command::new("fi_pingpong");
            let kind: &[&str] =
                if tcp { &["-p", "tcp", "-e", "msg", "-d", "lo"] } else { &["-p", "shm", "-e", "rdm"] };
            command.args(kind).args(["-I", &count.to_string(), "-S", &size.to_string()]);
            command.args([port_option, &port.to_string()]);
            command
        };
        let mut client = command("-P");
        client.arg("127.0.0.1");
        let text = programs::pair(&mut command("-B"), &mut client, port, self.cpus)?;
        let figures = text.lines().rev().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let last_is_number = fields.last().is_some_and(|field| field.parse::<f64>().is_ok());
            let at = fields.len().checked_sub(2).filter(|_| last_is_number && fields.len() >= 7)?;
            fields[at].parse::<f64>().ok()
        });
        let us = figures.ok_or_else(|| format!("fi_pingpong printed no figure: {:?}", text.trim()))?;
        Ok(vec![(None, us * 1e3)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_heading() {
        let text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                    1000,0.115,0.120,0.121,63.1,62.9,8300000,8200000\n";
        assert_eq!(column(text, "percentile_lat"), Some(0.115));
        assert_eq!(column(text, "overall_mr"), Some(8_200_000.0));
        assert_eq!(column(text, "no such"), None);
        assert_eq!(column("", "overall_mr"), None);
    }
}
