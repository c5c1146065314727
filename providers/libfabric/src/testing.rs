//! Helpers of this crate's unit tests: a device over the installed libfabric, and its channels.

use std::sync::Arc;

use dat_plugin::{ChannelAttr, Config};

use crate::FabricDevice;
use crate::channel::ChannelInner;

/// A device with these parameters; `None`, with a note, where libfabric is not installed.
pub fn device(pairs: &[(&str, &str)]) -> Option<FabricDevice> {
    if libfabric_sys::Library::get().is_err() {
        println!("NOT RUN: libfabric is not installed (Debian: libfabric1)");
        assert!(std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_none(), "there is no libfabric");
        return None;
    }
    let params = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    Some(FabricDevice::open(&Config { ia_name: "ofi".into(), params }).expect("a device"))
}

/// A channel with room for four posts in each direction.
pub fn channel(device: &FabricDevice) -> Arc<ChannelInner> {
    let attr = ChannelAttr { max_requests: 4, max_recvs: 4, ..ChannelAttr::default() };
    device.inner().channels.create(&attr, [None, None], None).expect("a channel")
}
