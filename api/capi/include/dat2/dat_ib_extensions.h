/*
 * dat_ib_extensions.h - extensions: atomic operations, RDMA writes with immediate data, counters.
 *
 * Datagrams (UD) and collectives (dat_ib_collectives.h) are declared so that programs compile. A provider that has them
 * says so by a named attribute of the adapter; ours refuse them with DAT_MODEL_NOT_SUPPORTED or DAT_NOT_IMPLEMENTED.
 */
#ifndef _DAT_IB_EXTENSIONS_H_
#define _DAT_IB_EXTENSIONS_H_

#include <netinet/in.h>

#include <dat2/udat.h>

/* What the attribute `extension_version` of an adapter is compared with. */
#define DAT_IB_EXTENSION_VERSION 209

/* Named attributes of an adapter: what it can do. */
#define DAT_IB_ATTR_COUNTERS "DAT_COUNTERS"
#define DAT_IB_ATTR_FETCH_AND_ADD "DAT_IB_FETCH_AND_ADD"
#define DAT_IB_ATTR_CMP_AND_SWAP "DAT_IB_CMP_AND_SWAP"
#define DAT_IB_ATTR_IMMED_DATA "DAT_IB_IMMED_DATA"
#define DAT_IB_ATTR_UD "DAT_IB_UD"

typedef DAT_HANDLE DAT_IB_COLLECTIVE_HANDLE;

/* Events of extensions. */
typedef enum dat_ib_event_number {
    DAT_IB_DTO_EVENT = DAT_IB_EXTENSION_RANGE_BASE,
    DAT_IB_UD_CONNECTION_REQUEST_EVENT,
    DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED,
    DAT_IB_UD_CONNECTION_REJECT_EVENT,
    DAT_IB_UD_CONNECTION_ERROR_EVENT,
    DAT_IB_COLLECTIVE_EVENT
} DAT_IB_EVENT_NUMBER;

/* Operations of dat_extension_op. */
typedef enum dat_ib_op {
    DAT_IB_FETCH_AND_ADD_OP,
    DAT_IB_CMP_AND_SWAP_OP,
    DAT_IB_RDMA_WRITE_IMMED_OP,
    DAT_IB_UD_SEND_OP,
    DAT_IB_QUERY_COUNTERS_OP,
    DAT_IB_PRINT_COUNTERS_OP,
    DAT_IB_COLLECTIVE_CREATE_MEMBER_OP,
    DAT_IB_COLLECTIVE_FREE_MEMBER_OP,
    DAT_IB_COLLECTIVE_CREATE_GROUP_OP,
    DAT_IB_COLLECTIVE_FREE_GROUP_OP,
    DAT_IB_COLLECTIVE_SET_CLOCK_OP,
    DAT_IB_COLLECTIVE_READ_CLOCK_OP,
    DAT_IB_COLLECTIVE_SCATTER_OP,
    DAT_IB_COLLECTIVE_SCATTERV_OP,
    DAT_IB_COLLECTIVE_GATHER_OP,
    DAT_IB_COLLECTIVE_GATHERV_OP,
    DAT_IB_COLLECTIVE_ALLGATHER_OP,
    DAT_IB_COLLECTIVE_ALLGATHERV_OP,
    DAT_IB_COLLECTIVE_ALLTOALL_OP,
    DAT_IB_COLLECTIVE_ALLTOALLV_OP,
    DAT_IB_COLLECTIVE_REDUCE_OP,
    DAT_IB_COLLECTIVE_ALLREDUCE_OP,
    DAT_IB_COLLECTIVE_REDUCE_SCATTER_OP,
    DAT_IB_COLLECTIVE_SCAN_OP,
    DAT_IB_COLLECTIVE_BROADCAST_OP,
    DAT_IB_COLLECTIVE_BARRIER_OP,
    DAT_IB_START_COUNTERS_OP,
    DAT_IB_STOP_COUNTERS_OP,
    DAT_IB_UD_CM_FREE_OP,
    DAT_IB_UD_AH_FREE_OP,
    DAT_IB_OPEN_QUERY_OP = DAT_OPEN_EXTENSION_BASE,
    DAT_IB_CLOSE_QUERY_OP = DAT_CLOSE_EXTENSION_BASE
} DAT_IB_OP;

/* Names of earlier versions. */
#define DAT_QUERY_COUNTERS_OP DAT_IB_QUERY_COUNTERS_OP
#define DAT_PRINT_COUNTERS_OP DAT_IB_PRINT_COUNTERS_OP
#define DAT_ATTR_COUNTERS DAT_IB_ATTR_COUNTERS

/* What an event of an extension is about. */
typedef enum dat_ib_ext_type {
    DAT_IB_FETCH_AND_ADD,
    DAT_IB_CMP_AND_SWAP,
    DAT_IB_RDMA_WRITE_IMMED,
    DAT_IB_RDMA_WRITE_IMMED_DATA,
    DAT_IB_RECV_IMMED_DATA,
    DAT_IB_UD_CONNECT_REQUEST,
    DAT_IB_UD_REMOTE_AH,
    DAT_IB_UD_PASSIVE_REMOTE_AH,
    DAT_IB_UD_SEND,
    DAT_IB_UD_RECV,
    DAT_IB_UD_CONNECT_REJECT,
    DAT_IB_UD_CONNECT_ERROR,
    DAT_IB_COLLECTIVE_CREATE_STATUS,
    DAT_IB_COLLECTIVE_CREATE_DATA,
    DAT_IB_COLLECTIVE_CLOCK_SET_STATUS,
    DAT_IB_COLLECTIVE_SCATTER_STATUS,
    DAT_IB_COLLECTIVE_SCATTERV_STATUS,
    DAT_IB_COLLECTIVE_GATHER_STATUS,
    DAT_IB_COLLECTIVE_GATHERV_STATUS,
    DAT_IB_COLLECTIVE_ALLGATHER_STATUS,
    DAT_IB_COLLECTIVE_ALLGATHERV_STATUS,
    DAT_IB_COLLECTIVE_ALLTOALL_STATUS,
    DAT_IB_COLLECTIVE_ALLTOALLV_STATUS,
    DAT_IB_COLLECTIVE_REDUCE_STATUS,
    DAT_IB_COLLECTIVE_ALLREDUCE_STATUS,
    DAT_IB_COLLECTIVE_REDUCE_SCATTER_STATUS,
    DAT_IB_COLLECTIVE_SCAN_STATUS,
    DAT_IB_COLLECTIVE_BROADCAST_STATUS,
    DAT_IB_COLLECTIVE_BARRIER_STATUS
} DAT_IB_EXT_TYPE;

/* How an extended operation ended. */
typedef enum dat_ib_status {
    DAT_OP_SUCCESS = DAT_SUCCESS,
    DAT_IB_OP_ERR,
    DAT_IB_COLL_COMP_ERR
} DAT_IB_STATUS;

/* Types of return codes of extensions. */
typedef enum dat_ib_return {
    DAT_IB_ERR = DAT_EXTENSION_BASE,
    DAT_IB_COLLECTIVE_ERR
} DAT_IB_RETURN;

/* The operation that completed; it continues DAT_DTOS. */
typedef enum dat_ib_dtos {
    DAT_IB_DTO_RDMA_WRITE_IMMED = DAT_DTO_EXTENSION_BASE,
    DAT_IB_DTO_RECV_IMMED,
    DAT_IB_DTO_FETCH_ADD,
    DAT_IB_DTO_CMP_SWAP,
    DAT_IB_DTO_RECV_MSG_IMMED,
    DAT_IB_DTO_SEND_UD,
    DAT_IB_DTO_RECV_UD,
    DAT_IB_DTO_RECV_UD_IMMED,
    DAT_IB_DTO_COLLECTIVES
} DAT_IB_DTOS;

typedef enum dat_ib_handle_type {
    DAT_IB_HANDLE_TYPE_EXT = DAT_HANDLE_TYPE_EXTENSION_BASE,
    DAT_IB_HANDLE_TYPE_COLLECTIVE
} DAT_IB_HANDLE_TYPE;

/* For dat_evd_create. */
typedef enum dat_ib_evd_extension_flags {
    DAT_IB_EVD_EXTENSION_FLAG = DAT_EVD_EXTENSION_BASE
} DAT_IB_EVD_EXTENSION_FLAGS;

/* For dat_lmr_create. */
typedef enum dat_ib_mem_priv_flags {
    DAT_IB_MEM_PRIV_REMOTE_ATOMIC = DAT_MEM_PRIV_EXTENSION_BASE
} DAT_IB_MEM_PRIV_FLAGS;

typedef enum dat_ib_service_type {
    DAT_IB_SERVICE_TYPE_UD = DAT_SERVICE_TYPE_EXTENSION_BASE
} DAT_IB_SERVICE_TYPE;

/* The destination of a datagram. */
typedef struct dat_ib_addr_handle {
    struct ibv_ah *ah;
    DAT_UINT32 qpn;
    DAT_SOCK_ADDR6 ia_addr;
} DAT_IB_ADDR_HANDLE;

/* Immediate data, as the sender's number. */
typedef struct dat_ib_immed_data {
    DAT_UINT32 data;
} DAT_IB_IMMED_DATA;

typedef struct dat_ib_collective_event_data {
    DAT_HANDLE handle;
    DAT_CONTEXT context;
} DAT_IB_COLLECTIVE_EVENT_DATA;

/* What `event_extension_data` of a DAT_EVENT holds. `type` selects the members. */
typedef struct dat_ib_extension_event_data {
    DAT_IB_EXT_TYPE type;
    DAT_IB_STATUS status;
    union {
        DAT_IB_IMMED_DATA immed;
    } val;
    __extension__ union {
        DAT_IB_ADDR_HANDLE remote_ah;
        DAT_IB_COLLECTIVE_EVENT_DATA coll;
    };
    DAT_CONTEXT context;
} DAT_IB_EXTENSION_EVENT_DATA;

#include <dat2/dat_ib_counters.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The text of a return code, of extensions or of DAT. */
static __inline__ DAT_RETURN dat_strerror_extension(DAT_IB_RETURN value, const char **message)
{
    const char *subtype;
    if (DAT_GET_TYPE(value) != (DAT_UINT32) DAT_IB_ERR) return dat_strerror((DAT_RETURN) value, message, &subtype);
    *message = "DAT_IB_ERR";
    return DAT_SUCCESS;
}

/* The text of the status of an extended operation. */
static __inline__ DAT_RETURN dat_strerror_ext_status(DAT_IB_STATUS value, const char **message)
{
    const int known = value == DAT_OP_SUCCESS || value == DAT_IB_OP_ERR;
    *message = value == DAT_OP_SUCCESS ? " " : known ? "DAT_IB_OP_ERR" : "unknown extension status";
    return known ? (DAT_RETURN) DAT_SUCCESS : (DAT_RETURN) DAT_INVALID_PARAMETER;
}

#ifdef __cplusplus
}
#endif

/* A context, or one of its members, as a context. */
#define DAT_IB_CONTEXT(value) __extension__(DAT_CONTEXT)(value)

/* Operations on 64-bit numbers in remote memory; the old value comes to the local segment. */
#define dat_ib_post_fetch_and_add(ep, add_val, lbuf, cookie, rbuf, flgs) \
    dat_extension_op( \
        (DAT_EP_HANDLE) (ep), DAT_IB_FETCH_AND_ADD_OP, (DAT_UINT64) (add_val), (DAT_LMR_TRIPLET *) (lbuf), \
        (cookie), (DAT_RMR_TRIPLET *) (rbuf), (DAT_COMPLETION_FLAGS) (flgs))
#define dat_ib_post_cmp_and_swap(ep, cmp_val, swap_val, lbuf, cookie, rbuf, flgs) \
    dat_extension_op( \
        (DAT_EP_HANDLE) (ep), DAT_IB_CMP_AND_SWAP_OP, (DAT_UINT64) (cmp_val), (DAT_UINT64) (swap_val), \
        (DAT_LMR_TRIPLET *) (lbuf), (cookie), (DAT_RMR_TRIPLET *) (rbuf), (DAT_COMPLETION_FLAGS) (flgs))

/* An RDMA write that also completes a receive of the peer, with a number. */
#define dat_ib_post_rdma_write_immed(ep, size, lbuf, cookie, rbuf, idata, flgs) \
    dat_extension_op( \
        (DAT_EP_HANDLE) (ep), DAT_IB_RDMA_WRITE_IMMED_OP, (DAT_COUNT) (size), (DAT_LMR_TRIPLET *) (lbuf), (cookie), \
        (DAT_RMR_TRIPLET *) (rbuf), (DAT_UINT32) (idata), (DAT_COMPLETION_FLAGS) (flgs))

/* Datagrams. */
#define dat_ib_post_send_ud(ep, segments, lbuf, ah_ptr, cookie, flgs) \
    dat_extension_op( \
        (DAT_EP_HANDLE) (ep), DAT_IB_UD_SEND_OP, (DAT_COUNT) (segments), (DAT_LMR_TRIPLET *) (lbuf), \
        (DAT_IB_ADDR_HANDLE *) (ah_ptr), (cookie), (DAT_COMPLETION_FLAGS) (flgs))
#define dat_ib_ud_cm_free(ep, cm) \
    dat_extension_op((DAT_EP_HANDLE) (ep), DAT_IB_UD_CM_FREE_OP, DAT_IB_CONTEXT(cm))
#define dat_ib_ud_ah_free(ep, ah) \
    dat_extension_op((DAT_EP_HANDLE) (ep), DAT_IB_UD_AH_FREE_OP, (DAT_IB_ADDR_HANDLE *) (ah))
#define dat_ib_post_recv_ud dat_ep_post_recv

/* Counters: one by its number, or all of a kind by its ALL_COUNTERS. */
#define dat_ib_query_counters(dat_handle, cntr, p_cntrs_out, reset) \
    dat_extension_op( \
        (DAT_HANDLE) (dat_handle), DAT_QUERY_COUNTERS_OP, (int) (cntr), (DAT_UINT64 *) (p_cntrs_out), \
        (int) (reset))
#define dat_ib_print_counters(dat_handle, cntr, reset) \
    dat_extension_op((DAT_HANDLE) (dat_handle), DAT_PRINT_COUNTERS_OP, (int) (cntr), (int) (reset))
#define dat_ib_start_counter(dat_handle, type) \
    dat_extension_op((DAT_HANDLE) (dat_handle), DAT_IB_START_COUNTERS_OP, (DAT_IA_COUNTER_TYPE) (type))
#define dat_ib_stop_counter(dat_handle, type) \
    dat_extension_op((DAT_HANDLE) (dat_handle), DAT_IB_STOP_COUNTERS_OP, (DAT_IA_COUNTER_TYPE) (type))
#define dat_query_counters dat_ib_query_counters
#define dat_print_counters dat_ib_print_counters

/* Attributes of a name, without its events: fills in a handle for dat_ib_close_query. */
#define dat_ib_open_query(name, ia_handle, ia_mask, ia_attr, prov_mask, prov_attr) \
    dat_extension_op( \
        (DAT_HANDLE) NULL, DAT_IB_OPEN_QUERY_OP, (DAT_NAME_PTR) (name), (DAT_HANDLE *) (ia_handle), \
        (DAT_IA_ATTR_MASK) (ia_mask), (DAT_IA_ATTR *) (ia_attr), (DAT_PROVIDER_ATTR_MASK) (prov_mask), \
        (DAT_PROVIDER_ATTR *) (prov_attr))
#define dat_ib_close_query(ia_handle) \
    dat_extension_op((DAT_HANDLE) (ia_handle), DAT_IB_CLOSE_QUERY_OP)

#include <dat2/dat_ib_collectives.h>

#endif
