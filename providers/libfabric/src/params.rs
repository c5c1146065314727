//! The parameters of `plugins.toml`.

use std::net::IpAddr;
use std::time::Duration;

use dat_plugin::{Config, Failure, Status};

/// The configuration of a device.
#[derive(Clone, Debug)]
pub struct Params {
    pub ia_name: String,
    /// libfabric's provider, named as by `fi_info -l`.
    pub fabric: String,
    pub endpoint: Endpoint,
    /// libfabric's domain, usually a network interface; empty for any.
    pub interface: String,
    /// The device's address; `None` for the first that the fabric offers.
    pub address: Option<IpAddr>,
    pub family: Family,
    pub progress: Progress,
    /// A connection whose peer is silent for this long breaks; `None`: never.
    pub keepalive: Option<Duration>,
    /// How long a disconnect may wait for transfers under way.
    pub linger: Duration,
    /// Whether the last byte of an RDMA write appears after all others; `None`: where the channel's flags ask for it.
    pub last_byte_last: Option<bool>,
    pub max_channels: u32,
    /// Whether connected endpoints use frames on every fabric.
    pub frames: bool,
}

/// Kind of endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// Connected.
    Msg,
    /// Reliable datagrams.
    Rdm,
}

/// Kind of address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Any,
    V4,
    V6,
}

/// How a fabric without progress of its own is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// By threads that poll; otherwise by the event thread, which the fabric wakes.
    Auto,
    /// By the device's threads every millisecond, for fabrics whose wait descriptor is unreliable.
    Tick,
}

const KNOWN: &[&str] = &[
    "fabric",
    "endpoint",
    "interface",
    "address",
    "family",
    "progress",
    "keepalive_ms",
    "linger_ms",
    "last_byte_last",
    "max_channels",
    "frames",
];

impl Params {
    pub fn parse(config: &Config) -> Result<Params, Failure> {
        config.check_known(KNOWN)?;
        let word =
            |key: &str, default: &str| config.params.get(key).cloned().unwrap_or_else(|| default.into());
        let bad = |key: &str, wanted: &str| {
            let value = config.params.get(key).cloned().unwrap_or_default();
            let message = format!("{}: parameter {key} = {value:?}: {wanted}", config.ia_name);
            Failure::new(Status::BAD_CONFIG, message)
        };
        let fabric = word("fabric", "tcp");
        if fabric.is_empty() || fabric.bytes().any(|byte| byte == 0 || byte == b',' || byte == b'^') {
            return Err(bad("fabric", "give the name of one libfabric provider, as listed by `fi_info -l`"));
        }
        // A layered provider offers reliable datagrams.
        let default = if fabric.contains(';') { "rdm" } else { "msg" };
        let endpoint = match word("endpoint", default).as_str() {
            "msg" => Endpoint::Msg,
            "rdm" => Endpoint::Rdm,
            _ => return Err(bad("endpoint", "msg or rdm is needed")),
        };
        let family = match word("family", "any").as_str() {
            "any" => Family::Any,
            "ipv4" => Family::V4,
            "ipv6" => Family::V6,
            _ => return Err(bad("family", "any, ipv4 or ipv6 is needed")),
        };
        let progress = match word("progress", "auto").as_str() {
            "auto" => Progress::Auto,
            "tick" => Progress::Tick,
            _ => return Err(bad("progress", "auto or tick is needed")),
        };
        let address = match config.params.get("address") {
            None => None,
            Some(text) => {
                Some(text.parse().map_err(|_| bad("address", "an IPv4 or IPv6 address is needed"))?)
            }
        };
        let last_byte_last = match word("last_byte_last", "auto").as_str() {
            "auto" => None,
            "off" => Some(false),
            "on" => Some(true),
            _ => return Err(bad("last_byte_last", "auto, on or off is needed")),
        };
        let frames = match word("frames", "auto").as_str() {
            "auto" => false,
            "on" => true,
            _ => return Err(bad("frames", "auto or on is needed")),
        };
        let keepalive = config.get("keepalive_ms", 15_000u64)?;
        let max_channels = config.get("max_channels", 8192u32)?;
        if max_channels == 0 || max_channels >= crate::wire::control::MAX_CHANS {
            return Err(bad("max_channels", "1 to 16777215 are possible"));
        }
        Ok(Params {
            ia_name: config.ia_name.clone(),
            fabric,
            endpoint,
            interface: word("interface", ""),
            address,
            family,
            progress,
            keepalive: (keepalive > 0).then(|| Duration::from_millis(keepalive)),
            linger: Duration::from_millis(config.get("linger_ms", 500u64)?),
            last_byte_last,
            max_channels,
            frames,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Params, Failure> {
        let params = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Params::parse(&Config { ia_name: "ofi0".into(), params })
    }

    #[test]
    fn the_endpoint_follows_the_fabric() {
        assert_eq!(parse(&[]).unwrap().endpoint, Endpoint::Msg);
        assert_eq!(parse(&[("fabric", "tcp;ofi_rxm")]).unwrap().endpoint, Endpoint::Rdm);
        assert_eq!(parse(&[("fabric", "efa"), ("endpoint", "rdm")]).unwrap().endpoint, Endpoint::Rdm);
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_parameter() {
        let wrong = [
            ("fabric", "tcp,verbs"),
            ("endpoint", "dgram"),
            ("address", "here"),
            ("family", "ipx"),
            ("progress", "fast"),
            ("last_byte_last", "perhaps"),
            ("max_channels", "0"),
            ("frames", "off"),
            ("keepalive_ms", "soon"),
            ("keepalive", "5"),
        ];
        for (key, value) in wrong {
            let failure = parse(&[(key, value)]).unwrap_err();
            assert_eq!(failure.status, Status::BAD_CONFIG);
            assert!(failure.message.contains(key) && failure.message.contains("ofi0"), "{failure}");
        }
    }
}
