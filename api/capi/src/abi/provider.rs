//! `struct dat_provider`, and the list of its functions.
//!
//! Every function stands once in [`for_each_function`]. `export` makes a slot of the table and a symbol of the library.
//! `slot` makes a slot alone: the system's library does not export it either, and programs reach it by the macros of the
//! headers.

use std::ffi::{c_char, c_int, c_void};

use super::*;

/// Calls the macro `$with` with all functions, in the order of `struct dat_provider`.
macro_rules! for_each_function {
    ($with:ident) => {
        $with! {
            export ia_query_func dat_ia_query ia::query
                (ia, async_evd: *mut Handle, ia_mask: u64, ia_attr: *mut IaAttr, provider_mask: u64, provider_attr: *mut ProviderAttr);
            slot ia_close_func dat_ia_close ia::close (ia, flags: u32);

            export set_consumer_context_func dat_set_consumer_context context::set (handle, context: Context);
            export get_consumer_context_func dat_get_consumer_context context::get (handle, context: *mut Context);
            export get_handle_type_func dat_get_handle_type context::kind (handle, kind: *mut u32);

            export cno_create_func dat_cno_create cno::create (ia, agent: Agent, cno: *mut Handle);
            export cno_modify_agent_func dat_cno_modify_agent cno::modify_agent (cno, agent: Agent);
            export cno_query_func dat_cno_query cno::query (cno, mask: u32, param: *mut CnoParam);
            export cno_free_func dat_cno_free cno::free (cno);
            export cno_wait_func dat_cno_wait cno::wait (cno, timeout: u32, evd: *mut Handle);

            export cr_query_func dat_cr_query cr::query (cr, mask: u32, param: *mut CrParam);
            export cr_accept_func dat_cr_accept cr::accept (cr, ep: Handle, size: Count, data: *const c_void);
            export cr_reject_func dat_cr_reject cr::reject (cr, size: Count, data: *const c_void);
            export cr_handoff_func dat_cr_handoff cr::handoff (cr, conn_qual: u64);

            export evd_create_func dat_evd_create evd::create
                (ia, qlen: Count, cno: Handle, flags: u32, evd: *mut Handle);
            export evd_query_func dat_evd_query evd::query (evd, mask: u32, param: *mut EvdParam);
            export evd_modify_cno_func dat_evd_modify_cno evd::modify_cno (evd, cno: Handle);
            export evd_enable_func dat_evd_enable evd::enable (evd);
            export evd_disable_func dat_evd_disable evd::disable (evd);
            export evd_wait_func dat_evd_wait evd::wait
                (evd, timeout: u32, threshold: Count, event: *mut Event, more: *mut Count);
            export evd_resize_func dat_evd_resize evd::resize (evd, qlen: Count);
            export evd_post_se_func dat_evd_post_se evd::post_se (evd, event: *const Event);
            export evd_dequeue_func dat_evd_dequeue evd::dequeue (evd, event: *mut Event);
            export evd_free_func dat_evd_free evd::free (evd);

            export ep_create_func dat_ep_create ep::create
                (ia, pz: Handle, recv: Handle, request: Handle, connect: Handle, attr: *const EpAttr, ep: *mut Handle);
            export ep_query_func dat_ep_query ep::query (ep, mask: u64, param: *mut EpParam);
            export ep_modify_func dat_ep_modify ep::modify (ep, mask: u64, param: *const EpParam);
            export ep_connect_func dat_ep_connect ep::connect
                (ep, address: Address, conn_qual: u64, timeout: u32, size: Count, data: *const c_void, qos: u32, flags: u32);
            export ep_dup_connect_func dat_ep_dup_connect ep::dup_connect
                (ep, like: Handle, timeout: u32, size: Count, data: *const c_void, qos: u32);
            export ep_disconnect_func dat_ep_disconnect ep::disconnect (ep, flags: u32);
            export ep_post_send_func dat_ep_post_send post::send
                (ep, count: Count, iov: *const LmrTriplet, cookie: Context, flags: u32);
            export ep_post_recv_func dat_ep_post_recv post::recv
                (ep, count: Count, iov: *const LmrTriplet, cookie: Context, flags: u32);
            export ep_post_rdma_read_func dat_ep_post_rdma_read post::rdma_read
                (ep, count: Count, iov: *const LmrTriplet, cookie: Context, remote: *const RmrTriplet, flags: u32);
            export ep_post_rdma_write_func dat_ep_post_rdma_write post::rdma_write
                (ep, count: Count, iov: *const LmrTriplet, cookie: Context, remote: *const RmrTriplet, flags: u32);
            export ep_get_status_func dat_ep_get_status ep::status
                (ep, state: *mut u32, recv_idle: *mut Boolean, request_idle: *mut Boolean);
            export ep_free_func dat_ep_free ep::free (ep);

            export lmr_create_func dat_lmr_create lmr::create
                (ia, mem_type: u32, region: RegionDescription, length: u64, pz: Handle, privileges: u32, va_type: u32,
                 lmr: *mut Handle, lmr_context: *mut u32, rmr_context: *mut u32, size: *mut u64, address: *mut u64);
            export lmr_query_func dat_lmr_query lmr::query (lmr, mask: u32, param: *mut LmrParam);
            export lmr_free_func dat_lmr_free lmr::free (lmr);

            export rmr_create_func dat_rmr_create rmr::create (pz, rmr: *mut Handle);
            export rmr_query_func dat_rmr_query rmr::query (rmr, mask: u32, param: *mut RmrParam);
            export rmr_bind_func dat_rmr_bind rmr::bind
                (rmr, lmr: Handle, triplet: *const LmrTriplet, privileges: u32, va_type: u32, ep: Handle, cookie: Context,
                 flags: u32, context: *mut u32);
            export rmr_free_func dat_rmr_free rmr::free (rmr);

            export psp_create_func dat_psp_create psp::create
                (ia, conn_qual: u64, evd: Handle, flags: u32, psp: *mut Handle);
            export psp_query_func dat_psp_query psp::query (psp, mask: u32, param: *mut PspParam);
            export psp_free_func dat_psp_free psp::free (psp);

            export rsp_create_func dat_rsp_create rsp::create
                (ia, conn_qual: u64, ep: Handle, evd: Handle, rsp: *mut Handle);
            export rsp_query_func dat_rsp_query rsp::query (rsp, mask: u32, param: *mut RspParam);
            export rsp_free_func dat_rsp_free rsp::free (rsp);

            export pz_create_func dat_pz_create pz::create (ia, pz: *mut Handle);
            export pz_query_func dat_pz_query pz::query (pz, mask: u32, param: *mut PzParam);
            export pz_free_func dat_pz_free pz::free (pz);

            export psp_create_any_func dat_psp_create_any psp::create_any
                (ia, conn_qual: *mut u64, evd: Handle, flags: u32, psp: *mut Handle);
            export ep_reset_func dat_ep_reset ep::reset (ep);
            export evd_set_unwaitable_func dat_evd_set_unwaitable evd::set_unwaitable (evd);
            export evd_clear_unwaitable_func dat_evd_clear_unwaitable evd::clear_unwaitable (evd);
            export lmr_sync_rdma_read_func dat_lmr_sync_rdma_read lmr::sync_rdma_read
                (ia, segments: *const LmrTriplet, count: u64);
            export lmr_sync_rdma_write_func dat_lmr_sync_rdma_write lmr::sync_rdma_write
                (ia, segments: *const LmrTriplet, count: u64);

            export ep_create_with_srq_func dat_ep_create_with_srq ep::create_with_srq
                (ia, pz: Handle, recv: Handle, request: Handle, connect: Handle, srq: Handle, attr: *const EpAttr,
                 ep: *mut Handle);
            export ep_recv_query_func dat_ep_recv_query ep::recv_query (ep, buffers: *mut Count, span: *mut Count);
            export ep_set_watermark_func dat_ep_set_watermark ep::set_watermark (ep, soft: Count, hard: Count);
            export srq_create_func dat_srq_create srq::create
                (ia, pz: Handle, attr: *const SrqAttr, srq: *mut Handle);
            export srq_free_func dat_srq_free srq::free (srq);
            export srq_post_recv_func dat_srq_post_recv srq::post_recv
                (srq, count: Count, iov: *const LmrTriplet, cookie: Context);
            export srq_query_func dat_srq_query srq::query (srq, mask: u32, param: *mut SrqParam);
            export srq_resize_func dat_srq_resize srq::resize (srq, size: Count);
            export srq_set_lw_func dat_srq_set_lw srq::set_low_watermark (srq, mark: Count);

            slot csp_create_func dat_csp_create csp::create
                (ia, comm: *const Comm, address: Address, evd: Handle, csp: *mut Handle);
            slot csp_query_func dat_csp_query csp::query (csp, mask: u32, param: *mut CspParam);
            slot csp_free_func dat_csp_free csp::free (csp);
            slot ep_common_connect_func dat_ep_common_connect ep::common_connect
                (ep, address: Address, timeout: u32, size: Count, data: *const c_void);
            slot rmr_create_for_ep_func dat_rmr_create_for_ep rmr::create_for_ep (pz, rmr: *mut Handle);
            slot ep_post_send_with_invalidate_func dat_ep_post_send_with_invalidate post::send_with_invalidate
                (ep, count: Count, iov: *const LmrTriplet, cookie: Context, flags: u32, invalidate: Boolean, rmr_context: u32);
            slot ep_post_rdma_read_to_rmr_func dat_ep_post_rdma_read_to_rmr post::rdma_read_to_rmr
                (ep, sink: *const RmrTriplet, cookie: Context, remote: *const RmrTriplet, flags: u32);
            slot cno_fd_create_func dat_cno_fd_create cno::fd_create (ia, fd: *mut c_int, cno: *mut Handle);
            slot cno_trigger_func dat_cno_trigger cno::trigger (cno, evd: *mut Handle);
        }
    };
}
pub(crate) use for_each_function;

macro_rules! provider {
    ($($mode:ident $slot:ident $symbol:ident $module:ident::$call:ident ($first:ident $(, $name:ident: $type:ty)*);)*) => {
        /// `struct dat_provider`: the first word of every object points at one.
        #[repr(C)]
        pub struct Provider {
            /// The IA name.
            pub device_name: *const c_char,
            /// Consumers do not use it.
            pub extension: *mut c_void,
            /// Opens an IA; for registries.
            pub ia_open_func: unsafe extern "C" fn(*const c_char, Count, *mut Handle, *mut Handle) -> Return,
            $(
                #[allow(missing_docs, reason = "the header's field of the same name")]
                pub $slot: unsafe extern "C" fn(Handle $(, $type)*) -> Return,
            )*
            /// Whether another IA is the same device's; for registries.
            pub ia_ha_related_func: unsafe extern "C" fn(Handle, *const c_char, *mut Boolean) -> Return,
            /// Extensions; the last argument is a `va_list`.
            pub handle_extendedop_func: unsafe extern "C" fn(Handle, c_int, *mut c_void) -> Return,
        }

        // SAFETY: its pointers are a name that is never freed and one nobody follows; nothing of it changes.
        unsafe impl Send for Provider {}
        // SAFETY: the same holds for references.
        unsafe impl Sync for Provider {}

        /// Where each field of the table lies.
        #[cfg(test)]
        pub fn offsets() -> Vec<(&'static str, u64)> {
            vec![
                ("device_name", std::mem::offset_of!(Provider, device_name) as u64),
                ("extension", std::mem::offset_of!(Provider, extension) as u64),
                ("ia_open_func", std::mem::offset_of!(Provider, ia_open_func) as u64),
                $((stringify!($slot), std::mem::offset_of!(Provider, $slot) as u64),)*
                ("ia_ha_related_func", std::mem::offset_of!(Provider, ia_ha_related_func) as u64),
                ("handle_extendedop_func", std::mem::offset_of!(Provider, handle_extendedop_func) as u64),
            ]
        }
    };
}

for_each_function!(provider);
