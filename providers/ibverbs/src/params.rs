//! The parameters of `plugins.toml`.
//!
//! - `device` (any): name of the RDMA device, as `ibv_devices` lists them.
//! - `port` (any): its port.
//! - `address` or `interface` (any): the IP address, or the network interface, whose RDMA device is used.
//! - `gid_index` (chosen by the address): index of the source GID.
//! - `traffic_class` (0), `mtu` (the port's; 256 to 4096): of connections.
//! - `retry_count` (7, 0 to 7), `ack_timeout` (16: 0.27 s; the time is 4.096 µs times 2 to this power, 1 to 31): when a
//!   peer that does not answer is given up.
//! - `rnr_retry` (7, 0 to 7; 7 is without limit), `rnr_timer` (12: 0.64 ms; the code of the InfiniBand architecture, 1
//!   to 31): how often a message that finds no receive is repeated, and after which time.
//! - `inline_bytes` (64): messages and writes up to this length travel inside the request; less where the device takes
//!   less.
//! - `resolve_timeout_ms` (2000): of finding a peer's address and route.
//! - `backlog` (1024): requests that a listener holds before the engine sees them.
//! - `private_data` (`exact`): `exact` carries lengths in the last two bytes, `plain` nothing besides the data.
//! - `write_ordered` (`off`): `on` promises that writes become visible in address order. Most devices keep it on the
//!   processors they are sold for; none promises it.
//! - `on_demand` (`off`): `on` registers memory without pinning it.
//! - `hugepages` (`off`): `try` and `require` for memory that the adapter allocates.
//! - `dmabuf` (`off`): `on` registers memory of other devices, exported as dma-bufs, where the library can; whether the
//!   device's driver can is seen when it is tried.
//! - `fork` (`on`): `off` leaves out `ibv_fork_init`, for programs that never fork.
//! - `max_channels` (65536).

use std::net::IpAddr;

use dat_plugin::{Config, Failure, Status};

use crate::private_data::Style;

/// What a device is configured with.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    pub(crate) ia_name: String,
    pub(crate) device: Option<String>,
    pub(crate) port: Option<u8>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) interface: Option<String>,
    pub(crate) gid_index: Option<u8>,
    pub(crate) traffic_class: u8,
    /// As the device encodes it.
    pub(crate) mtu: Option<i32>,
    pub(crate) retry_count: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) rnr_timer: u8,
    pub(crate) inline_bytes: u32,
    pub(crate) resolve_timeout_ms: i32,
    pub(crate) backlog: i32,
    pub(crate) style: Style,
    pub(crate) write_ordered: bool,
    pub(crate) on_demand: bool,
    pub(crate) hugepages: HugePages,
    pub(crate) dmabuf: bool,
    pub(crate) fork: bool,
    pub(crate) max_channels: u32,
}

/// Whether allocated memory is made of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugePages {
    Off,
    Try,
    Require,
}

const KNOWN: [&str; 21] = [
    "device",
    "port",
    "address",
    "interface",
    "gid_index",
    "traffic_class",
    "mtu",
    "retry_count",
    "ack_timeout",
    "rnr_retry",
    "rnr_timer",
    "inline_bytes",
    "resolve_timeout_ms",
    "backlog",
    "private_data",
    "write_ordered",
    "on_demand",
    "hugepages",
    "dmabuf",
    "fork",
    "max_channels",
];

impl Params {
    pub(crate) fn parse(config: &Config) -> Result<Params, Failure> {
        config.check_known(&KNOWN)?;
        let reader = Reader { config };
        let params = Params {
            ia_name: config.ia_name.clone(),
            device: reader.text("device"),
            port: reader.given("port", 1, 255)?,
            address: match reader.text("address") {
                None => None,
                Some(text) => Some(
                    text.parse().map_err(|_| reader.bad("address", "an IPv4 or IPv6 address is needed"))?,
                ),
            },
            interface: reader.text("interface"),
            gid_index: reader.given("gid_index", 0, 255)?,
            traffic_class: reader.number("traffic_class", 0, 0, 255)? as u8,
            mtu: match reader.text("mtu").as_deref() {
                None => None,
                Some("256") => Some(1),
                Some("512") => Some(2),
                Some("1024") => Some(3),
                Some("2048") => Some(4),
                Some("4096") => Some(5),
                Some(_) => return Err(reader.bad("mtu", "256, 512, 1024, 2048 or 4096 is needed")),
            },
            retry_count: reader.number("retry_count", 7, 0, 7)? as u8,
            ack_timeout: reader.number("ack_timeout", 16, 1, 31)? as u8,
            rnr_retry: reader.number("rnr_retry", 7, 0, 7)? as u8,
            rnr_timer: reader.number("rnr_timer", 12, 1, 31)? as u8,
            inline_bytes: reader.number("inline_bytes", 64, 0, 4096)?,
            resolve_timeout_ms: reader.number("resolve_timeout_ms", 2000, 1, 3_600_000)? as i32,
            backlog: reader.number("backlog", 1024, 1, 65_536)? as i32,
            style: reader.one_of("private_data", &[("exact", Style::Exact), ("plain", Style::Plain)])?,
            write_ordered: reader.switch("write_ordered", false)?,
            on_demand: reader.switch("on_demand", false)?,
            hugepages: reader.one_of(
                "hugepages",
                &[("off", HugePages::Off), ("try", HugePages::Try), ("require", HugePages::Require)],
            )?,
            dmabuf: reader.switch("dmabuf", false)?,
            fork: reader.switch("fork", true)?,
            max_channels: reader.number("max_channels", 65_536, 1, 1 << 20)?,
        };
        match (&params.address, &params.interface) {
            (Some(_), Some(_)) => Err(reader.bad("interface", "give address or interface, not both")),
            _ => Ok(params),
        }
    }
}

struct Reader<'a> {
    config: &'a Config,
}

impl Reader<'_> {
    fn text(&self, key: &str) -> Option<String> {
        self.config.params.get(key).cloned()
    }

    fn bad(&self, key: &str, wanted: &str) -> Failure {
        let value = self.text(key).unwrap_or_default();
        let message = format!("{}: parameter {key} = {value:?}: {wanted}", self.config.ia_name);
        Failure::new(Status::BAD_CONFIG, message)
    }

    fn number(&self, key: &str, default: u32, least: u32, most: u32) -> Result<u32, Failure> {
        let value = self.config.get(key, default)?;
        match (least..=most).contains(&value) {
            true => Ok(value),
            false => Err(self.bad(key, &format!("a number from {least} to {most} is needed"))),
        }
    }

    fn given(&self, key: &str, least: u32, most: u32) -> Result<Option<u8>, Failure> {
        match self.config.params.contains_key(key) {
            true => self.number(key, least, least, most).map(|value| Some(value as u8)),
            false => Ok(None),
        }
    }

    fn one_of<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Result<T, Failure> {
        let Some(text) = self.text(key) else { return Ok(words[0].1) };
        words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.bad(key, &format!("{} is needed", known.join(" or ")))
        })
    }

    fn switch(&self, key: &str, default: bool) -> Result<bool, Failure> {
        match default {
            false => self.one_of(key, &[("off", false), ("on", true)]),
            true => self.one_of(key, &[("on", true), ("off", false)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(params: &[(&str, &str)]) -> Result<Params, Failure> {
        let params = params.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Params::parse(&Config { ia_name: "ib0".into(), params })
    }

    #[test]
    fn defaults_and_values() {
        let params = parse(&[]).expect("no parameter is needed");
        assert_eq!((params.retry_count, params.rnr_retry, params.mtu), (7, 7, None));
        let params =
            parse(&[("device", "mlx5_0"), ("port", "2"), ("mtu", "4096"), ("private_data", "plain")])
                .expect("good parameters");
        assert_eq!((params.device.as_deref(), params.port, params.mtu), (Some("mlx5_0"), Some(2), Some(5)));
        assert_eq!(params.style, Style::Plain);
    }

    #[test]
    fn nonsense_is_refused_with_the_parameters_name() {
        for (key, value) in [
            ("port", "0"),
            ("mtu", "1500"),
            ("retry_count", "8"),
            ("address", "here"),
            ("fork", "yes"),
            ("colour", "blue"),
        ] {
            let failure = parse(&[(key, value)]).expect_err(key);
            assert_eq!(failure.status, Status::BAD_CONFIG);
            assert!(failure.message.contains(key) && failure.message.contains("ib0"), "{failure}");
        }
        assert!(parse(&[("address", "10.0.0.1"), ("interface", "eth0")]).is_err());
    }
}
