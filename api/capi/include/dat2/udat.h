/*
 * udat.h - uDAPL 2.0, for programs: all types and functions.
 *
 * Every function returns a DAT_RETURN (dat_error.h). What a call returns besides comes last and is a pointer.
 *
 * libdat2 exports no functions for common service points, common connect, dat_cno_fd_create, dat_cno_trigger,
 * dat_rmr_create_for_ep, sends with invalidate and reads into a window. The macros of dat_registry.h make these calls.
 */
#ifndef _UDAT_H_
#define _UDAT_H_

#include <dat2/dat.h>
#include <dat2/dat_events.h>
#include <dat2/dat_attributes.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Interface adapters. dat_ia_open asks for the version and thread safety of udat_config.h. */
DAT_RETURN dat_ia_openv(
    const DAT_NAME_PTR name, DAT_COUNT async_evd_qlen, DAT_EVD_HANDLE *async_evd_handle,
    DAT_IA_HANDLE *ia_handle, DAT_UINT32 version_major, DAT_UINT32 version_minor,
    DAT_BOOLEAN is_thread_safe);
DAT_RETURN dat_ia_query(
    DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE *async_evd_handle, DAT_IA_ATTR_MASK ia_attr_mask,
    DAT_IA_ATTR *ia_attr, DAT_PROVIDER_ATTR_MASK provider_attr_mask, DAT_PROVIDER_ATTR *provider_attr);
DAT_RETURN dat_ia_close(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS flags);
#define dat_ia_open(name, qlen, async_evd, ia) \
    dat_ia_openv((name), (qlen), (async_evd), (ia), DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_THREADSAFE)

/* Any object. */
DAT_RETURN dat_set_consumer_context(DAT_HANDLE handle, DAT_CONTEXT context);
DAT_RETURN dat_get_consumer_context(DAT_HANDLE handle, DAT_CONTEXT *context);
DAT_RETURN dat_get_handle_type(DAT_HANDLE handle, DAT_HANDLE_TYPE *handle_type);

/* Notification objects. */
DAT_RETURN dat_cno_create(
    DAT_IA_HANDLE ia_handle, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno_handle);
DAT_RETURN dat_cno_modify_agent(DAT_CNO_HANDLE cno_handle, DAT_OS_WAIT_PROXY_AGENT agent);
DAT_RETURN dat_cno_query(DAT_CNO_HANDLE cno_handle, DAT_CNO_PARAM_MASK mask, DAT_CNO_PARAM *param);
DAT_RETURN dat_cno_free(DAT_CNO_HANDLE cno_handle);
DAT_RETURN dat_cno_wait(DAT_CNO_HANDLE cno_handle, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd_handle);

/* Connection requests. Private data is read before the call returns. */
DAT_RETURN dat_cr_query(DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK mask, DAT_CR_PARAM *param);
DAT_RETURN dat_cr_accept(
    DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle, DAT_COUNT private_data_size,
    const DAT_PVOID private_data);
DAT_RETURN dat_cr_reject(
    DAT_CR_HANDLE cr_handle, DAT_COUNT private_data_size, const DAT_PVOID private_data);
DAT_RETURN dat_cr_handoff(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL conn_qual);

/* Event dispatchers. Lengths are in events. */
DAT_RETURN dat_evd_create(
    DAT_IA_HANDLE ia_handle, DAT_COUNT min_qlen, DAT_CNO_HANDLE cno_handle, DAT_EVD_FLAGS flags,
    DAT_EVD_HANDLE *evd_handle);
DAT_RETURN dat_evd_query(DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK mask, DAT_EVD_PARAM *param);
DAT_RETURN dat_evd_modify_cno(DAT_EVD_HANDLE evd_handle, DAT_CNO_HANDLE cno_handle);
DAT_RETURN dat_evd_enable(DAT_EVD_HANDLE evd_handle);
DAT_RETURN dat_evd_disable(DAT_EVD_HANDLE evd_handle);
DAT_RETURN dat_evd_wait(
    DAT_EVD_HANDLE evd_handle, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *event, DAT_COUNT *nmore);
DAT_RETURN dat_evd_resize(DAT_EVD_HANDLE evd_handle, DAT_COUNT min_qlen);
DAT_RETURN dat_evd_post_se(DAT_EVD_HANDLE evd_handle, const DAT_EVENT *event);
DAT_RETURN dat_evd_dequeue(DAT_EVD_HANDLE evd_handle, DAT_EVENT *event);
DAT_RETURN dat_evd_free(DAT_EVD_HANDLE evd_handle);
DAT_RETURN dat_evd_set_unwaitable(DAT_EVD_HANDLE evd_handle);
DAT_RETURN dat_evd_clear_unwaitable(DAT_EVD_HANDLE evd_handle);

/* Endpoints. */
DAT_RETURN dat_ep_create(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_evd_handle,
    DAT_EVD_HANDLE request_evd_handle, DAT_EVD_HANDLE connect_evd_handle, const DAT_EP_ATTR *attr,
    DAT_EP_HANDLE *ep_handle);
DAT_RETURN dat_ep_create_with_srq(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_evd_handle,
    DAT_EVD_HANDLE request_evd_handle, DAT_EVD_HANDLE connect_evd_handle, DAT_SRQ_HANDLE srq_handle,
    const DAT_EP_ATTR *attr, DAT_EP_HANDLE *ep_handle);
DAT_RETURN dat_ep_query(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK mask, DAT_EP_PARAM *param);
DAT_RETURN dat_ep_modify(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK mask, const DAT_EP_PARAM *param);
DAT_RETURN dat_ep_connect(
    DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_address, DAT_CONN_QUAL conn_qual, DAT_TIMEOUT timeout,
    DAT_COUNT private_data_size, const DAT_PVOID private_data, DAT_QOS qos, DAT_CONNECT_FLAGS flags);
DAT_RETURN dat_ep_dup_connect(
    DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE like_ep_handle, DAT_TIMEOUT timeout, DAT_COUNT private_data_size,
    const DAT_PVOID private_data, DAT_QOS qos);
DAT_RETURN dat_ep_disconnect(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS flags);
DAT_RETURN dat_ep_get_status(
    DAT_EP_HANDLE ep_handle, DAT_EP_STATE *state, DAT_BOOLEAN *recv_idle, DAT_BOOLEAN *request_idle);
DAT_RETURN dat_ep_reset(DAT_EP_HANDLE ep_handle);
DAT_RETURN dat_ep_free(DAT_EP_HANDLE ep_handle);
DAT_RETURN dat_ep_recv_query(
    DAT_EP_HANDLE ep_handle, DAT_COUNT *buffers_allocated, DAT_COUNT *buffer_span);
DAT_RETURN dat_ep_set_watermark(DAT_EP_HANDLE ep_handle, DAT_COUNT soft_high, DAT_COUNT hard_high);

/* Transfers. An operation takes as many segments as it says; the list may change when the call has returned. */
DAT_RETURN dat_ep_post_send(
    DAT_EP_HANDLE ep_handle, DAT_COUNT segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE cookie,
    DAT_COMPLETION_FLAGS flags);
DAT_RETURN dat_ep_post_recv(
    DAT_EP_HANDLE ep_handle, DAT_COUNT segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE cookie,
    DAT_COMPLETION_FLAGS flags);
DAT_RETURN dat_ep_post_rdma_read(
    DAT_EP_HANDLE ep_handle, DAT_COUNT segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE cookie,
    const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags);
DAT_RETURN dat_ep_post_rdma_write(
    DAT_EP_HANDLE ep_handle, DAT_COUNT segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE cookie,
    const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags);

/* Memory regions. Sizes and lengths are in bytes. */
DAT_RETURN dat_lmr_create(
    DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE mem_type, DAT_REGION_DESCRIPTION region, DAT_VLEN length,
    DAT_PZ_HANDLE pz_handle, DAT_MEM_PRIV_FLAGS privileges, DAT_VA_TYPE va_type, DAT_LMR_HANDLE *lmr_handle,
    DAT_LMR_CONTEXT *lmr_context, DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *registered_size,
    DAT_VADDR *registered_address);
DAT_RETURN dat_lmr_query(DAT_LMR_HANDLE lmr_handle, DAT_LMR_PARAM_MASK mask, DAT_LMR_PARAM *param);
DAT_RETURN dat_lmr_free(DAT_LMR_HANDLE lmr_handle);
DAT_RETURN dat_lmr_sync_rdma_read(
    DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *segments, DAT_VLEN count);
DAT_RETURN dat_lmr_sync_rdma_write(
    DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *segments, DAT_VLEN count);

/* Memory windows. */
DAT_RETURN dat_rmr_create(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);
DAT_RETURN dat_rmr_query(DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK mask, DAT_RMR_PARAM *param);
DAT_RETURN dat_rmr_bind(
    DAT_RMR_HANDLE rmr_handle, DAT_LMR_HANDLE lmr_handle, const DAT_LMR_TRIPLET *segment,
    DAT_MEM_PRIV_FLAGS privileges, DAT_VA_TYPE va_type, DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE cookie,
    DAT_COMPLETION_FLAGS flags, DAT_RMR_CONTEXT *rmr_context);
DAT_RETURN dat_rmr_free(DAT_RMR_HANDLE rmr_handle);

/* Service points. */
DAT_RETURN dat_psp_create(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS flags,
    DAT_PSP_HANDLE *psp_handle);
DAT_RETURN dat_psp_create_any(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL *conn_qual, DAT_EVD_HANDLE evd_handle, DAT_PSP_FLAGS flags,
    DAT_PSP_HANDLE *psp_handle);
DAT_RETURN dat_psp_query(DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK mask, DAT_PSP_PARAM *param);
DAT_RETURN dat_psp_free(DAT_PSP_HANDLE psp_handle);
DAT_RETURN dat_rsp_create(
    DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EP_HANDLE ep_handle, DAT_EVD_HANDLE evd_handle,
    DAT_RSP_HANDLE *rsp_handle);
DAT_RETURN dat_rsp_query(DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK mask, DAT_RSP_PARAM *param);
DAT_RETURN dat_rsp_free(DAT_RSP_HANDLE rsp_handle);

/* Protection zones. */
DAT_RETURN dat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_handle);
DAT_RETURN dat_pz_query(DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK mask, DAT_PZ_PARAM *param);
DAT_RETURN dat_pz_free(DAT_PZ_HANDLE pz_handle);

/* Shared receive queues. */
DAT_RETURN dat_srq_create(
    DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_SRQ_ATTR *attr, DAT_SRQ_HANDLE *srq_handle);
DAT_RETURN dat_srq_query(DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK mask, DAT_SRQ_PARAM *param);
DAT_RETURN dat_srq_resize(DAT_SRQ_HANDLE srq_handle, DAT_COUNT max_recv_dtos);
DAT_RETURN dat_srq_set_lw(DAT_SRQ_HANDLE srq_handle, DAT_COUNT low_watermark);
DAT_RETURN dat_srq_post_recv(
    DAT_SRQ_HANDLE srq_handle, DAT_COUNT segments, DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE cookie);
DAT_RETURN dat_srq_free(DAT_SRQ_HANDLE srq_handle);

/* The registry, and texts of return codes. */
DAT_RETURN dat_registry_list_providers(
    DAT_COUNT max_to_return, DAT_COUNT *entries_returned, DAT_PROVIDER_INFO **provider_list);
DAT_RETURN dat_strerror(DAT_RETURN value, const char **major_message, const char **minor_message);

/* Extensions: the operation decides which arguments follow. Programs use the macros of dat_ib_extensions.h. */
typedef int DAT_EXTENDED_OP;
#define DAT_OPEN_EXTENSION_BASE 0x1000
#define DAT_CLOSE_EXTENSION_BASE 0x2000
DAT_RETURN dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP operation, ...);

#ifdef __cplusplus
}
#endif

#endif
