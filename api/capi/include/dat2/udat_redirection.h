/*
 * udat_redirection.h - calls through the provider table.
 *
 * Each macro calls what the function of the same name calls. A macro that takes an adapter needs its address: the handle
 * of dat_ia_open is a number.
 */
#ifndef _UDAT_REDIRECTION_H_
#define _UDAT_REDIRECTION_H_

#include <dat2/dat_redirection.h>

#define DAT_THROUGH_TABLE(handle, function) (*DAT_HANDLE_TO_PROVIDER(handle)->function)

#define DAT_IA_QUERY(ia_handle, async_evd_handle, ia_attr_mask, ia_attr, provider_attr_mask, provider_attr) \
    DAT_THROUGH_TABLE(ia_handle, ia_query_func)( \
        (ia_handle), (async_evd_handle), (ia_attr_mask), (ia_attr), (provider_attr_mask), (provider_attr))

#define DAT_SET_CONSUMER_CONTEXT(handle, context) \
    DAT_THROUGH_TABLE(handle, set_consumer_context_func)((handle), (context))
#define DAT_GET_CONSUMER_CONTEXT(handle, context) \
    DAT_THROUGH_TABLE(handle, get_consumer_context_func)((handle), (context))
#define DAT_GET_HANDLE_TYPE(handle, handle_type) \
    DAT_THROUGH_TABLE(handle, get_handle_type_func)((handle), (handle_type))

#define DAT_CNO_CREATE(ia_handle, agent, cno_handle) \
    DAT_THROUGH_TABLE(ia_handle, cno_create_func)((ia_handle), (agent), (cno_handle))
#define DAT_CNO_MODIFY_AGENT(cno_handle, agent) \
    DAT_THROUGH_TABLE(cno_handle, cno_modify_agent_func)((cno_handle), (agent))
#define DAT_CNO_QUERY(cno_handle, mask, param) \
    DAT_THROUGH_TABLE(cno_handle, cno_query_func)((cno_handle), (mask), (param))
#define DAT_CNO_FREE(cno_handle) \
    DAT_THROUGH_TABLE(cno_handle, cno_free_func)((cno_handle))
#define DAT_CNO_WAIT(cno_handle, timeout, evd_handle) \
    DAT_THROUGH_TABLE(cno_handle, cno_wait_func)((cno_handle), (timeout), (evd_handle))
#define DAT_CNO_FD_CREATE(ia_handle, fd, cno_handle) \
    DAT_THROUGH_TABLE(ia_handle, cno_fd_create_func)((ia_handle), (fd), (cno_handle))
#define DAT_CNO_TRIGGER(cno_handle, evd_handle) \
    DAT_THROUGH_TABLE(cno_handle, cno_trigger_func)((cno_handle), (evd_handle))

#define DAT_CR_QUERY(cr_handle, mask, param) \
    DAT_THROUGH_TABLE(cr_handle, cr_query_func)((cr_handle), (mask), (param))
#define DAT_CR_ACCEPT(cr_handle, ep_handle, private_data_size, private_data) \
    DAT_THROUGH_TABLE(cr_handle, cr_accept_func)((cr_handle), (ep_handle), (private_data_size), (private_data))
#define DAT_CR_REJECT(cr_handle, private_data_size, private_data) \
    DAT_THROUGH_TABLE(cr_handle, cr_reject_func)((cr_handle), (private_data_size), (private_data))
#define DAT_CR_HANDOFF(cr_handle, conn_qual) \
    DAT_THROUGH_TABLE(cr_handle, cr_handoff_func)((cr_handle), (conn_qual))

#define DAT_EVD_CREATE(ia_handle, min_qlen, cno_handle, flags, evd_handle) \
    DAT_THROUGH_TABLE(ia_handle, evd_create_func)((ia_handle), (min_qlen), (cno_handle), (flags), (evd_handle))
#define DAT_EVD_QUERY(evd_handle, mask, param) \
    DAT_THROUGH_TABLE(evd_handle, evd_query_func)((evd_handle), (mask), (param))
#define DAT_EVD_MODIFY_CNO(evd_handle, cno_handle) \
    DAT_THROUGH_TABLE(evd_handle, evd_modify_cno_func)((evd_handle), (cno_handle))
#define DAT_EVD_ENABLE(evd_handle) \
    DAT_THROUGH_TABLE(evd_handle, evd_enable_func)((evd_handle))
#define DAT_EVD_DISABLE(evd_handle) \
    DAT_THROUGH_TABLE(evd_handle, evd_disable_func)((evd_handle))
#define DAT_EVD_WAIT(evd_handle, timeout, threshold, event, nmore) \
    DAT_THROUGH_TABLE(evd_handle, evd_wait_func)((evd_handle), (timeout), (threshold), (event), (nmore))
#define DAT_EVD_RESIZE(evd_handle, min_qlen) \
    DAT_THROUGH_TABLE(evd_handle, evd_resize_func)((evd_handle), (min_qlen))
#define DAT_EVD_POST_SE(evd_handle, event) \
    DAT_THROUGH_TABLE(evd_handle, evd_post_se_func)((evd_handle), (event))
#define DAT_EVD_DEQUEUE(evd_handle, event) \
    DAT_THROUGH_TABLE(evd_handle, evd_dequeue_func)((evd_handle), (event))
#define DAT_EVD_FREE(evd_handle) \
    DAT_THROUGH_TABLE(evd_handle, evd_free_func)((evd_handle))
#define DAT_EVD_SET_UNWAITABLE(evd_handle) \
    DAT_THROUGH_TABLE(evd_handle, evd_set_unwaitable_func)((evd_handle))
#define DAT_EVD_CLEAR_UNWAITABLE(evd_handle) \
    DAT_THROUGH_TABLE(evd_handle, evd_clear_unwaitable_func)((evd_handle))

#define DAT_EP_CREATE(ia_handle, pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle, attr, ep_handle) \
    DAT_THROUGH_TABLE(ia_handle, ep_create_func)( \
        (ia_handle), (pz_handle), (recv_evd_handle), (request_evd_handle), (connect_evd_handle), (attr), \
        (ep_handle))
#define DAT_EP_CREATE_WITH_SRQ( \
    ia_handle, pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle, srq_handle, attr, ep_handle) \
    DAT_THROUGH_TABLE(ia_handle, ep_create_with_srq_func)( \
        (ia_handle), (pz_handle), (recv_evd_handle), (request_evd_handle), (connect_evd_handle), (srq_handle), \
        (attr), (ep_handle))
#define DAT_EP_QUERY(ep_handle, mask, param) \
    DAT_THROUGH_TABLE(ep_handle, ep_query_func)((ep_handle), (mask), (param))
#define DAT_EP_MODIFY(ep_handle, mask, param) \
    DAT_THROUGH_TABLE(ep_handle, ep_modify_func)((ep_handle), (mask), (param))
#define DAT_EP_CONNECT(ep_handle, remote_address, conn_qual, timeout, private_data_size, private_data, qos, flags) \
    DAT_THROUGH_TABLE(ep_handle, ep_connect_func)( \
        (ep_handle), (remote_address), (conn_qual), (timeout), (private_data_size), (private_data), (qos), (flags))
#define DAT_EP_DUP_CONNECT(ep_handle, like_ep_handle, timeout, private_data_size, private_data, qos) \
    DAT_THROUGH_TABLE(ep_handle, ep_dup_connect_func)( \
        (ep_handle), (like_ep_handle), (timeout), (private_data_size), (private_data), (qos))
#define DAT_EP_COMMON_CONNECT(ep_handle, remote_address, timeout, private_data_size, private_data) \
    DAT_THROUGH_TABLE(ep_handle, ep_common_connect_func)( \
        (ep_handle), (remote_address), (timeout), (private_data_size), (private_data))
#define DAT_EP_DISCONNECT(ep_handle, flags) \
    DAT_THROUGH_TABLE(ep_handle, ep_disconnect_func)((ep_handle), (flags))
#define DAT_EP_GET_STATUS(ep_handle, state, recv_idle, request_idle) \
    DAT_THROUGH_TABLE(ep_handle, ep_get_status_func)((ep_handle), (state), (recv_idle), (request_idle))
#define DAT_EP_RESET(ep_handle) \
    DAT_THROUGH_TABLE(ep_handle, ep_reset_func)((ep_handle))
#define DAT_EP_FREE(ep_handle) \
    DAT_THROUGH_TABLE(ep_handle, ep_free_func)((ep_handle))
#define DAT_EP_RECV_QUERY(ep_handle, buffers_allocated, buffer_span) \
    DAT_THROUGH_TABLE(ep_handle, ep_recv_query_func)((ep_handle), (buffers_allocated), (buffer_span))
#define DAT_EP_SET_WATERMARK(ep_handle, soft_high, hard_high) \
    DAT_THROUGH_TABLE(ep_handle, ep_set_watermark_func)((ep_handle), (soft_high), (hard_high))

#define DAT_EP_POST_SEND(ep_handle, segments, local_iov, cookie, flags) \
    DAT_THROUGH_TABLE(ep_handle, ep_post_send_func)((ep_handle), (segments), (local_iov), (cookie), (flags))
#define DAT_EP_POST_SEND_WITH_INVALIDATE(ep_handle, segments, local_iov, cookie, flags, invalidate, rmr_context) \
    DAT_THROUGH_TABLE(ep_handle, ep_post_send_with_invalidate_func)( \
        (ep_handle), (segments), (local_iov), (cookie), (flags), (invalidate), (rmr_context))
#define DAT_EP_POST_RECV(ep_handle, segments, local_iov, cookie, flags) \
    DAT_THROUGH_TABLE(ep_handle, ep_post_recv_func)((ep_handle), (segments), (local_iov), (cookie), (flags))
#define DAT_EP_POST_RDMA_READ(ep_handle, segments, local_iov, cookie, remote, flags) \
    DAT_THROUGH_TABLE(ep_handle, ep_post_rdma_read_func)( \
        (ep_handle), (segments), (local_iov), (cookie), (remote), (flags))
#define DAT_EP_POST_RDMA_READ_TO_RMR(ep_handle, local, cookie, remote, flags) \
    DAT_THROUGH_TABLE(ep_handle, ep_post_rdma_read_to_rmr_func)((ep_handle), (local), (cookie), (remote), (flags))
#define DAT_EP_POST_RDMA_WRITE(ep_handle, segments, local_iov, cookie, remote, flags) \
    DAT_THROUGH_TABLE(ep_handle, ep_post_rdma_write_func)( \
        (ep_handle), (segments), (local_iov), (cookie), (remote), (flags))

#define DAT_LMR_CREATE( \
    ia_handle, mem_type, region, length, pz_handle, privileges, va_type, lmr_handle, lmr_context, rmr_context, \
    registered_size, registered_address) \
    DAT_THROUGH_TABLE(ia_handle, lmr_create_func)( \
        (ia_handle), (mem_type), (region), (length), (pz_handle), (privileges), (va_type), (lmr_handle), \
        (lmr_context), (rmr_context), (registered_size), (registered_address))
#define DAT_LMR_QUERY(lmr_handle, mask, param) \
    DAT_THROUGH_TABLE(lmr_handle, lmr_query_func)((lmr_handle), (mask), (param))
#define DAT_LMR_FREE(lmr_handle) \
    DAT_THROUGH_TABLE(lmr_handle, lmr_free_func)((lmr_handle))
#define DAT_LMR_SYNC_RDMA_READ(ia_handle, segments, count) \
    DAT_THROUGH_TABLE(ia_handle, lmr_sync_rdma_read_func)((ia_handle), (segments), (count))
#define DAT_LMR_SYNC_RDMA_WRITE(ia_handle, segments, count) \
    DAT_THROUGH_TABLE(ia_handle, lmr_sync_rdma_write_func)((ia_handle), (segments), (count))

#define DAT_RMR_CREATE(pz_handle, rmr_handle) \
    DAT_THROUGH_TABLE(pz_handle, rmr_create_func)((pz_handle), (rmr_handle))
#define DAT_RMR_CREATE_FOR_EP(pz_handle, rmr_handle) \
    DAT_THROUGH_TABLE(pz_handle, rmr_create_for_ep_func)((pz_handle), (rmr_handle))
#define DAT_RMR_QUERY(rmr_handle, mask, param) \
    DAT_THROUGH_TABLE(rmr_handle, rmr_query_func)((rmr_handle), (mask), (param))
#define DAT_RMR_BIND(rmr_handle, lmr_handle, segment, privileges, va_type, ep_handle, cookie, flags, rmr_context) \
    DAT_THROUGH_TABLE(rmr_handle, rmr_bind_func)( \
        (rmr_handle), (lmr_handle), (segment), (privileges), (va_type), (ep_handle), (cookie), (flags), \
        (rmr_context))
#define DAT_RMR_FREE(rmr_handle) \
    DAT_THROUGH_TABLE(rmr_handle, rmr_free_func)((rmr_handle))

#define DAT_PSP_CREATE(ia_handle, conn_qual, evd_handle, flags, psp_handle) \
    DAT_THROUGH_TABLE(ia_handle, psp_create_func)((ia_handle), (conn_qual), (evd_handle), (flags), (psp_handle))
#define DAT_PSP_CREATE_ANY(ia_handle, conn_qual, evd_handle, flags, psp_handle) \
    DAT_THROUGH_TABLE(ia_handle, psp_create_any_func)((ia_handle), (conn_qual), (evd_handle), (flags), (psp_handle))
#define DAT_PSP_QUERY(psp_handle, mask, param) \
    DAT_THROUGH_TABLE(psp_handle, psp_query_func)((psp_handle), (mask), (param))
#define DAT_PSP_FREE(psp_handle) \
    DAT_THROUGH_TABLE(psp_handle, psp_free_func)((psp_handle))
#define DAT_RSP_CREATE(ia_handle, conn_qual, ep_handle, evd_handle, rsp_handle) \
    DAT_THROUGH_TABLE(ia_handle, rsp_create_func)((ia_handle), (conn_qual), (ep_handle), (evd_handle), (rsp_handle))
#define DAT_RSP_QUERY(rsp_handle, mask, param) \
    DAT_THROUGH_TABLE(rsp_handle, rsp_query_func)((rsp_handle), (mask), (param))
#define DAT_RSP_FREE(rsp_handle) \
    DAT_THROUGH_TABLE(rsp_handle, rsp_free_func)((rsp_handle))
#define DAT_CSP_CREATE(ia_handle, comm, address, evd_handle, csp_handle) \
    DAT_THROUGH_TABLE(ia_handle, csp_create_func)((ia_handle), (comm), (address), (evd_handle), (csp_handle))
#define DAT_CSP_QUERY(csp_handle, mask, param) \
    DAT_THROUGH_TABLE(csp_handle, csp_query_func)((csp_handle), (mask), (param))
#define DAT_CSP_FREE(csp_handle) \
    DAT_THROUGH_TABLE(csp_handle, csp_free_func)((csp_handle))

#define DAT_PZ_CREATE(ia_handle, pz_handle) \
    DAT_THROUGH_TABLE(ia_handle, pz_create_func)((ia_handle), (pz_handle))
#define DAT_PZ_QUERY(pz_handle, mask, param) \
    DAT_THROUGH_TABLE(pz_handle, pz_query_func)((pz_handle), (mask), (param))
#define DAT_PZ_FREE(pz_handle) \
    DAT_THROUGH_TABLE(pz_handle, pz_free_func)((pz_handle))

#define DAT_SRQ_CREATE(ia_handle, pz_handle, attr, srq_handle) \
    DAT_THROUGH_TABLE(ia_handle, srq_create_func)((ia_handle), (pz_handle), (attr), (srq_handle))
#define DAT_SRQ_QUERY(srq_handle, mask, param) \
    DAT_THROUGH_TABLE(srq_handle, srq_query_func)((srq_handle), (mask), (param))
#define DAT_SRQ_RESIZE(srq_handle, max_recv_dtos) \
    DAT_THROUGH_TABLE(srq_handle, srq_resize_func)((srq_handle), (max_recv_dtos))
#define DAT_SRQ_SET_LW(srq_handle, low_watermark) \
    DAT_THROUGH_TABLE(srq_handle, srq_set_lw_func)((srq_handle), (low_watermark))
#define DAT_SRQ_POST_RECV(srq_handle, segments, local_iov, cookie) \
    DAT_THROUGH_TABLE(srq_handle, srq_post_recv_func)((srq_handle), (segments), (local_iov), (cookie))
#define DAT_SRQ_FREE(srq_handle) \
    DAT_THROUGH_TABLE(srq_handle, srq_free_func)((srq_handle))

#define DAT_IA_HA_RELATED(ia_handle, name, answer) \
    DAT_THROUGH_TABLE(ia_handle, ia_ha_related_func)((ia_handle), (name), (answer))
#define DAT_HANDLE_EXTENDEDOP(handle, operation, arguments) \
    DAT_THROUGH_TABLE(handle, handle_extendedop_func)((handle), (operation), (arguments))

#endif
