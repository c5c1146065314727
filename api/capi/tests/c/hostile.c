/* Every function with every kind of wrong handle in every place a handle goes: refused as an invalid handle, never a
 * crash, and nothing that was good is harmed. By exported function, and by the table for those that are only there. */
#include "common.h"
#include <dlfcn.h>
#include <sys/mman.h>

DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE, DAT_IA_HANDLE *);

typedef DAT_RETURN (*function)(long, long, long, long, long, long, long, long, long, long, long, long, long);

/* Arguments in order. Handles: i IA, z PZ, e EP, v EVD, c CNO, l LMR, r RMR, s SRQ, q CR, p PSP, x RSP, a any; capital:
 * may be null. Others: o a place for an answer or a structure, n 1, 0 nothing, m DAT_MEM_TYPE_VIRTUAL and its address, T a
 * triplet with a length. */
static const struct call {
    const char *name, *arguments;
} calls[] = {
    {"dat_ia_query", "ionono"},
    {"dat_ia_close", "i0"},
    {"dat_set_consumer_context", "an"},
    {"dat_get_consumer_context", "ao"},
    {"dat_get_handle_type", "ao"},
    {"dat_cno_create", "i00o"},
    {"dat_cno_modify_agent", "c00"},
    {"dat_cno_query", "cno"},
    {"dat_cno_free", "c"},
    {"dat_cno_wait", "c0o"},
    {"dat_cr_query", "qno"},
    {"dat_cr_accept", "qE00"},
    {"dat_cr_reject", "q00"},
    {"dat_cr_handoff", "qn"},
    {"dat_evd_create", "inCno"},
    {"dat_evd_query", "vno"},
    {"dat_evd_modify_cno", "vC"},
    {"dat_evd_enable", "v"},
    {"dat_evd_disable", "v"},
    {"dat_evd_wait", "v0noo"},
    {"dat_evd_resize", "vn"},
    {"dat_evd_post_se", "vo"},
    {"dat_evd_dequeue", "vo"},
    {"dat_evd_free", "v"},
    {"dat_evd_set_unwaitable", "v"},
    {"dat_evd_clear_unwaitable", "v"},
    {"dat_ep_create", "iZVVV0o"},
    {"dat_ep_create_with_srq", "iZVVVsoo"},
    {"dat_ep_query", "eno"},
    {"dat_ep_modify", "eno"},
    {"dat_ep_connect", "eonn0000"},
    {"dat_ep_dup_connect", "een000"},
    {"dat_ep_disconnect", "e0"},
    {"dat_ep_post_send", "e00n0"},
    {"dat_ep_post_recv", "e00n0"},
    {"dat_ep_post_rdma_read", "e00no0"},
    {"dat_ep_post_rdma_write", "e00no0"},
    {"dat_ep_get_status", "eooo"},
    {"dat_ep_free", "e"},
    {"dat_ep_reset", "e"},
    {"dat_ep_recv_query", "eoo"},
    {"dat_ep_set_watermark", "enn"},
    {"dat_lmr_create", "imnz00ooooo"},
    {"dat_lmr_query", "lno"},
    {"dat_lmr_free", "l"},
    {"dat_lmr_sync_rdma_read", "io0"},
    {"dat_lmr_sync_rdma_write", "io0"},
    {"dat_rmr_create", "zo"},
    {"dat_rmr_query", "rno"},
    {"dat_rmr_bind", "rlT00en0o"},
    {"dat_rmr_free", "r"},
    {"dat_psp_create", "inv0o"},
    {"dat_psp_create_any", "iov0o"},
    {"dat_psp_query", "pno"},
    {"dat_psp_free", "p"},
    {"dat_rsp_create", "inEvo"},
    {"dat_rsp_query", "xno"},
    {"dat_rsp_free", "x"},
    {"dat_pz_create", "io"},
    {"dat_pz_query", "zno"},
    {"dat_pz_free", "z"},
    {"dat_srq_create", "izoo"},
    {"dat_srq_free", "s"},
    {"dat_srq_post_recv", "s00n"},
    {"dat_srq_query", "sno"},
    {"dat_srq_resize", "sn"},
    {"dat_srq_set_lw", "sn"},
    {"dat_extension_op", "a"},
    {"dats_get_ia_handle", "io"},
};
#define CALLS (sizeof calls / sizeof calls[0])

/* Live handles by their letter. */
static DAT_HANDLE live[128];
static const char letters[] = "izevclrspx";

/* Everything that is no handle. */
static DAT_HANDLE strange[64];
static int stranges;

static unsigned char scratch[16][4096] __attribute__((aligned(64)));

static int is_handle(char letter) { return strchr("izevclrsqpxaZVCE", letter) != NULL; }

static void one(const struct call *call, int place, DAT_HANDLE wrong)
{
    long words[13] = {0};
    int at = 0, out = 0, target = -1;
    for (int i = 0; call->arguments[i]; i++) {
        char letter = call->arguments[i];
        if (i == place) {
            words[at++] = (long)wrong;
            target = at - 1;
        } else if (letter == 'm') {
            /* Memory type, and a description of two words. */
            words[at++] = DAT_MEM_TYPE_VIRTUAL;
            words[at++] = (long)scratch[15];
            words[at++] = 0;
        } else if (letter == 'T') {
            DAT_LMR_TRIPLET *triplet = (DAT_LMR_TRIPLET *)scratch[out++];
            memset(triplet, 0, sizeof *triplet);
            triplet->segment_length = 16;
            words[at++] = (long)triplet;
        } else if (is_handle(letter)) {
            words[at++] = (long)live[letter == 'a' ? 'z' : letter | 32];
        } else if (letter == 'o') {
            memset(scratch[out], 0, sizeof scratch[out]);
            words[at++] = (long)scratch[out++];
        } else {
            words[at++] = letter == 'n';
        }
    }
    function function = (void *)dlsym(RTLD_DEFAULT, call->name);
    if (!function) FAIL("%s is not exported", call->name);
    DAT_RETURN got = function(words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7], words[8],
                              words[9], words[10], words[11], words[12]);
    if (DAT_GET_TYPE(got) != DAT_INVALID_HANDLE)
        FAIL("%s with %p as argument %d answers %#x", call->name, wrong, target, got);
}

static int asked;

static void everywhere(DAT_HANDLE wrong, char kind)
{
    for (unsigned f = 0; f < CALLS; f++)
        for (int i = 0; calls[f].arguments[i]; i++) {
            char letter = calls[f].arguments[i];
            if (!is_handle(letter)) continue;
            if (wrong == DAT_HANDLE_NULL && letter < 'a') continue;
            /* What is right there, or anywhere. */
            if (kind && (letter | 32) == kind) continue;
            if (kind && letter == 'a') continue;
            one(&calls[f], i, wrong);
            asked++;
        }
}

static void still_there(void)
{
    for (const char *letter = letters; *letter; letter++) {
        DAT_HANDLE_TYPE type;
        OK(dat_get_handle_type(live[(int)*letter], &type));
    }
}

int main(int argc, char **argv)
{
    struct pair pair;
    DAT_OS_WAIT_PROXY_AGENT none = {NULL, NULL};
    DAT_SRQ_ATTR srq_attr = {8, 1, 0};
    DAT_HANDLE freed;
    DAT_IA_HANDLE gone, inner;
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    CHECK(argc == 2);
    /* All that are exported, but those that take no handle: opening, texts, the registry's three. */
    CHECK(CALLS == 74 - 5);
    open_pair(&pair, argv[1]);
    live['i'] = pair.ia;
    live['z'] = pair.pz;
    live['e'] = pair.a.ep;
    live['v'] = pair.a.recv;
    live['l'] = pair.a.lmr;
    live['p'] = pair.psp;
    OK(dat_cno_create(pair.ia, none, &live['c']));
    OK(dat_rmr_create(pair.pz, &live['r']));
    OK(dat_srq_create(pair.ia, pair.pz, &srq_attr, &live['s']));
    OK(dat_rsp_create(pair.ia, 4242, pair.b.ep, pair.requests, &live['x']));

    /* Nothing that is a handle: null, the magic ones, numbers, memory of all kinds, neighbours of good ones. */
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && mprotect(page + 4096, 4096, PROT_NONE) == 0);
    strange[stranges++] = DAT_HANDLE_NULL;
    for (uintptr_t number = 1; number < 3; number++) strange[stranges++] = (DAT_HANDLE)number;
    strange[stranges++] = (DAT_HANDLE)(uintptr_t)4000;
    strange[stranges++] = (DAT_HANDLE)(uintptr_t)4096;
    strange[stranges++] = (DAT_HANDLE)(uintptr_t)0xdead0000;
    strange[stranges++] = (DAT_HANDLE)(uintptr_t)-1;
    strange[stranges++] = (DAT_HANDLE)(uintptr_t)-8;
    strange[stranges++] = (DAT_HANDLE)(uintptr_t)0x8000000000000000ull;
    strange[stranges++] = (DAT_HANDLE)&pair;
    strange[stranges++] = (DAT_HANDLE)page;
    strange[stranges++] = (DAT_HANDLE)(page + 4096);
    strange[stranges++] = (DAT_HANDLE)(page + 4095);
    strange[stranges++] = (DAT_HANDLE)main;
    strange[stranges++] = (DAT_HANDLE)"a handle";
    for (int by = 1; by < 128; by *= 2) strange[stranges++] = (char *)pair.a.ep + by;
    strange[stranges++] = (char *)pair.a.ep - 8;
    /* What copies another's first word is no handle either. */
    memcpy(page, pair.a.ep, sizeof(void *));

    /* Freed ones, and those of an IA that is gone. */
    OK(dat_pz_create(pair.ia, &freed));
    OK(dat_pz_free(freed));
    strange[stranges++] = freed;
    OK(dat_evd_create(pair.ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &freed));
    OK(dat_evd_free(freed));
    strange[stranges++] = freed;
    OK(dat_ia_open(argv[1], 8, &async, &gone));
    OK(dats_get_ia_handle(gone, &inner));
    OK(dat_pz_create(gone, &freed));
    OK(dat_ia_close(gone, DAT_CLOSE_ABRUPT_FLAG));
    strange[stranges++] = gone;
    strange[stranges++] = inner;
    strange[stranges++] = freed;
    strange[stranges++] = async;

    CHECK(stranges <= 64);
    for (int i = 0; i < stranges; i++) everywhere(strange[i], 0);
    still_there();
    /* Good ones where another kind belongs. */
    for (const char *letter = letters; *letter; letter++) everywhere(live[(int)*letter], *letter);
    still_there();
    CHECK(asked > 3000);

    /* By the table, where the first word may be followed: stale handles, and good ones of another kind. */
    DAT_PZ_HANDLE stale;
    DAT_CSP_PARAM csp;
    DAT_RMR_HANDLE rmr;
    OK(dat_pz_create(pair.ia, &stale));
    OK(dat_pz_free(stale));
    DAT_HANDLE wrong[] = {stale, pair.a.lmr, live['c']};
    for (int i = 0; i < 3; i++) {
        DAT_HANDLE h = wrong[i], hint;
        REFUSED(DAT_CSP_QUERY(h, DAT_CSP_FIELD_ALL, &csp), DAT_INVALID_HANDLE);
        REFUSED(DAT_CSP_FREE(h), DAT_INVALID_HANDLE);
        REFUSED(DAT_RMR_CREATE_FOR_EP(h, &rmr), DAT_INVALID_HANDLE);
        REFUSED(DAT_EP_COMMON_CONNECT(h, NULL, 1, 0, NULL), DAT_INVALID_HANDLE);
        REFUSED(DAT_EP_POST_SEND_WITH_INVALIDATE(h, 0, NULL, cookie(0), 0, DAT_TRUE, 0), DAT_INVALID_HANDLE);
        if (h != live['c']) REFUSED(DAT_CNO_TRIGGER(h, &hint), DAT_INVALID_HANDLE);
    }

    /* And all of it works. */
    OK(dat_rsp_free(live['x']));
    connect_ends(&pair, &pair.a, &pair.b);
    close_pair(&pair);
    return 0;
}
