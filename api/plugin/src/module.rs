//! The root module: what the loader finds first in a plugin.

use abi_stable::StableAbi;
use abi_stable::library::RootModule;
use abi_stable::package_version_strings;
use abi_stable::sabi_types::VersionStrings;

#[cfg(not(feature = "abi-minor-0"))]
use crate::ops::ProbeOps;
use crate::ops::{ChannelOps, DeviceOps, ListenerOps, ProviderOps, QueueOps, SrqOps, Str};

/// Changes when a table changes shape.
pub const ABI_MAJOR: u32 = 1;
/// The oldest major version this host loads: two before its own, never below the first.
pub const ABI_OLDEST_MAJOR: u32 = 1;
/// Counts what was appended to [`PluginModule`].
pub const ABI_MINOR: u32 = if cfg!(feature = "abi-minor-0") {
    0
} else if cfg!(feature = "abi-minor-next") {
    2
} else {
    1
};

/// The root module. New tables are appended at the end, never elsewhere; the layout of all of it is compared when a
/// plugin is loaded.
#[repr(C)]
#[derive(Clone, Copy, StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginModuleRef)))]
#[sabi(missing_field(panic))]
pub struct PluginModule {
    /// [`ABI_MAJOR`] the plugin was built with.
    pub abi_major: u32,
    /// [`ABI_MINOR`] the plugin was built with.
    pub abi_minor: u32,
    /// Short name.
    pub name: Str,
    /// Version of the plugin.
    pub version: Str,
    /// One line for people.
    pub description: Str,
    /// Entry points.
    pub provider: &'static ProviderOps,
    /// Devices.
    pub device: &'static DeviceOps,
    /// Channels.
    pub channel: &'static ChannelOps,
    /// Queues.
    pub queue: &'static QueueOps,
    /// Shared receive queues.
    pub srq: &'static SrqOps,
    /// Listeners.
    #[sabi(last_prefix_field)]
    pub listener: &'static ListenerOps,
    /// Probing, since 1.1.
    #[cfg(not(feature = "abi-minor-0"))]
    #[sabi(missing_field(option))]
    pub probe: &'static ProbeOps,
    /// Stands for what a later version appends; see the feature.
    #[cfg(feature = "abi-minor-next")]
    #[sabi(missing_field(option))]
    pub next: &'static ProbeOps,
}

impl RootModule for PluginModuleRef {
    abi_stable::declare_root_module_statics! {PluginModuleRef}
    const BASE_NAME: &'static str = "dat_plugin";
    const NAME: &'static str = "dat_plugin";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}

/// The root module as version 1.0 had it. A plugin of that version is compared with this: abi_stable accepts a module
/// with more fields than the host knows, but none with fewer.
#[cfg(not(feature = "abi-minor-0"))]
#[allow(dead_code, reason = "compared, then read as the current module")]
pub(crate) mod v1_0 {
    use super::*;

    #[repr(C)]
    #[derive(StableAbi)]
    #[sabi(kind(Prefix(prefix_ref = PluginModuleRef)))]
    #[sabi(missing_field(panic))]
    pub struct PluginModule {
        pub abi_major: u32,
        pub abi_minor: u32,
        pub name: Str,
        pub version: Str,
        pub description: Str,
        pub provider: &'static ProviderOps,
        pub device: &'static DeviceOps,
        pub channel: &'static ChannelOps,
        pub queue: &'static QueueOps,
        pub srq: &'static SrqOps,
        #[sabi(last_prefix_field)]
        pub listener: &'static ListenerOps,
    }

    impl RootModule for PluginModuleRef {
        abi_stable::declare_root_module_statics! {PluginModuleRef}
        const BASE_NAME: &'static str = "dat_plugin";
        const NAME: &'static str = "dat_plugin";
        const VERSION_STRINGS: VersionStrings = package_version_strings!();
    }
}

#[cfg(all(test, not(any(feature = "abi-minor-0", feature = "abi-minor-next"))))]
mod tests {
    use super::*;

    /// abi_stable compares the version of the crate that defines the tables, for the root and for each type. If it were
    /// the project's, a release of the project would refuse all plugins of the one before.
    #[test]
    fn the_crates_version_is_the_interfaces() {
        let interface = format!("{ABI_MAJOR}.{ABI_MINOR}.");
        assert!(env!("CARGO_PKG_VERSION").starts_with(&interface), "set version = \"{interface}0\"");
        let strings = PluginModuleRef::VERSION_STRINGS;
        assert!(strings.version.as_str().starts_with(&interface), "{strings:?}");
    }
}
