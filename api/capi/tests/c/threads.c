/* Several threads at once: each with endpoints of its own on one IA, and handles freed under others' calls. */
#include "common.h"

#define THREADS 4
#define ROUNDS 200

static struct pair shared;
static pthread_mutex_t connecting = PTHREAD_MUTEX_INITIALIZER;

static void *exchanges(void *unused)
{
    struct end a, b;
    DAT_EP_ATTR attr;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    attributes(&attr);
    /* Used by this thread, of either kind: with the declaration and without. */
    DAT_NAMED_ATTR declared = { "single_threaded", "true" };
    attr.ep_transport_specific_count = 1;
    attr.ep_transport_specific = &declared;
    end_of(&shared, &a, &attr);
    attr.ep_transport_specific_count = 0;
    end_of(&shared, &b, &attr);
    pthread_mutex_lock(&connecting);
    connect_ends(&shared, &a, &b);
    pthread_mutex_unlock(&connecting);
    for (int i = 0; i < ROUNDS; i++) {
        DAT_LMR_TRIPLET iov = local(&b, 0, 256);
        OK(dat_ep_post_recv(b.ep, 1, &iov, cookie(i), DAT_COMPLETION_DEFAULT_FLAG));
        memset(a.memory, i, 256);
        iov = local(&a, 0, 256);
        OK(dat_ep_post_send(a.ep, 1, &iov, cookie(1000 + i), DAT_COMPLETION_DEFAULT_FLAG));
        take_dto(b.recv, b.ep, i, 256);
        take_dto(a.request, a.ep, 1000 + i, 256);
        CHECK(b.memory[255] == (unsigned char)i);
    }
    OK(dat_ep_free(a.ep));
    OK(dat_ep_free(b.ep));
    OK(dat_lmr_free(a.lmr));
    OK(dat_lmr_free(b.lmr));
    free(a.memory);
    free(b.memory);
    return NULL;
}

static volatile int stop;
static DAT_EP_HANDLE volatile victim;

/* Posts to whatever is there; the answer does not matter, that there is one does. */
static void *pesters(void *evd)
{
    DAT_EVENT event;
    while (!stop) {
        DAT_RETURN result = dat_ep_post_recv(victim, 0, NULL, cookie(0), DAT_COMPLETION_DEFAULT_FLAG);
        DAT_UINT32 type = DAT_GET_TYPE(result);
        if (type != DAT_SUCCESS && type != DAT_INVALID_HANDLE && type != DAT_INSUFFICIENT_RESOURCES)
            FAIL("post answered %#x", result);
        dat_evd_dequeue(evd, &event);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    CHECK(argc == 2);
    open_pair(&shared, argv[1]);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, exchanges, NULL) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);

    DAT_EP_ATTR attr;
    DAT_EP_HANDLE ep;
    attributes(&attr);
    /* What was declared is not so here, where three threads call. */
    DAT_NAMED_ATTR declared = { "single_threaded", "true" };
    attr.ep_transport_specific_count = 1;
    attr.ep_transport_specific = &declared;
    victim = shared.a.ep;
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, pesters, shared.b.recv) == 0);
    for (int i = 0; i < 2000; i++) {
        OK(dat_ep_create(shared.ia, shared.pz, shared.b.recv, shared.b.request, shared.b.connect, &attr, &ep));
        victim = ep;
        if (i % 100 == 0) usleep(1000);
        OK(dat_ep_free(ep));
    }
    stop = 1;
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    close_pair(&shared);
    return 0;
}
