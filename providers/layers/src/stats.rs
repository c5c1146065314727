//! The counters of a process, as seen from outside: [`read`] asks a process of the same user for them.
//!
//! A process that has a device with the layer `count` answers on the abstract socket `dat-stats-PID` of its network
//! name space with one JSON document and hangs up. It answers its own user and root only, and a reader accepts only the
//! process it asked for. The kernel tells both sides who the other one is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use serde::{Deserialize, Serialize};

/// The counters of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The process.
    pub pid: u32,
    /// The program it runs.
    pub program: String,
    /// Its open devices that have the layer.
    pub devices: Vec<DeviceStats>,
}

/// The counters of an open device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStats {
    /// The IA name it was opened under.
    pub ia: String,
    /// The provider's short name.
    pub provider: String,
    /// For how long it has been open.
    pub open_seconds: f64,
    /// Control calls by name: how many succeeded, how many failed.
    pub calls: BTreeMap<String, [u64; 2]>,
    /// Events by kind.
    pub events: BTreeMap<String, u64>,
    /// Channels that were closed since; `totals` has their numbers.
    pub closed_channels: u64,
    /// All channels together.
    pub totals: Vec<OpStats>,
    /// The open channels.
    pub channels: Vec<ChannelStats>,
}

/// The counters of an open channel: of a connection, or an attempt at one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChannelStats {
    /// Its number on the device, from 1.
    pub channel: u64,
    /// `open`, `connected`, `disconnected`, `broken` or `failed`.
    pub state: String,
    /// By operation.
    pub ops: Vec<OpStats>,
}

/// The counters of one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpStats {
    /// `send`, `write`, `read`, `recv` and so on.
    pub op: Cow<'static, str>,
    /// Posts that were accepted.
    pub posted: u64,
    /// Posts that were refused.
    pub refused: u64,
    /// Bytes of accepted posts; of receives, bytes that came.
    pub bytes: u64,
    /// Successes.
    pub completed: u64,
    /// Failures.
    pub failed: u64,
    /// From the post to the completion being taken. Empty for receives.
    pub latency: Histogram,
}

/// How long something took: four buckets for each power of two of nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Sum of all, in nanoseconds.
    pub sum_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// The buckets that are not empty: what it is shorter than in nanoseconds, and how many were.
    pub buckets: Vec<(u64, u64)>,
}

impl Histogram {
    pub(crate) const BUCKETS: usize = 160;

    /// The bucket of a time.
    pub(crate) fn bucket_of(nanoseconds: u64) -> usize {
        let value = nanoseconds.max(4);
        let power = value.ilog2() as usize;
        let quarter = (value >> (power - 2)) as usize & 3;
        ((power - 2) * 4 + quarter).min(Histogram::BUCKETS - 1)
    }

    /// What every time in a bucket is shorter than.
    pub(crate) fn bound_of(bucket: usize) -> u64 {
        (5 + (bucket as u64 & 3)) << (bucket / 4)
    }

    pub(crate) fn of(sum_ns: u64, max_ns: u64, counts: impl Iterator<Item = u64>) -> Histogram {
        let counts = counts.enumerate().filter(|(_, count)| *count > 0);
        Histogram { sum_ns, max_ns, buckets: counts.map(|(at, n)| (Histogram::bound_of(at), n)).collect() }
    }

    /// How many times were noted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// What this part of all times was shorter than, in nanoseconds; 0 when there are none.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = (self.count() as f64 * part).ceil() as u64;
        let mut seen = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, |(bound, _)| (*bound).min(self.max_ns))
    }

    fn add(&mut self, other: &Histogram) {
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        for (bound, count) in &other.buckets {
            match self.buckets.binary_search_by_key(bound, |(bound, _)| *bound) {
                Ok(at) => self.buckets[at].1 += count,
                Err(at) => self.buckets.insert(at, (*bound, *count)),
            }
        }
    }
}

impl OpStats {
    /// Adds these numbers to those of the same operation in `list`.
    pub(crate) fn add_to(&self, list: &mut Vec<OpStats>) {
        let Some(sum) = list.iter_mut().find(|sum| sum.op == self.op) else {
            list.push(self.clone());
            return;
        };
        sum.posted += self.posted;
        sum.refused += self.refused;
        sum.bytes += self.bytes;
        sum.completed += self.completed;
        sum.failed += self.failed;
        sum.latency.add(&self.latency);
    }
}

/// The name of the abstract socket. `nth` is above 0 for a second copy of this crate in one process.
pub(crate) fn address(pid: u32, nth: u32) -> io::Result<SocketAddr> {
    let name = if nth == 0 { format!("dat-stats-{pid}") } else { format!("dat-stats-{pid}-{nth}") };
    SocketAddr::from_abstract_name(name)
}

/// Copies of this crate in one process that are looked for.
pub(crate) const COPIES: u32 = 4;

/// The most bytes of an answer.
const MOST: u64 = 64 << 20;

/// Asks process `pid` for its counters. Sockets of its names that belong to another process or user are passed over:
/// anyone may bind them first.
pub fn read(pid: u32, patience: Duration) -> Result<Stats, String> {
    let mut all: Option<Stats> = None;
    let mut refused: Option<io::Error> = None;
    for nth in 0..COPIES {
        match read_copy(pid, nth, patience) {
            Ok(stats) => match &mut all {
                Some(all) => all.devices.extend(stats.devices),
                None => all = Some(stats),
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => refused = Some(error),
        }
    }
    if let (None, Some(error)) = (&all, refused) {
        return Err(format!("process {pid} did not give its counters: {error}"));
    }
    all.ok_or_else(|| match std::fs::exists(format!("/proc/{pid}")) {
        Ok(true) => format!(
            "process {pid} has no open device with the layer \"count\", or is in another network name space; add \
             layers = [\"count\"] to the provider in plugins.toml"
        ),
        _ => format!("there is no process {pid}"),
    })
}

fn read_copy(pid: u32, nth: u32, patience: Duration) -> io::Result<Stats> {
    let stream = UnixStream::connect_addr(&address(pid, nth)?)?;
    let refuse = |what: String| io::Error::other(what);
    let there = socket_peercred(&stream)?;
    let (owner, me) = (there.uid.as_raw(), rustix::process::geteuid().as_raw());
    if there.pid.as_raw_nonzero().get() as u32 != pid {
        return Err(refuse(format!("its socket belongs to process {}", there.pid)));
    }
    if owner != me && me != 0 {
        return Err(refuse(format!("it is user {owner}'s, this is user {me}")));
    }
    let deadline = Instant::now() + patience;
    let (mut text, mut chunk) = (Vec::new(), [0; 16 << 10]);
    let mut from = (&stream).take(MOST);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(refuse(format!("no answer within {patience:?}")));
        }
        stream.set_read_timeout(Some(left))?;
        match from.read(&mut chunk) {
            Ok(0) if text.is_empty() => return Err(refuse("it answers its own user only".into())),
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(refuse(format!("no answer within {patience:?}")));
            }
            Err(error) => return Err(error),
        }
    }
    serde_json::from_slice(&text).map_err(|error| refuse(format!("its answer is malformed: {error}")))
}

impl Stats {
    /// The text format that Prometheus reads.
    pub fn to_prometheus(&self) -> String {
        let mut page = Page::default();
        for device in &self.devices {
            let of = format!(
                "pid=\"{}\",ia=\"{}\",provider=\"{}\"",
                self.pid,
                label(&device.ia),
                label(&device.provider)
            );
            page.gauge("dat_device_open_seconds", "Time the device has been open", &of, device.open_seconds);
            page.gauge("dat_channels", "Open channels", &of, device.channels.len() as f64);
            page.counter(
                "dat_closed_channels_total",
                "Channels that were closed",
                &of,
                device.closed_channels,
            );
            for (call, counts) in &device.calls {
                for (outcome, count) in ["ok", "failed"].into_iter().zip(counts) {
                    let of = format!("{of},call=\"{call}\",outcome=\"{outcome}\"");
                    page.counter("dat_calls_total", "Control calls", &of, *count);
                }
            }
            for (kind, count) in &device.events {
                let of = format!("{of},kind=\"{}\"", label(kind));
                page.counter("dat_events_total", "Events of the provider", &of, *count);
            }
            for op in &device.totals {
                page.op("dat", "all channels", &of, op);
            }
            for channel in &device.channels {
                let of = format!("{of},channel=\"{}\"", channel.channel);
                let state = format!("{of},state=\"{}\"", label(&channel.state));
                page.gauge("dat_channel_state", "1 for the state the channel is in", &state, 1.0);
                for op in &channel.ops {
                    page.op("dat_channel", "of one channel", &of, op);
                }
            }
        }
        page.text()
    }
}

/// Samples by metric: the format wants all samples of a metric together, after its description.
#[derive(Default)]
struct Page(BTreeMap<String, (String, String)>);

impl Page {
    fn sample(&mut self, metric: &str, kind: &str, help: &str, sample: &str) {
        let head = || (format!("# HELP {metric} {help}.\n# TYPE {metric} {kind}\n"), String::new());
        let (_, samples) = self.0.entry(metric.to_owned()).or_insert_with(head);
        samples.push_str(sample);
        samples.push('\n');
    }

    fn counter(&mut self, metric: &str, help: &str, of: &str, value: u64) {
        self.sample(metric, "counter", help, &format!("{metric}{{{of}}} {value}"));
    }

    fn gauge(&mut self, metric: &str, help: &str, of: &str, value: f64) {
        self.sample(metric, "gauge", help, &format!("{metric}{{{of}}} {value}"));
    }

    fn op(&mut self, prefix: &str, whose: &str, of: &str, op: &OpStats) {
        let of = format!("{of},op=\"{}\"", label(&op.op));
        let counters = [
            ("posts_total", "Posts that were accepted", op.posted),
            ("refused_posts_total", "Posts that were refused", op.refused),
            ("bytes_total", "Bytes posted, or received", op.bytes),
            ("completions_total", "Operations that succeeded", op.completed),
            ("failures_total", "Operations that failed", op.failed),
        ];
        for (name, help, value) in counters {
            self.counter(&format!("{prefix}_{name}"), &format!("{help}, {whose}"), &of, value);
        }
        if op.latency.count() > 0 {
            self.histogram(&format!("{prefix}_latency_seconds"), whose, &of, &op.latency);
        }
    }

    /// Bounds are the powers of two from 128 ns to 4 s, the same every time.
    fn histogram(&mut self, metric: &str, whose: &str, of: &str, latency: &Histogram) {
        let help = format!("From post to completion, {whose}");
        for power in 7..=32 {
            let bound = 1u64 << power;
            let below: u64 = latency.buckets.iter().filter(|(b, _)| *b <= bound).map(|(_, n)| n).sum();
            let line = format!("{metric}_bucket{{{of},le=\"{}\"}} {below}", bound as f64 / 1e9);
            self.sample(metric, "histogram", &help, &line);
        }
        let (count, sum) = (latency.count(), latency.sum_ns as f64 / 1e9);
        self.sample(metric, "histogram", &help, &format!("{metric}_bucket{{{of},le=\"+Inf\"}} {count}"));
        self.sample(metric, "histogram", &help, &format!("{metric}_sum{{{of}}} {sum}"));
        self.sample(metric, "histogram", &help, &format!("{metric}_count{{{of}}} {count}"));
    }

    fn text(self) -> String {
        self.0.into_values().fold(String::new(), |mut text, (head, samples)| {
            let _ = write!(text, "{head}{samples}");
            text
        })
    }
}

/// A label's value as the format wants it.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_whose_bound_is_next_above_it() {
        for time in (0..70).chain([1_000, 123_456, 1 << 30, (1 << 41) - 1]) {
            let at = Histogram::bucket_of(time);
            assert!(time < Histogram::bound_of(at), "{time}");
            assert!(at == 0 || time >= Histogram::bound_of(at - 1), "{time}");
        }
        assert_eq!(Histogram::bucket_of(u64::MAX), Histogram::BUCKETS - 1);
    }

    #[test]
    fn quantiles_and_sums() {
        let times = |counts: &[(usize, u64)]| {
            let count = |at| counts.iter().find(|(known, _)| *known == at).map_or(0, |(_, n)| *n);
            Histogram::of(1_000, 900, (0..Histogram::BUCKETS).map(count))
        };
        let mut all = times(&[(10, 90), (20, 10)]);
        assert_eq!(all.quantile(0.5), Histogram::bound_of(10));
        assert_eq!(all.quantile(0.99), Histogram::bound_of(20));
        all.add(&times(&[(15, 1), (20, 1)]));
        assert_eq!((all.count(), all.sum_ns, all.max_ns), (102, 2_000, 900));
        assert_eq!(all.buckets.len(), 3);
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    #[test]
    fn prometheus_gets_one_description_for_each_metric_and_growing_buckets() {
        let latency =
            Histogram::of(300, 200, (0..Histogram::BUCKETS).map(|at| u64::from(at == 20 || at == 22)));
        let op =
            OpStats { op: "send".into(), posted: 2, bytes: 16, completed: 2, latency, ..OpStats::default() };
        let channel = ChannelStats { channel: 1, state: "connected".into(), ops: vec![op.clone()] };
        let device = DeviceStats {
            ia: "a\"b".into(),
            provider: "shm".into(),
            totals: vec![op],
            channels: vec![channel],
            ..DeviceStats::default()
        };
        let stats = Stats { pid: 7, program: "x".into(), devices: vec![device.clone(), device] };
        let text = stats.to_prometheus();
        assert_eq!(text.matches("# TYPE dat_posts_total counter").count(), 1, "{text}");
        let line = "dat_posts_total{pid=\"7\",ia=\"a\\\"b\",provider=\"shm\",op=\"send\"} 2";
        assert_eq!(text.lines().filter(|l| *l == line).count(), 2, "{text}");
        assert!(text.contains("channel=\"1\",op=\"send\",le=\"+Inf\"} 2"), "{text}");
        let last = |le: &str| {
            let line = text.lines().find(|line| line.starts_with("dat_latency") && line.contains(le));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).expect("a bucket")
        };
        assert!(last("le=\"0.000000128\"") <= last("le=\"0.000000256\""), "{text}");
        assert_eq!(last("le=\"0.000000256\""), 2, "{text}");
        let json = serde_json::to_string(&stats).expect("serialises");
        assert_eq!(serde_json::from_str::<Stats>(&json).expect("parses"), stats);
    }
}
