//! The note is right, the root module is another type under the same name.

// The derive macro writes paths that start at `::abi_stable`; this makes them lead here and on to the one that
// dat-plugin uses, so that this crate depends on nothing else.
extern crate self as abi_stable;
#[doc(hidden)]
pub use dat_plugin::abi_stable::*;

use dat_plugin::abi_stable::library::{CheckTypeLayout, LibHeader, RootModule, RootModuleResult};
use dat_plugin::abi_stable::prefix_type::PrefixTypeTrait as _;
use dat_plugin::abi_stable::sabi_types::VersionStrings;
use dat_plugin::{Note, ProviderInfo};

#[used]
#[unsafe(link_section = ".note.dat.plugin")]
static NOTE: Note = Note::new(ProviderInfo {
    name: "test-layout-mismatch",
    version: env!("CARGO_PKG_VERSION"),
    description: "for tests of the loader",
});

/// Named as the real one, with other fields.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginModuleRef)))]
#[sabi(missing_field(panic))]
pub struct PluginModule {
    /// A major version that is 64 bits wide.
    pub abi_major: u64,
    /// Nothing the host knows.
    #[sabi(last_prefix_field)]
    pub surprise: extern "C" fn() -> u64,
}

impl RootModule for PluginModuleRef {
    abi_stable::declare_root_module_statics! {PluginModuleRef}
    const BASE_NAME: &'static str = "dat_plugin";
    const NAME: &'static str = "dat_plugin";
    // That of the interface, as far as it is compared: the layout is what differs.
    const VERSION_STRINGS: VersionStrings = VersionStrings::new("1.0.0");
}

extern "C" fn surprise() -> u64 {
    42
}

extern "C" fn root_module() -> RootModuleResult {
    abi_stable::library::__call_root_module_loader(|| {
        PluginModule { abi_major: 1, surprise }.leak_into_prefix()
    })
}

#[used]
#[unsafe(export_name = "dat_plugin_header_dat_test_layout_mismatch")]
static HEADER: LibHeader =
    // SAFETY: the constructor returns a `PluginModuleRef`, by the type of what it calls.
    unsafe { LibHeader::from_constructor::<PluginModuleRef>(root_module, CheckTypeLayout::Yes) };
