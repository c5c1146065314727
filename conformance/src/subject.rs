//! The provider under test: how to open it, where its peers run, what it can do.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use dat_engine::{Device, Ia, IaOptions, Plugin};
use dat_plugin::{Caps, Config};

use crate::check::{Failed, Stop};

/// A provider under test.
#[derive(Clone, Debug)]
pub struct Subject {
    pub(crate) label: String,
    pub(crate) plugin: Plugin,
    pub(crate) config: Config,
    pub(crate) peer: Option<PeerCommand>,
    pub(crate) scale: f64,
    pub(crate) injects_faults: bool,
    caps: OnceLock<Caps>,
}

/// The program that serves as a peer: it calls [`crate::peer_main`] with the same plugin and configuration.
#[derive(Clone, Debug)]
pub struct PeerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl Subject {
    /// The provider of `plugin`, opened with `config`; `label` names it in reports. Peers are adapters of this process.
    pub fn new(label: impl Into<String>, plugin: Plugin, config: Config) -> Subject {
        Subject {
            label: label.into(),
            plugin,
            config,
            peer: None,
            scale: 1.0,
            injects_faults: false,
            caps: OnceLock::new(),
        }
    }

    /// Peers are processes started by this command.
    pub fn peers_by(mut self, command: PeerCommand) -> Subject {
        self.peer = Some(command);
        self
    }

    /// All deadlines and time-outs are multiplied by `scale`: for devices that are emulated and slow.
    pub fn scaled(mut self, scale: f64) -> Subject {
        self.scale = scale.max(0.1);
        self
    }

    /// The provider has a parameter `fail` with these values: `connect` (a connect finds no resources), `second_connect`
    /// (so does the second one), `silent_connect` (a connect is never answered), `free_port` (no port is free).
    pub fn injecting_faults(mut self) -> Subject {
        self.injects_faults = true;
        self
    }

    /// Discovers two properties. The attribute `DAT_INTER_PROCESS` shows whether the provider connects processes; if not,
    /// peers are in this process, else `command` starts them. A provider that accepts the parameter `fail` can be made
    /// to fail.
    pub fn discovered(mut self, command: PeerCommand) -> Result<Subject, String> {
        let device = self.plugin.open(&self.config).map_err(|failure| failure.to_string())?;
        let ia = Ia::open(device, &self.config.ia_name, self.plugin.version(), IaOptions::default())
            .map_err(|error| error.to_string())?;
        let attr = ia.provider_query().map_err(|error| error.to_string())?;
        let own = attr.provider_specific.iter().find(|(name, _)| name == "DAT_INTER_PROCESS");
        if own.is_none_or(|(_, value)| value != "FALSE") {
            self.peer = Some(command);
        }
        self.injects_faults = self.open_faulty("connect").is_ok();
        Ok(self)
    }

    /// Its name in reports.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What the provider can do; nothing, if it does not open, which every clause will then say.
    pub(crate) fn caps(&self) -> Caps {
        *self.caps.get_or_init(|| self.device().map_or(Caps::NONE, |device| device.attr().caps))
    }

    pub(crate) fn scaled_time(&self, time: Duration) -> Duration {
        time.mul_f64(self.scale)
    }

    pub(crate) fn open(&self) -> Result<Ia, Stop> {
        open(&self.plugin, &self.config)
    }

    pub(crate) fn device(&self) -> Result<Device, Stop> {
        self.plugin.open(&self.config).failed("opening the provider's device")
    }

    pub(crate) fn open_with(&self, options: IaOptions) -> Result<Ia, Stop> {
        Ok(Ia::open(self.device()?, &self.config.ia_name, self.plugin.version(), options)?)
    }

    /// An adapter whose calls named by `fault` fail.
    pub(crate) fn open_faulty(&self, fault: &str) -> Result<Ia, Stop> {
        self.open_param("fail", fault)
    }

    /// An adapter with another parameter, which the provider may not know.
    pub(crate) fn open_param(&self, key: &str, value: &str) -> Result<Ia, Stop> {
        let mut config = self.config.clone();
        config.params.insert(key.into(), value.into());
        open(&self.plugin, &config)
    }
}

pub(crate) fn open(plugin: &Plugin, config: &Config) -> Result<Ia, Stop> {
    let device = plugin.open(config).failed("opening the provider's device")?;
    Ok(Ia::open(device, &config.ia_name, plugin.version(), IaOptions::default())?)
}
