//! Finding the two libraries and their functions.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::cm::*;
use crate::verbs::*;

/// Both libraries. They stay loaded for the life of the process.
#[derive(Debug)]
pub struct Libraries {
    /// libibverbs.
    pub verbs: Verbs,
    /// librdmacm.
    pub cm: Cm,
}

/// The libraries, loaded at the first call. The error names what is missing and how to get it.
pub fn libraries() -> Result<&'static Libraries, &'static str> {
    static LOADED: OnceLock<Result<Libraries, String>> = OnceLock::new();
    let load = || Ok(Libraries { verbs: Verbs::load()?, cm: Cm::load()? });
    LOADED.get_or_init(load).as_ref().map_err(String::as_str)
}

/// The dynamic linker's message: the file it looked for, or what is wrong with the one it found.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident from $file:literal in $packages:literal {
        $(fn $function:ident($($argument:ty),*) $(-> $result:ty)?;)*
        $(optional fn $maybe:ident($($maybe_argument:ty),*) $(-> $maybe_result:ty)?;)*
    }) => {
        $(#[$doc])*
        ///
        /// A field is a function of the library; `None` where an installed version may be too old to have it.
        #[derive(Debug)]
        #[allow(missing_docs, reason = "the manual page of the function's name")]
        pub struct $name {
            $(pub $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub $maybe: Option<unsafe extern "C" fn($($maybe_argument),*) $(-> $maybe_result)?>,)*
        }

        impl $name {
            fn load() -> Result<$name, String> {
                // SAFETY: the constructors of these two libraries register fork handlers and nothing else, and may run
                // on any thread. The library is leaked below, so no function pointer outlives its code.
                let library = unsafe { Library::open(Some($file), RTLD_NOW | RTLD_LOCAL) }
                    .map_err(|error| format!(
                        "{} cannot be loaded ({}); install {}", $file, reason(&error), $packages
                    ))?;
                let loaded = $name {
                    $(
                        // SAFETY: the type is the function's declaration in the library's header.
                        $function: *unsafe { library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            concat!(stringify!($function), "\0").as_bytes())
                        }.map_err(|_| format!(
                            "{} has no function {}; a newer version is needed: install {}",
                            $file, stringify!($function), $packages
                        ))?,
                    )*
                    $(
                        // SAFETY: as above.
                        $maybe: unsafe { library.get::<unsafe extern "C" fn($($maybe_argument),*) $(-> $maybe_result)?>(
                            concat!(stringify!($maybe), "\0").as_bytes())
                        }.ok().map(|symbol| *symbol),
                    )*
                };
                std::mem::forget(library);
                Ok(loaded)
            }
        }
    };
}

functions! {
    /// Functions of libibverbs.
    Verbs from "libibverbs.so.1" in "libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)" {
        fn ibv_fork_init() -> c_int;
        fn ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
        fn ibv_free_device_list(*mut *mut ibv_device);
        fn ibv_get_device_name(*mut ibv_device) -> *const c_char;
        fn ibv_open_device(*mut ibv_device) -> *mut ibv_context;
        fn ibv_close_device(*mut ibv_context) -> c_int;
        fn ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        fn ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        fn ibv_query_gid(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
        fn ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
        fn ibv_ack_async_event(*mut ibv_async_event);
        fn ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
        fn ibv_dealloc_pd(*mut ibv_pd) -> c_int;
        fn ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        fn ibv_dereg_mr(*mut ibv_mr) -> c_int;
        fn ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
        fn ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
        fn ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        fn ibv_destroy_cq(*mut ibv_cq) -> c_int;
        fn ibv_resize_cq(*mut ibv_cq, c_int) -> c_int;
        fn ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        fn ibv_ack_cq_events(*mut ibv_cq, c_uint);
        fn ibv_create_srq(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
        fn ibv_modify_srq(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
        fn ibv_query_srq(*mut ibv_srq, *mut ibv_srq_attr) -> c_int;
        fn ibv_destroy_srq(*mut ibv_srq) -> c_int;
        fn ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        fn ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        fn ibv_query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
        fn ibv_destroy_qp(*mut ibv_qp) -> c_int;
        optional fn ibv_reg_dmabuf_mr(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;
        optional fn ibv_is_fork_initialized() -> c_int;
    }
}

functions! {
    /// Functions of librdmacm.
    Cm from "librdmacm.so.1" in "librdmacm1 (Debian, Ubuntu) or librdmacm (Fedora, RHEL)" {
        fn rdma_create_event_channel() -> *mut rdma_event_channel;
        fn rdma_destroy_event_channel(*mut rdma_event_channel);
        fn rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
        fn rdma_destroy_id(*mut rdma_cm_id) -> c_int;
        fn rdma_bind_addr(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
        fn rdma_resolve_addr(*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        fn rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
        fn rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        fn rdma_establish(*mut rdma_cm_id) -> c_int;
        fn rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
        fn rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        fn rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        fn rdma_disconnect(*mut rdma_cm_id) -> c_int;
        fn rdma_notify(*mut rdma_cm_id, c_int) -> c_int;
        fn rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        fn rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
        fn rdma_get_src_port(*mut rdma_cm_id) -> u16;
        fn rdma_get_dst_port(*mut rdma_cm_id) -> u16;
        fn rdma_init_qp_attr(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
        fn rdma_set_option(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
        optional fn rdma_reject_ece(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    }
}
