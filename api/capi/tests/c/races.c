/* Two threads that free the same thing at the same moment: one of them does, the other is told that there is no such
 * thing. The same of closing, accepting and rejecting; and of use while the other frees. */
#include "common.h"

#define ROUNDS 300

static pthread_barrier_t together;
static DAT_HANDLE volatile victim;
static DAT_RETURN (*volatile ends)(DAT_HANDLE);
static volatile int over;

static void *other(void *unused)
{
    for (;;) {
        pthread_barrier_wait(&together);
        if (over) return NULL;
        DAT_RETURN got = ends(victim);
        pthread_barrier_wait(&together);
        if (got != DAT_SUCCESS && DAT_GET_TYPE(got) != DAT_INVALID_HANDLE) FAIL("the other thread got %#x", got);
        victim = (DAT_HANDLE)(uintptr_t)(got == DAT_SUCCESS);
        pthread_barrier_wait(&together);
    }
}

/* Both threads end it; exactly one does. */
static void by_two(const char *what, DAT_HANDLE handle, DAT_RETURN (*call)(DAT_HANDLE))
{
    victim = handle;
    ends = call;
    pthread_barrier_wait(&together);
    DAT_RETURN got = call(handle);
    pthread_barrier_wait(&together);
    if (got != DAT_SUCCESS && DAT_GET_TYPE(got) != DAT_INVALID_HANDLE) FAIL("%s: %#x", what, got);
    pthread_barrier_wait(&together);
    if ((got == DAT_SUCCESS) + (victim != NULL) != 1) FAIL("%s: ended %s", what, victim ? "twice" : "by nobody");
}

static DAT_RETURN close_abruptly(DAT_HANDLE ia) { return dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG); }
static DAT_RETURN reject(DAT_HANDLE cr) { return dat_cr_reject(cr, 0, NULL); }
static DAT_EP_HANDLE acceptor;
static DAT_RETURN accept_or_reject(DAT_HANDLE cr)
{
    static int turn;
    return __sync_fetch_and_add(&turn, 1) & 1 ? dat_cr_accept(cr, acceptor, 0, NULL) : reject(cr);
}

int main(int argc, char **argv)
{
    struct pair pair;
    pthread_t thread;
    DAT_HANDLE made;
    DAT_EP_ATTR attr;
    DAT_SRQ_ATTR srq_attr = {8, 1, 0};
    DAT_OS_WAIT_PROXY_AGENT none = {NULL, NULL};
    DAT_CONN_QUAL port;
    CHECK(argc == 2);
    CHECK(pthread_barrier_init(&together, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
    open_pair(&pair, argv[1]);
    attributes(&attr);
    for (int i = 0; i < ROUNDS; i++) {
        OK(dat_ep_create(pair.ia, pair.pz, pair.a.recv, pair.a.request, pair.a.connect, &attr, &made));
        by_two("dat_ep_free", made, dat_ep_free);
        OK(dat_evd_create(pair.ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &made));
        by_two("dat_evd_free", made, dat_evd_free);
        OK(dat_pz_create(pair.ia, &made));
        by_two("dat_pz_free", made, dat_pz_free);
        OK(dat_cno_create(pair.ia, none, &made));
        by_two("dat_cno_free", made, dat_cno_free);
        OK(dat_rmr_create(pair.pz, &made));
        by_two("dat_rmr_free", made, dat_rmr_free);
        if (pair.provider.srq_supported) {
            OK(dat_srq_create(pair.ia, pair.pz, &srq_attr, &made));
            by_two("dat_srq_free", made, dat_srq_free);
        }
        /* A listener takes some fabrics milliseconds. */
        if (i % 10 == 0) {
            OK(dat_psp_create_any(pair.ia, &port, pair.requests, DAT_PSP_CONSUMER_FLAG, &made));
            by_two("dat_psp_free", made, dat_psp_free);
        }
        struct end end;
        memory_of(&pair, &end);
        by_two("dat_lmr_free", end.lmr, dat_lmr_free);
        free(end.memory);
    }
    for (int i = 0; i < ROUNDS / 10; i++) {
        DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
        OK(dat_ia_open(argv[1], 8, &async, &made));
        by_two("dat_ia_close", made, close_abruptly);
    }
    /* A request is answered once. */
    for (int i = 0; i < ROUNDS / 10; i++) {
        struct end a, b;
        DAT_EVENT event;
        end_of(&pair, &a, &attr);
        end_of(&pair, &b, &attr);
        OK(dat_ep_connect(a.ep, pair.attr.ia_address_ptr, pair.port, SOON, 0, NULL, DAT_QOS_BEST_EFFORT,
                          DAT_CONNECT_DEFAULT_FLAG));
        take(pair.requests, &event, DAT_CONNECTION_REQUEST_EVENT);
        acceptor = b.ep;
        by_two("dat_cr", event.event_data.cr_arrival_event_data.cr_handle, accept_or_reject);
        DAT_COUNT more;
        OK(dat_evd_wait(a.connect, SOON, 1, &event, &more));
        CHECK(event.event_number == DAT_CONNECTION_EVENT_ESTABLISHED ||
              event.event_number == DAT_CONNECTION_EVENT_PEER_REJECTED);
        OK(dat_ep_free(a.ep));
        OK(dat_ep_free(b.ep));
        OK(dat_lmr_free(a.lmr));
        OK(dat_lmr_free(b.lmr));
        free(a.memory);
        free(b.memory);
    }
    over = 1;
    pthread_barrier_wait(&together);
    CHECK(pthread_join(thread, NULL) == 0);
    connect_ends(&pair, &pair.a, &pair.b);
    close_pair(&pair);
    return 0;
}
