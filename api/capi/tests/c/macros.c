/* Each macro with parameters once, so that a compiler sees what it expands to. Compiled as C and as C++, never run. */
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>

static DAT_HANDLE handle;
static DAT_CONTEXT cookie;
static DAT_REGION_DESCRIPTION region;
static DAT_LMR_TRIPLET local;
static DAT_RMR_TRIPLET remote;
static DAT_UINT64 counters[1];

static void take(DAT_RETURN value)
{
    if (DAT_GET_TYPE(value) == DAT_SUCCESS && DAT_GET_SUBTYPE(value) == DAT_NO_SUBTYPE && !DAT_IS_WARNING(value)) return;
    handle = DAT_HANDLE_NULL;
}

static void through_table(void)
{
    DAT_OS_WAIT_PROXY_AGENT agent = DAT_OS_WAIT_PROXY_AGENT_NULL;
    va_list *arguments = NULL;
    DAT_PROVIDER *provider = DAT_HANDLE_TO_PROVIDER(handle);
    take(provider->ep_free_func(handle));
    take(DAT_THROUGH_TABLE(handle, ep_free_func)(handle));
    take(DAT_IA_QUERY(
        handle, (DAT_EVD_HANDLE *) 0, (DAT_IA_ATTR_MASK) 0, (DAT_IA_ATTR *) 0, (DAT_PROVIDER_ATTR_MASK) 0,
        (DAT_PROVIDER_ATTR *) 0));
    take(DAT_SET_CONSUMER_CONTEXT(handle, cookie));
    take(DAT_GET_CONSUMER_CONTEXT(handle, (DAT_CONTEXT *) 0));
    take(DAT_GET_HANDLE_TYPE(handle, (DAT_HANDLE_TYPE *) 0));
    take(DAT_CNO_CREATE(handle, agent, (DAT_CNO_HANDLE *) 0));
    take(DAT_CNO_MODIFY_AGENT(handle, agent));
    take(DAT_CNO_QUERY(handle, (DAT_CNO_PARAM_MASK) 0, (DAT_CNO_PARAM *) 0));
    take(DAT_CNO_FREE(handle));
    take(DAT_CNO_WAIT(handle, (DAT_TIMEOUT) 0, (DAT_EVD_HANDLE *) 0));
    take(DAT_CNO_FD_CREATE(handle, (DAT_FD *) 0, (DAT_CNO_HANDLE *) 0));
    take(DAT_CNO_TRIGGER(handle, (DAT_EVD_HANDLE *) 0));
    take(DAT_CR_QUERY(handle, (DAT_CR_PARAM_MASK) 0, (DAT_CR_PARAM *) 0));
    take(DAT_CR_ACCEPT(handle, handle, (DAT_COUNT) 0, (DAT_PVOID) 0));
    take(DAT_CR_REJECT(handle, (DAT_COUNT) 0, (DAT_PVOID) 0));
    take(DAT_CR_HANDOFF(handle, (DAT_CONN_QUAL) 0));
    take(DAT_EVD_CREATE(handle, (DAT_COUNT) 0, handle, (DAT_EVD_FLAGS) 0, (DAT_EVD_HANDLE *) 0));
    take(DAT_EVD_QUERY(handle, (DAT_EVD_PARAM_MASK) 0, (DAT_EVD_PARAM *) 0));
    take(DAT_EVD_MODIFY_CNO(handle, handle));
    take(DAT_EVD_ENABLE(handle));
    take(DAT_EVD_DISABLE(handle));
    take(DAT_EVD_WAIT(handle, (DAT_TIMEOUT) 0, (DAT_COUNT) 0, (DAT_EVENT *) 0, (DAT_COUNT *) 0));
    take(DAT_EVD_RESIZE(handle, (DAT_COUNT) 0));
    take(DAT_EVD_POST_SE(handle, (const DAT_EVENT *) 0));
    take(DAT_EVD_DEQUEUE(handle, (DAT_EVENT *) 0));
    take(DAT_EVD_FREE(handle));
    take(DAT_EVD_SET_UNWAITABLE(handle));
    take(DAT_EVD_CLEAR_UNWAITABLE(handle));
    take(DAT_EP_CREATE(handle, handle, handle, handle, handle, (const DAT_EP_ATTR *) 0, (DAT_EP_HANDLE *) 0));
    take(DAT_EP_CREATE_WITH_SRQ(
        handle, handle, handle, handle, handle, handle, (const DAT_EP_ATTR *) 0, (DAT_EP_HANDLE *) 0));
    take(DAT_EP_QUERY(handle, (DAT_EP_PARAM_MASK) 0, (DAT_EP_PARAM *) 0));
    take(DAT_EP_MODIFY(handle, (DAT_EP_PARAM_MASK) 0, (const DAT_EP_PARAM *) 0));
    take(DAT_EP_CONNECT(
        handle, (DAT_IA_ADDRESS_PTR) 0, (DAT_CONN_QUAL) 0, (DAT_TIMEOUT) 0, (DAT_COUNT) 0, (DAT_PVOID) 0,
        (DAT_QOS) 0, (DAT_CONNECT_FLAGS) 0));
    take(DAT_EP_DUP_CONNECT(handle, handle, (DAT_TIMEOUT) 0, (DAT_COUNT) 0, (DAT_PVOID) 0, (DAT_QOS) 0));
    take(DAT_EP_COMMON_CONNECT(handle, (DAT_IA_ADDRESS_PTR) 0, (DAT_TIMEOUT) 0, (DAT_COUNT) 0, (DAT_PVOID) 0));
    take(DAT_EP_DISCONNECT(handle, (DAT_CLOSE_FLAGS) 0));
    take(DAT_EP_GET_STATUS(handle, (DAT_EP_STATE *) 0, (DAT_BOOLEAN *) 0, (DAT_BOOLEAN *) 0));
    take(DAT_EP_RESET(handle));
    take(DAT_EP_FREE(handle));
    take(DAT_EP_RECV_QUERY(handle, (DAT_COUNT *) 0, (DAT_COUNT *) 0));
    take(DAT_EP_SET_WATERMARK(handle, (DAT_COUNT) 0, (DAT_COUNT) 0));
    take(DAT_EP_POST_SEND(handle, (DAT_COUNT) 0, (DAT_LMR_TRIPLET *) 0, cookie, (DAT_COMPLETION_FLAGS) 0));
    take(DAT_EP_POST_SEND_WITH_INVALIDATE(
        handle, (DAT_COUNT) 0, (DAT_LMR_TRIPLET *) 0, cookie, (DAT_COMPLETION_FLAGS) 0, (DAT_BOOLEAN) 0,
        (DAT_RMR_CONTEXT) 0));
    take(DAT_EP_POST_RECV(handle, (DAT_COUNT) 0, (DAT_LMR_TRIPLET *) 0, cookie, (DAT_COMPLETION_FLAGS) 0));
    take(DAT_EP_POST_RDMA_READ(
        handle, (DAT_COUNT) 0, (DAT_LMR_TRIPLET *) 0, cookie, (const DAT_RMR_TRIPLET *) 0,
        (DAT_COMPLETION_FLAGS) 0));
    take(DAT_EP_POST_RDMA_READ_TO_RMR(
        handle, (const DAT_RMR_TRIPLET *) 0, cookie, (const DAT_RMR_TRIPLET *) 0, (DAT_COMPLETION_FLAGS) 0));
    take(DAT_EP_POST_RDMA_WRITE(
        handle, (DAT_COUNT) 0, (DAT_LMR_TRIPLET *) 0, cookie, (const DAT_RMR_TRIPLET *) 0,
        (DAT_COMPLETION_FLAGS) 0));
    take(DAT_LMR_CREATE(
        handle, (DAT_MEM_TYPE) 0, region, (DAT_VLEN) 0, handle, (DAT_MEM_PRIV_FLAGS) 0, (DAT_VA_TYPE) 0,
        (DAT_LMR_HANDLE *) 0, (DAT_LMR_CONTEXT *) 0, (DAT_RMR_CONTEXT *) 0, (DAT_VLEN *) 0, (DAT_VADDR *) 0));
    take(DAT_LMR_QUERY(handle, (DAT_LMR_PARAM_MASK) 0, (DAT_LMR_PARAM *) 0));
    take(DAT_LMR_FREE(handle));
    take(DAT_LMR_SYNC_RDMA_READ(handle, (const DAT_LMR_TRIPLET *) 0, (DAT_VLEN) 0));
    take(DAT_LMR_SYNC_RDMA_WRITE(handle, (const DAT_LMR_TRIPLET *) 0, (DAT_VLEN) 0));
    take(DAT_RMR_CREATE(handle, (DAT_RMR_HANDLE *) 0));
    take(DAT_RMR_CREATE_FOR_EP(handle, (DAT_RMR_HANDLE *) 0));
    take(DAT_RMR_QUERY(handle, (DAT_RMR_PARAM_MASK) 0, (DAT_RMR_PARAM *) 0));
    take(DAT_RMR_BIND(
        handle, handle, (const DAT_LMR_TRIPLET *) 0, (DAT_MEM_PRIV_FLAGS) 0, (DAT_VA_TYPE) 0, handle, cookie,
        (DAT_COMPLETION_FLAGS) 0, (DAT_RMR_CONTEXT *) 0));
    take(DAT_RMR_FREE(handle));
    take(DAT_PSP_CREATE(handle, (DAT_CONN_QUAL) 0, handle, (DAT_PSP_FLAGS) 0, (DAT_PSP_HANDLE *) 0));
    take(DAT_PSP_CREATE_ANY(handle, (DAT_CONN_QUAL *) 0, handle, (DAT_PSP_FLAGS) 0, (DAT_PSP_HANDLE *) 0));
    take(DAT_PSP_QUERY(handle, (DAT_PSP_PARAM_MASK) 0, (DAT_PSP_PARAM *) 0));
    take(DAT_PSP_FREE(handle));
    take(DAT_RSP_CREATE(handle, (DAT_CONN_QUAL) 0, handle, handle, (DAT_RSP_HANDLE *) 0));
    take(DAT_RSP_QUERY(handle, (DAT_RSP_PARAM_MASK) 0, (DAT_RSP_PARAM *) 0));
    take(DAT_RSP_FREE(handle));
    take(DAT_CSP_CREATE(handle, (DAT_COMM *) 0, (DAT_IA_ADDRESS_PTR) 0, handle, (DAT_CSP_HANDLE *) 0));
    take(DAT_CSP_QUERY(handle, (DAT_CSP_PARAM_MASK) 0, (DAT_CSP_PARAM *) 0));
    take(DAT_CSP_FREE(handle));
    take(DAT_PZ_CREATE(handle, (DAT_PZ_HANDLE *) 0));
    take(DAT_PZ_QUERY(handle, (DAT_PZ_PARAM_MASK) 0, (DAT_PZ_PARAM *) 0));
    take(DAT_PZ_FREE(handle));
    take(DAT_SRQ_CREATE(handle, handle, (DAT_SRQ_ATTR *) 0, (DAT_SRQ_HANDLE *) 0));
    take(DAT_SRQ_QUERY(handle, (DAT_SRQ_PARAM_MASK) 0, (DAT_SRQ_PARAM *) 0));
    take(DAT_SRQ_RESIZE(handle, (DAT_COUNT) 0));
    take(DAT_SRQ_SET_LW(handle, (DAT_COUNT) 0));
    take(DAT_SRQ_POST_RECV(handle, (DAT_COUNT) 0, (DAT_LMR_TRIPLET *) 0, cookie));
    take(DAT_SRQ_FREE(handle));
    take(DAT_IA_HA_RELATED(handle, (DAT_NAME_PTR) 0, (DAT_BOOLEAN *) 0));
    take(DAT_HANDLE_EXTENDEDOP(handle, DAT_IB_UD_SEND_OP, *arguments));
}

static void extensions(void)
{
    DAT_IB_ADDR_HANDLE destination;
    destination.ah = NULL;
    take(dat_ib_post_fetch_and_add(handle, 1, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    take(dat_ib_post_cmp_and_swap(handle, 1, 2, &local, cookie, &remote, DAT_COMPLETION_DEFAULT_FLAG));
    take(dat_ib_post_rdma_write_immed(handle, 1, &local, cookie, &remote, 7, DAT_COMPLETION_DEFAULT_FLAG));
    take(dat_ib_post_send_ud(handle, 1, &local, &destination, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    take(dat_ib_post_recv_ud(handle, 1, &local, cookie, DAT_COMPLETION_DEFAULT_FLAG));
    take(dat_ib_ud_cm_free(handle, cookie));
    take(dat_ib_ud_ah_free(handle, &destination));
    take(dat_ib_query_counters(handle, DCNT_EP_RECV, counters, 0));
    take(dat_ib_print_counters(handle, DCNT_EP_RECV, 0));
    take(dat_ib_start_counter(handle, DCNT_IA_CM));
    take(dat_ib_stop_counter(handle, DCNT_IA_CM));
    take(dat_ib_open_query((char *) 0, &handle, DAT_IA_FIELD_ALL, (DAT_IA_ATTR *) 0, 0, (DAT_PROVIDER_ATTR *) 0));
    take(dat_ib_close_query(handle));
    take(dat_ib_collective_set_clock(handle, 1, cookie));
    take(dat_ib_collective_read_clock(handle, counters));
    cookie = DAT_IB_CONTEXT(cookie);
}

int main(void)
{
    DAT_PROVIDER_ATTR attributes;
    const char *text;
    attributes.evd_stream_merging_supported[0][0] = DAT_TRUE;
    take(dat_ia_open((char *) 0, 1, &handle, &handle));
    take(dat_strerror_extension(DAT_IB_ERR, &text));
    take(dat_strerror_ext_status(DAT_IB_OP_ERR, &text));
    handle = DAT_UL_TO_IA_HANDLE(DAT_IA_HANDLE_TO_UL(handle) + attributes.evd_stream_merging_supported[0][0]);
    through_table();
    extensions();
    return 0;
}
