//! From traits to tables: one `extern "C"` function per method, each with a panic guard.

mod channel;
mod device;
mod glue;

use std::marker::PhantomData;

use crate::module::{ABI_MAJOR, ABI_MINOR, PluginModule};
use crate::ops::*;
use crate::provider::{Device, Provider};
use channel::*;
use device::*;
pub(crate) use glue::hand_out;

/// Exports a provider from a `cdylib`: the root module and the note the loader reads before it runs anything.
#[macro_export]
macro_rules! export_provider {
    ($provider:ty) => {
        #[doc(hidden)]
        #[used]
        #[unsafe(link_section = ".note.dat.plugin")]
        pub static DAT_PLUGIN_NOTE: $crate::Note = $crate::Note::of::<$provider>();

        const _: () = {
            use $crate::abi_stable::library::{CheckTypeLayout, LibHeader, RootModuleResult};

            extern "C" fn root_module() -> RootModuleResult {
                $crate::export::root_module::<$provider>()
            }

            // A name with the crate's, so that several providers can be linked into one program, as tests do. Written out,
            // because abi_stable's attribute would make abi_stable a dependency of each plugin.
            #[unsafe(export_name = concat!("dat_plugin_header_", env!("CARGO_CRATE_NAME")))]
            #[used]
            static DAT_PLUGIN_HEADER: LibHeader =
                // SAFETY: the constructor returns a `PluginModuleRef`, by the type of what it calls.
                unsafe {
                    LibHeader::from_constructor::<$crate::PluginModuleRef>(root_module, CheckTypeLayout::Yes)
                };
        };
    };
}

/// What the loader calls to get the root module of provider `P`.
pub fn root_module<P: Provider>() -> abi_stable::library::RootModuleResult {
    use abi_stable::prefix_type::PrefixTypeTrait;
    abi_stable::library::__call_root_module_loader(|| Export::<P>::module().leak_into_prefix())
}

/// The tables of provider `P`.
pub struct Export<P>(PhantomData<P>);

type DeviceOf<P> = <P as Provider>::Device;
type ChannelOf<P> = <DeviceOf<P> as Device>::Channel;
type QueueOf<P> = <DeviceOf<P> as Device>::Queue;
type ListenerOf<P> = <DeviceOf<P> as Device>::Listener;
type SrqOf<P> = <DeviceOf<P> as Device>::Srq;

impl<P: Provider> Export<P> {
    const PROVIDER: ProviderOps =
        ProviderOps { size: size_of::<ProviderOps>() as u32, reserved: 0, init, open: open::<P> };
    const DEVICE: DeviceOps = DeviceOps {
        size: size_of::<DeviceOps>() as u32,
        reserved: 0,
        poll_events: poll_events::<DeviceOf<P>>,
        event_fd: event_fd::<DeviceOf<P>>,
        attr: attr::<DeviceOf<P>>,
        open_queue: open_queue::<DeviceOf<P>>,
        open_channel: open_channel::<DeviceOf<P>>,
        listen: listen::<DeviceOf<P>>,
        register: register::<DeviceOf<P>>,
        register_dmabuf: register_dmabuf::<DeviceOf<P>>,
        deregister: deregister::<DeviceOf<P>>,
        alloc: alloc::<DeviceOf<P>>,
        free: free::<DeviceOf<P>>,
        reject: reject::<DeviceOf<P>>,
        open_srq: open_srq::<DeviceOf<P>>,
        open_window: open_window::<DeviceOf<P>>,
        close_window: close_window::<DeviceOf<P>>,
        describe: describe_device::<DeviceOf<P>>,
        close: close_device::<DeviceOf<P>>,
    };
    const CHANNEL: ChannelOps = ChannelOps {
        size: size_of::<ChannelOps>() as u32,
        reserved: 0,
        post: post::<ChannelOf<P>>,
        post_recv: post_recv::<ChannelOf<P>>,
        post_list: post_list::<ChannelOf<P>>,
        post_recv_list: post_recv_list::<ChannelOf<P>>,
        settle: settle::<ChannelOf<P>>,
        post_atomic: post_atomic::<ChannelOf<P>>,
        bind: bind::<ChannelOf<P>>,
        connect: connect::<ChannelOf<P>>,
        accept: accept::<ChannelOf<P>>,
        disconnect: disconnect::<ChannelOf<P>>,
        local_port: local_port::<ChannelOf<P>>,
        describe: describe_channel::<ChannelOf<P>>,
        close: close_channel::<ChannelOf<P>>,
    };
    const QUEUE: QueueOps = QueueOps {
        size: size_of::<QueueOps>() as u32,
        reserved: 0,
        poll: poll::<QueueOf<P>>,
        arm: arm::<QueueOf<P>>,
        disarm: disarm::<QueueOf<P>>,
        fd: fd::<QueueOf<P>>,
        close: close_queue::<QueueOf<P>>,
    };
    const LISTENER: ListenerOps = ListenerOps {
        size: size_of::<ListenerOps>() as u32,
        reserved: 0,
        port: port::<ListenerOf<P>>,
        close: close_listener::<ListenerOf<P>>,
    };
    const SRQ: SrqOps = SrqOps {
        size: size_of::<SrqOps>() as u32,
        reserved: 0,
        post_recv: srq_post_recv::<SrqOf<P>>,
        arm: srq_arm::<SrqOf<P>>,
        resize: srq_resize::<SrqOf<P>>,
        close: close_srq::<SrqOf<P>>,
    };
    #[cfg(not(feature = "abi-minor-0"))]
    const PROBE: ProbeOps = ProbeOps { size: size_of::<ProbeOps>() as u32, reserved: 0, probe: probe::<P> };

    /// The root module.
    pub fn module() -> PluginModule {
        PluginModule {
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            name: Str::new(P::INFO.name),
            version: Str::new(P::INFO.version),
            description: Str::new(P::INFO.description),
            provider: &Self::PROVIDER,
            device: &Self::DEVICE,
            channel: &Self::CHANNEL,
            queue: &Self::QUEUE,
            srq: &Self::SRQ,
            listener: &Self::LISTENER,
            #[cfg(not(feature = "abi-minor-0"))]
            probe: &Self::PROBE,
            #[cfg(feature = "abi-minor-next")]
            next: &Self::PROBE,
        }
    }
}
