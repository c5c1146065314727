/* Immediate values, atomic operations, counters, shared receive queues, windows, open-query. */
#include "common.h"

static void take_extended(DAT_EVD_HANDLE evd, DAT_UINT64 cookie, DAT_IB_EXT_TYPE type, unsigned operation,
                          DAT_UINT32 value)
{
    DAT_EVENT event;
    DAT_IB_EXTENSION_EVENT_DATA *more = (DAT_IB_EXTENSION_EVENT_DATA *)event.event_extension_data;
    take(evd, &event, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
    CHECK(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
    CHECK(event.event_data.dto_completion_event_data.user_cookie.as_64 == cookie);
    CHECK((unsigned)event.event_data.dto_completion_event_data.operation == operation);
    CHECK(more->type == type && more->status == DAT_OP_SUCCESS);
    CHECK(more->val.immed.data == value);
}

int main(int argc, char **argv)
{
    struct pair pair;
    struct end atomics;
    DAT_VLEN size;
    DAT_VADDR at;
    DAT_UINT64 counters[DCNT_EP_ALL_COUNTERS], *word;
    CHECK(argc == 2);
    open_pair(&pair, argv[1]);
    CHECK(pair.attr.extension_supported == DAT_EXTENSION_IB);
    CHECK(pair.attr.extension_version == DAT_IB_EXTENSION_VERSION);
    connect_ends(&pair, &pair.a, &pair.b);

    DAT_LMR_TRIPLET iov = local(&pair.b, 60000, 16);
    OK(dat_ep_post_recv(pair.b.ep, 1, &iov, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    memset(pair.a.memory, 'i', 100);
    iov = local(&pair.a, 0, 100);
    DAT_RMR_TRIPLET target = remote(&pair.b, 0, 100);
    OK(dat_ib_post_rdma_write_immed(pair.a.ep, 1, &iov, cookie(2), &target, 0xcafe0001, DAT_COMPLETION_DEFAULT_FLAG));
    take_extended(pair.b.recv, 1, DAT_IB_RDMA_WRITE_IMMED_DATA, DAT_IB_DTO_RECV_IMMED, 0xcafe0001);
    take_extended(pair.a.request, 2, DAT_IB_RDMA_WRITE_IMMED, DAT_IB_DTO_RDMA_WRITE_IMMED, 0);
    CHECK(pair.b.memory[99] == 'i' && pair.b.memory[60000] == 0);

    /* Atomic operations need a right of their own. */
    DAT_REGION_DESCRIPTION region;
    CHECK(posix_memalign((void **)&atomics.memory, 4096, 4096) == 0);
    word = (DAT_UINT64 *)atomics.memory;
    *word = 100;
    region.for_va = atomics.memory;
    OK(dat_lmr_create(pair.ia, DAT_MEM_TYPE_VIRTUAL, region, 4096, pair.pz,
                      DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC, DAT_VA_TYPE_VA, &atomics.lmr,
                      &atomics.local, &atomics.remote, &size, &at));
    target = remote(&atomics, 0, 8);
    iov = local(&pair.a, 64, 8);
    OK(dat_ib_post_fetch_and_add(pair.a.ep, 11, &iov, cookie(3), &target, DAT_COMPLETION_DEFAULT_FLAG));
    take_extended(pair.a.request, 3, DAT_IB_FETCH_AND_ADD, DAT_IB_DTO_FETCH_ADD, 0);
    CHECK(*word == 111 && *(DAT_UINT64 *)(pair.a.memory + 64) == 100);
    OK(dat_ib_post_cmp_and_swap(pair.a.ep, 5, 7, &iov, cookie(4), &target, DAT_COMPLETION_DEFAULT_FLAG));
    take_extended(pair.a.request, 4, DAT_IB_CMP_AND_SWAP, DAT_IB_DTO_CMP_SWAP, 0);
    CHECK(*word == 111 && *(DAT_UINT64 *)(pair.a.memory + 64) == 111);
    OK(dat_ib_post_cmp_and_swap(pair.a.ep, 111, 7, &iov, cookie(5), &target, DAT_COMPLETION_DEFAULT_FLAG));
    take_extended(pair.a.request, 5, DAT_IB_CMP_AND_SWAP, DAT_IB_DTO_CMP_SWAP, 0);
    CHECK(*word == 7);

    /* Counters: all, one with a reset, one again. */
    OK(dat_extension_op(pair.a.ep, DAT_IB_QUERY_COUNTERS_OP, DCNT_EP_ALL_COUNTERS, counters, 0));
    CHECK(counters[DCNT_EP_POST_FETCH_ADD] == 1 && counters[DCNT_EP_POST_CMP_SWAP] == 2);
    CHECK(counters[DCNT_EP_POST_WRITE_IMM] == 1 && counters[DCNT_EP_CONNECT] == 1);
    OK(dat_extension_op(pair.a.ep, DAT_IB_QUERY_COUNTERS_OP, DCNT_EP_POST_CMP_SWAP, counters, 1));
    CHECK(counters[0] == 2);
    OK(dat_extension_op(pair.a.ep, DAT_IB_QUERY_COUNTERS_OP, DCNT_EP_POST_CMP_SWAP, counters, 0));
    CHECK(counters[0] == 0);
    OK(dat_extension_op(pair.a.ep, DAT_IB_QUERY_COUNTERS_OP, DCNT_EP_POST_FETCH_ADD, counters, 0));
    CHECK(counters[0] == 1);
    REFUSED(dat_extension_op(pair.a.ep, DAT_IB_QUERY_COUNTERS_OP, 1000, counters, 0), DAT_INVALID_PARAMETER);
    REFUSED(dat_extension_op(pair.ia, DAT_IB_COLLECTIVE_CREATE_MEMBER_OP, NULL, NULL, NULL), DAT_NOT_IMPLEMENTED);
    REFUSED(dat_extension_op(NULL, DAT_IB_FETCH_AND_ADD_OP, 0, 0, 0, 0, 0), DAT_INVALID_HANDLE);

    /* A window: bound, used, ended by the peer's message. */
    DAT_RMR_HANDLE rmr;
    DAT_RMR_CONTEXT context;
    DAT_EVENT event;
    OK(dat_rmr_create(pair.pz, &rmr));
    iov = local(&pair.b, 2048, 256);
    OK(dat_rmr_bind(rmr, pair.b.lmr, &iov, DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
                    DAT_VA_TYPE_VA, pair.b.ep, cookie(6), DAT_COMPLETION_DEFAULT_FLAG, &context));
    take(pair.b.request, &event, DAT_RMR_BIND_COMPLETION_EVENT);
    CHECK(event.event_data.rmr_completion_event_data.rmr_handle == rmr);
    CHECK(event.event_data.rmr_completion_event_data.user_cookie.as_64 == 6);
    CHECK(event.event_data.rmr_completion_event_data.status == DAT_RMR_BIND_SUCCESS);
    target = remote(&pair.b, 2048, 100);
    target.rmr_context = context;
    iov = local(&pair.a, 0, 100);
    OK(dat_ep_post_rdma_write(pair.a.ep, 1, &iov, cookie(7), &target, DAT_COMPLETION_DEFAULT_FLAG));
    take_dto(pair.a.request, pair.a.ep, 7, 100);
    CHECK(pair.b.memory[2048] == 'i');
    REFUSED_AS(dat_lmr_free(pair.b.lmr), DAT_INVALID_STATE, DAT_INVALID_STATE_LMR_IN_USE);
    iov = local(&pair.b, 50000, 16);
    OK(dat_ep_post_recv(pair.b.ep, 1, &iov, cookie(8), DAT_COMPLETION_DEFAULT_FLAG));
    DAT_RETURN sent =
        DAT_EP_POST_SEND_WITH_INVALIDATE(pair.a.ep, 0, NULL, cookie(9), DAT_COMPLETION_DEFAULT_FLAG, DAT_TRUE, context);
    if (DAT_GET_TYPE(sent) == DAT_MODEL_NOT_SUPPORTED) {
        printf("refused: sends that invalidate a window\n");
    } else {
        OK(sent);
        take(pair.b.recv, &event, DAT_DTO_COMPLETION_EVENT);
        CHECK(event.event_data.dto_completion_event_data.operation == DAT_DTO_RECEIVE_WITH_INVALIDATE);
        CHECK(event.event_data.dto_completion_event_data.rmr_context == context);
        take_dto(pair.a.request, pair.a.ep, 9, 0);
    }
    OK(dat_rmr_free(rmr));

    /* A shared receive queue serves an endpoint made with it. */
    DAT_SRQ_HANDLE srq;
    DAT_SRQ_ATTR srq_attr = {8, 1, 0};
    DAT_SRQ_PARAM srq_param;
    DAT_EP_ATTR attr;
    struct end c, d;
    OK(dat_srq_create(pair.ia, pair.pz, &srq_attr, &srq));
    attributes(&attr);
    end_of(&pair, &c, &attr);
    end_of(&pair, &d, &attr);
    OK(dat_ep_free(d.ep));
    OK(dat_ep_create_with_srq(pair.ia, pair.pz, d.recv, d.request, d.connect, srq, &attr, &d.ep));
    for (int i = 0; i < 3; i++) {
        iov = local(&d, i * 64, 64);
        OK(dat_srq_post_recv(srq, 1, &iov, cookie(100 + i)));
    }
    connect_ends(&pair, &c, &d);
    iov = local(&c, 0, 64);
    OK(dat_ep_post_send(c.ep, 1, &iov, cookie(10), DAT_COMPLETION_DEFAULT_FLAG));
    take_dto(d.recv, d.ep, 100, 64);
    take_dto(c.request, c.ep, 10, 64);
    OK(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &srq_param));
    CHECK(srq_param.available_dto_count == 2 && srq_param.outstanding_dto_count == 2);
    CHECK(srq_param.ia_handle == pair.ia && srq_param.pz_handle == pair.pz);
    REFUSED_AS(dat_srq_free(srq), DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
    OK(dat_ep_free(d.ep));
    OK(dat_srq_free(srq));

    /* Asking for attributes without an IA of one's own. */
    DAT_IA_HANDLE light;
    DAT_IA_ATTR ia_attr;
    DAT_PROVIDER_ATTR provider_attr;
    OK(dat_ib_open_query(argv[1], &light, DAT_IA_FIELD_ALL, &ia_attr, DAT_PROVIDER_FIELD_ALL, &provider_attr));
    CHECK(strcmp(provider_attr.provider_name, argv[1]) == 0);
    CHECK(provider_attr.num_provider_specific_attr > 0);
    OK(dat_ib_close_query(light));
    close_pair(&pair);
    return 0;
}
