//! The tables of a plugin, however the loader got at them.

use crate::ops::{ChannelOps, DeviceOps, ListenerOps, ProbeOps, ProviderOps, QueueOps, SrqOps};
use crate::{PluginModule, PluginModuleRef};

/// The tables of a plugin; plugins are never unloaded, so they live for ever.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    pub(super) provider: &'static ProviderOps,
    pub(super) device: &'static DeviceOps,
    pub(super) channel: &'static ChannelOps,
    pub(super) queue: &'static QueueOps,
    pub(super) srq: &'static SrqOps,
    pub(super) listener: &'static ListenerOps,
    pub(super) probe: Option<&'static ProbeOps>,
}

impl Tables {
    /// Those of a provider linked into this process.
    pub(super) fn of_module(module: &PluginModule) -> Tables {
        Tables {
            provider: module.provider,
            device: module.device,
            channel: module.channel,
            queue: module.queue,
            srq: module.srq,
            listener: module.listener,
            #[cfg(not(feature = "abi-minor-0"))]
            probe: Some(module.probe),
            #[cfg(feature = "abi-minor-0")]
            probe: None,
        }
    }

    pub(super) fn of_loaded(module: PluginModuleRef) -> Tables {
        Tables {
            provider: module.provider(),
            device: module.device(),
            channel: module.channel(),
            queue: module.queue(),
            srq: module.srq(),
            listener: module.listener(),
            #[cfg(not(feature = "abi-minor-0"))]
            probe: module.probe(),
            #[cfg(feature = "abi-minor-0")]
            probe: None,
        }
    }
}

/// What a plugin's root has.
pub(super) struct Loaded {
    pub(super) tables: Tables,
    pub(super) abi: (u32, u32),
    /// Name, version, description.
    pub(super) texts: [String; 3],
}
