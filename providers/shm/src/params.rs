//! The parameters of `plugins.toml`.

use std::net::IpAddr;

use dat_plugin::{Config, Failure, Status};

use crate::data::protocol::{OneSided, Thresholds};
use crate::data::sizes;
use crate::memory::mapping::HugePages;

/// What a device is configured with.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    pub(crate) address: IpAddr,
    /// Devices of another domain are not there.
    pub(crate) domain: String,
    /// The size of every ring; `None`: as the attributes of each endpoint ask for.
    pub(crate) ring_bytes: Option<usize>,
    pub(crate) one_sided: OneSided,
    /// Whether `process_vm_readv` and `process_vm_writev` may be used.
    pub(crate) cma: bool,
    /// From this size on the receiver reads a message straight from the sender's memory; `None`: as it measures.
    pub(crate) cma_threshold: Option<u64>,
    /// From this size on a message in memory that the receiver can map is copied from there.
    pub(crate) map_threshold: u64,
    /// How long a message waits for a receive, in milliseconds; 0 is without limit.
    pub(crate) rnr_timeout_ms: u64,
    pub(crate) handshake_timeout_ms: u64,
    pub(crate) hugepages: HugePages,
    pub(crate) users: Users,
    pub(crate) max_channels: u32,
    /// How much of one peer device's memory is mapped here, in bytes.
    pub(crate) peer_map_bytes: u64,
}

/// Whose processes may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    Own,
    Any,
    These(Vec<u32>),
}

impl Users {
    pub(crate) fn allow(&self, uid: u32) -> bool {
        let own = uid == rustix::process::geteuid().as_raw();
        match self {
            Users::Any => true,
            Users::Own => own,
            Users::These(list) => own || list.contains(&uid),
        }
    }
}

const KNOWN: &[&str] = &[
    "address",
    "domain",
    "ring_bytes",
    "one_sided",
    "cma",
    "cma_threshold",
    "map_threshold",
    "rnr_timeout_ms",
    "handshake_timeout_ms",
    "hugepages",
    "allow_users",
    "max_channels",
    "peer_map_bytes",
];

impl Params {
    /// Those that decide how a request is executed.
    pub(crate) fn thresholds(&self) -> Thresholds {
        Thresholds { mapped: self.map_threshold, kernel: self.cma_threshold, one_sided: self.one_sided }
    }

    pub(crate) fn parse(config: &Config) -> Result<Params, Failure> {
        config.check_known(KNOWN)?;
        let bad = |key: &str, wanted: &str| {
            let value = config.params.get(key).cloned().unwrap_or_default();
            let message = format!("{}: parameter {key} = {value:?}: {wanted}", config.ia_name);
            Failure::new(Status::BAD_CONFIG, message)
        };
        let word =
            |key: &str, default: &str| config.params.get(key).cloned().unwrap_or_else(|| default.into());
        let ring_bytes = match word("ring_bytes", "auto").as_str() {
            "auto" => None,
            _ => Some(config.get("ring_bytes", 0usize)?),
        };
        if ring_bytes.is_some_and(|ring| !sizes::is_sound(ring)) {
            return Err(bad("ring_bytes", "auto or a power of two from 4096 to 16777216 is needed"));
        }
        let domain = word("domain", "default");
        if domain.is_empty()
            || domain.len() > 64
            || !domain.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
        {
            return Err(bad("domain", "1 to 64 printable characters without / are needed"));
        }
        let one_sided = match word("one_sided", "auto").as_str() {
            "auto" => OneSided::Auto,
            "mapped" => OneSided::Mapped,
            "cma" => OneSided::Cma,
            "target" => OneSided::Target,
            _ => return Err(bad("one_sided", "auto, mapped, cma or target is needed")),
        };
        let cma = match word("cma", "auto").as_str() {
            "auto" => true,
            "off" => false,
            _ => return Err(bad("cma", "auto or off is needed")),
        };
        let hugepages = match word("hugepages", "off").as_str() {
            "off" => HugePages::Off,
            "try" => HugePages::Try,
            "require" => HugePages::Require,
            _ => return Err(bad("hugepages", "off, try or require is needed")),
        };
        let users = match word("allow_users", "").as_str() {
            "" => Users::Own,
            "any" => Users::Any,
            list => list
                .split(',')
                .map(|uid| uid.trim().parse().ok())
                .collect::<Option<Vec<u32>>>()
                .map(Users::These)
                .ok_or_else(|| bad("allow_users", "any or a list of user numbers with commas is needed"))?,
        };
        let cma_threshold = match word("cma_threshold", "auto").as_str() {
            "auto" => None,
            _ => Some(config.get("cma_threshold", 0u64)?.max(1)),
        };
        let max_channels = config.get("max_channels", 65536u32)?;
        if max_channels == 0 {
            return Err(bad("max_channels", "at least 1 is needed"));
        }
        let handshake_timeout_ms = config.get("handshake_timeout_ms", 10_000u64)?;
        if handshake_timeout_ms == 0 {
            return Err(bad("handshake_timeout_ms", "at least 1 is needed"));
        }
        Ok(Params {
            address: config.get("address", IpAddr::from([127, 0, 0, 1]))?,
            domain,
            ring_bytes,
            one_sided,
            cma,
            cma_threshold,
            map_threshold: config.get("map_threshold", 512u64)?,
            rnr_timeout_ms: config.get("rnr_timeout_ms", 0u64)?,
            handshake_timeout_ms,
            hugepages,
            users,
            max_channels,
            // A sixteenth of the address space.
            peer_map_bytes: config.get("peer_map_bytes", 1u64 << 43)?,
        })
    }
}
