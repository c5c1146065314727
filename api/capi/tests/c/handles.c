/* Handles that are null, freed, of the wrong kind, or nothing at all; and everything a handle must have. */
#include "common.h"

static DAT_HANDLE strange[6];

#define EACH for (int i = 0; i < 6; i++)
#define BAD(call, subtype) REFUSED_AS(call, DAT_INVALID_HANDLE, subtype)

static void nothing_accepts(DAT_HANDLE h)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_EP_PARAM ep;
    DAT_EVD_PARAM evd;
    DAT_LMR_PARAM lmr;
    DAT_PZ_PARAM pz;
    DAT_PSP_PARAM psp;
    DAT_CR_PARAM cr;
    DAT_CNO_PARAM cno;
    DAT_HANDLE_TYPE type;
    DAT_CONTEXT context = {0};
    DAT_HANDLE out;
    BAD(dat_ep_query(h, DAT_EP_FIELD_ALL, &ep), DAT_INVALID_HANDLE_EP);
    BAD(dat_ep_post_send(h, 0, NULL, cookie(0), 0), DAT_INVALID_HANDLE_EP);
    BAD(dat_ep_post_recv(h, 0, NULL, cookie(0), 0), DAT_INVALID_HANDLE_EP);
    BAD(dat_ep_post_rdma_write(h, 0, NULL, cookie(0), NULL, 0), DAT_INVALID_HANDLE_EP);
    BAD(dat_ep_post_rdma_read(h, 0, NULL, cookie(0), NULL, 0), DAT_INVALID_HANDLE_EP);
    BAD(dat_ep_disconnect(h, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE_EP);
    BAD(dat_ep_reset(h), DAT_INVALID_HANDLE_EP);
    BAD(dat_ep_free(h), DAT_INVALID_HANDLE_EP);
    REFUSED(dat_evd_wait(h, 0, 1, &event, &more), DAT_INVALID_HANDLE);
    REFUSED(dat_evd_dequeue(h, &event), DAT_INVALID_HANDLE);
    REFUSED(dat_evd_query(h, DAT_EVD_FIELD_ALL, &evd), DAT_INVALID_HANDLE);
    REFUSED(dat_evd_free(h), DAT_INVALID_HANDLE);
    BAD(dat_lmr_query(h, DAT_LMR_FIELD_ALL, &lmr), DAT_INVALID_HANDLE_LMR);
    BAD(dat_lmr_free(h), DAT_INVALID_HANDLE_LMR);
    BAD(dat_rmr_free(h), DAT_INVALID_HANDLE_RMR);
    BAD(dat_pz_query(h, DAT_PZ_FIELD_ALL, &pz), DAT_INVALID_HANDLE_PZ);
    BAD(dat_pz_free(h), DAT_INVALID_HANDLE_PZ);
    BAD(dat_psp_query(h, DAT_PSP_FIELD_ALL, &psp), DAT_INVALID_HANDLE_PSP);
    BAD(dat_psp_free(h), DAT_INVALID_HANDLE_PSP);
    BAD(dat_rsp_free(h), DAT_INVALID_HANDLE_RSP);
    BAD(dat_cr_query(h, DAT_CR_FIELD_ALL, &cr), DAT_INVALID_HANDLE_CR);
    BAD(dat_cr_accept(h, DAT_HANDLE_NULL, 0, NULL), DAT_INVALID_HANDLE_CR);
    BAD(dat_cr_reject(h, 0, NULL), DAT_INVALID_HANDLE_CR);
    BAD(dat_cno_query(h, DAT_CNO_FIELD_ALL, &cno), DAT_INVALID_HANDLE_CNO);
    BAD(dat_cno_free(h), DAT_INVALID_HANDLE_CNO);
    BAD(dat_srq_free(h), DAT_INVALID_HANDLE_SRQ);
    BAD(dat_ia_query(h, NULL, 0, NULL, 0, NULL), DAT_INVALID_HANDLE_IA);
    BAD(dat_pz_create(h, &out), DAT_INVALID_HANDLE_IA);
    REFUSED(dat_get_handle_type(h, &type), DAT_INVALID_HANDLE);
    REFUSED(dat_set_consumer_context(h, context), DAT_INVALID_HANDLE);
    REFUSED(dat_get_consumer_context(h, &context), DAT_INVALID_HANDLE);
    REFUSED(dat_extension_op(h, DAT_IB_FETCH_AND_ADD_OP, 0, 0, 0, 0, 0), DAT_INVALID_HANDLE);
}

static void has_kind(DAT_HANDLE h, DAT_HANDLE_TYPE kind)
{
    DAT_HANDLE_TYPE type;
    DAT_CONTEXT context;
    OK(dat_get_handle_type(h, &type));
    CHECK(type == kind);
    OK(dat_get_consumer_context(h, &context));
    CHECK(context.as_64 == 0);
    context.as_64 = 0x123456789abcdef0ull;
    OK(dat_set_consumer_context(h, context));
    context.as_64 = 0;
    OK(dat_get_consumer_context(h, &context));
    CHECK(context.as_64 == 0x123456789abcdef0ull);
}

int main(int argc, char **argv)
{
    struct pair pair;
    DAT_CNO_HANDLE cno;
    DAT_OS_WAIT_PROXY_AGENT none = {NULL, NULL};
    DAT_EP_PARAM param;
    DAT_EVENT event;
    DAT_COUNT more;
    uint64_t words[4] = {1, 2, 3, 4};
    CHECK(argc == 2);
    open_pair(&pair, argv[1]);
    OK(dat_cno_create(pair.ia, none, &cno));

    /* Nothing that is a handle. */
    strange[0] = DAT_HANDLE_NULL;
    strange[1] = (DAT_HANDLE)(uintptr_t)1;
    strange[2] = (DAT_HANDLE)words;
    strange[3] = (DAT_HANDLE)(uintptr_t)-1;
    strange[4] = (char *)pair.a.ep + 8;
    strange[5] = (char *)pair.a.ep + 1;
    EACH nothing_accepts(strange[i]);

    /* Right ones in the wrong place. */
    BAD(dat_ep_query(pair.pz, DAT_EP_FIELD_ALL, &param), DAT_INVALID_HANDLE_EP);
    BAD(dat_ep_query(pair.ia, DAT_EP_FIELD_ALL, &param), DAT_INVALID_HANDLE_EP);
    BAD(dat_lmr_free(pair.a.ep), DAT_INVALID_HANDLE_LMR);
    REFUSED(dat_evd_dequeue(pair.a.ep, &event), DAT_INVALID_HANDLE);
    REFUSED(dat_evd_wait(pair.ia, 0, 1, &event, &more), DAT_INVALID_HANDLE);
    BAD(dat_cno_free(pair.ia), DAT_INVALID_HANDLE_CNO);

    has_kind(pair.ia, DAT_HANDLE_TYPE_IA);
    has_kind(pair.pz, DAT_HANDLE_TYPE_PZ);
    has_kind(pair.psp, DAT_HANDLE_TYPE_PSP);
    has_kind(cno, DAT_HANDLE_TYPE_CNO);
    has_kind(pair.a.ep, DAT_HANDLE_TYPE_EP);
    has_kind(pair.a.recv, DAT_HANDLE_TYPE_EVD);
    has_kind(pair.a.lmr, DAT_HANDLE_TYPE_LMR);

    /* Freed ones, at once and after their place was used again many times. */
    DAT_PZ_HANDLE first, last;
    OK(dat_pz_create(pair.ia, &first));
    OK(dat_pz_free(first));
    nothing_accepts(first);
    for (int i = 0; i < 200000; i++) {
        OK(dat_pz_create(pair.ia, &last));
        CHECK(last != first);
        OK(dat_pz_free(last));
    }
    nothing_accepts(first);
    nothing_accepts(last);

    /* All at once. */
    DAT_EP_HANDLE ep = pair.a.ep;
    DAT_EVD_HANDLE evd = pair.a.recv;
    DAT_LMR_HANDLE lmr = pair.a.lmr;
    OK(dat_ia_close(pair.ia, DAT_CLOSE_ABRUPT_FLAG));
    nothing_accepts(ep);
    nothing_accepts(evd);
    nothing_accepts(lmr);
    nothing_accepts(pair.ia);
    nothing_accepts(pair.async);
    return 0;
}
