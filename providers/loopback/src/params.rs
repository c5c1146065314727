//! The configuration of a device.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dat_plugin::{Config, Failure, Status};

/// A device's configuration, checked.
#[derive(Debug)]
pub struct Params {
    pub ia_name: String,
    pub domain: String,
    pub address: IpAddr,
    /// How long a message may wait for a receive; without limit when absent.
    pub patience: Option<Duration>,
    pub max_channels: u32,
    pub max_regions: u32,
    /// Qualities of service offered besides best effort, as DAT numbers them; they are all the same here.
    pub qos: u32,
    fail: Vec<String>,
    /// Number of connects.
    connects: AtomicU32,
}

const KNOWN: [&str; 7] =
    ["domain", "address", "rnr_timeout_ms", "max_channels", "max_regions", "qos", "fail"];
const FAILURES: [&str; 11] = [
    "open_queue",
    "open_channel",
    "listen",
    "register",
    "alloc",
    "connect",
    "accept",
    FREE_PORT,
    SECOND_CONNECT,
    SILENT_CONNECT,
    NO_PEER,
];

/// The entry of `fail` that leaves no port for a listener that asks for any.
const FREE_PORT: &str = "free_port";

/// The entry of `fail` that lets the first connect pass and fails those after it.
const SECOND_CONNECT: &str = "second_connect";

/// The entry of `fail` that makes every peer unreachable, for routes over this device.
pub const NO_PEER: &str = "no_peer";

/// The entry of `fail` that makes connects go unanswered.
pub const SILENT_CONNECT: &str = "silent_connect";

impl Params {
    pub fn parse(config: &Config) -> Result<Params, Failure> {
        config.check_known(&KNOWN)?;
        let milliseconds = config.get("rnr_timeout_ms", 0u32)?;
        let fail: Vec<String> = config
            .get("fail", String::new())?
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        if let Some(name) = fail.iter().find(|name| !FAILURES.contains(&name.as_str())) {
            let message = format!(
                "{}: parameter fail names {name:?}; known are: {}",
                config.ia_name,
                FAILURES.join(", ")
            );
            return Err(Failure::new(Status::BAD_CONFIG, message));
        }
        Ok(Params {
            ia_name: config.ia_name.clone(),
            domain: config.get("domain", "default".to_owned())?,
            address: config.get("address", IpAddr::V4(Ipv4Addr::LOCALHOST))?,
            patience: (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into())),
            max_channels: config.get("max_channels", 4096)?,
            max_regions: config.get("max_regions", 65_536)?,
            qos: config.get("qos", 0)?,
            fail,
            connects: AtomicU32::new(0),
        })
    }

    /// Whether `name` is in `fail`.
    pub fn fails(&self, name: &str) -> bool {
        self.fail.iter().any(|listed| listed == name)
    }

    /// Fails if there is to be no free port for a listener that asks for port 0.
    pub fn inject_port(&self, port: u64) -> Result<(), Failure> {
        if port != 0 || !self.fails(FREE_PORT) {
            return Ok(());
        }
        let message = format!("{}: no port is free because parameter fail asks for it", self.ia_name);
        Err(Failure::new(Status::IN_USE, message))
    }

    /// Fails if `call` is to fail.
    pub fn inject(&self, call: &str) -> Result<(), Failure> {
        let later = call == "connect" && self.connects.fetch_add(1, Ordering::Relaxed) > 0;
        if !(self.fails(call) || (later && self.fails(SECOND_CONNECT))) {
            return Ok(());
        }
        let message = format!("{}: {call} fails because parameter fail asks for it", self.ia_name);
        Err(Failure::new(Status::NO_RESOURCE, message))
    }
}
