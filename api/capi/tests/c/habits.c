/* Habits of real programs: polling memory instead of events, hundreds of suppressed writes with a completion now and
 * then, one dispatcher for everything, an infinite time-out, an abrupt end in the middle of it. */
#include "common.h"

#define WRITES 500

/* The receiver never asks for an event: it looks at the last byte. */
static void polls_its_memory(struct pair *pair)
{
    DAT_LMR_TRIPLET iov = local(&pair->a, 0, 4096);
    DAT_RMR_TRIPLET target = remote(&pair->b, 0, 4096);
    volatile unsigned char *last = &pair->b.memory[4095];
    for (int round = 1; round <= 200; round++) {
        memset(pair->a.memory, round, 4096);
        OK(dat_ep_post_rdma_write(pair->a.ep, 1, &iov, cookie(round), &target, DAT_COMPLETION_SUPPRESS_FLAG));
        time_t start = time(NULL);
        while (*last != (unsigned char)round)
            if (time(NULL) - start > 20) FAIL("round %d never arrived", round);
        for (int i = 0; i < 4096; i++)
            if (pair->b.memory[i] != (unsigned char)round) FAIL("byte %d came after the last one", i);
    }
}

/* More writes than the queue holds; every 20th tells. */
static void suppresses(struct pair *pair)
{
    DAT_LMR_TRIPLET iov = local(&pair->a, 0, 64);
    int told = 0;
    for (int i = 0; i < WRITES; i++) {
        DAT_RMR_TRIPLET target = remote(&pair->b, i * 64, 64);
        int tells = i % 20 == 19;
        memset(pair->a.memory, i + 1, 64);
        OK(dat_ep_post_rdma_write(pair->a.ep, 1, &iov, cookie(i), &target,
                                  tells ? DAT_COMPLETION_DEFAULT_FLAG : DAT_COMPLETION_SUPPRESS_FLAG));
        /* The source is used again at once, so its write must be over: that is what the completion says. */
        if (tells) {
            take_dto(pair->a.request, pair->a.ep, i, 64);
            told++;
            CHECK(pair->b.memory[i * 64 + 63] == (unsigned char)(i + 1));
        } else {
            volatile unsigned char *last = &pair->b.memory[i * 64 + 63];
            time_t start = time(NULL);
            while (*last != (unsigned char)(i + 1))
                if (time(NULL) - start > 20) FAIL("write %d never arrived", i);
        }
    }
    DAT_EVENT event;
    CHECK(told == WRITES / 20);
    CHECK(dat_evd_dequeue(pair->a.request, &event) == DAT_QUEUE_EMPTY);
}

/* One dispatcher takes requests to connect, connections and all completions of both ends. */
static void one_for_everything(const char *name)
{
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, all;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_EP_HANDLE a, b;
    DAT_CONN_QUAL port;
    DAT_IA_ATTR attr;
    DAT_EP_ATTR ep_attr;
    DAT_EVENT event;
    DAT_COUNT more;
    struct pair pair;
    int established = 0, completions = 0, gone = 0;
    memset(&pair, 0, sizeof pair);
    OK(dat_ia_open((char *)name, 8, &async, &ia));
    OK(dat_ia_query(ia, &async, DAT_IA_FIELD_ALL, &attr, 0, NULL));
    OK(dat_pz_create(ia, &pz));
    OK(dat_evd_create(ia, 256, DAT_HANDLE_NULL, DAT_EVD_DEFAULT_FLAG & ~DAT_EVD_ASYNC_FLAG, &all));
    OK(dat_psp_create_any(ia, &port, all, DAT_PSP_CONSUMER_FLAG, &psp));
    attributes(&ep_attr);
    OK(dat_ep_create(ia, pz, all, all, all, &ep_attr, &a));
    OK(dat_ep_create(ia, pz, all, all, all, &ep_attr, &b));
    pair.ia = ia;
    pair.pz = pz;
    memory_of(&pair, &pair.a);
    DAT_LMR_TRIPLET iov = local(&pair.a, 0, 100);
    OK(dat_ep_post_recv(b, 1, &iov, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_connect(a, attr.ia_address_ptr, port, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    while (gone < 2) {
        OK(dat_evd_wait(all, DAT_TIMEOUT_INFINITE, 1, &event, &more));
        switch (event.event_number) {
        case DAT_CONNECTION_REQUEST_EVENT:
            OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b, 0, NULL));
            break;
        case DAT_CONNECTION_EVENT_ESTABLISHED:
            if (++established == 2) {
                iov = local(&pair.a, 200, 100);
                OK(dat_ep_post_send(a, 1, &iov, cookie(2), DAT_COMPLETION_DEFAULT_FLAG));
            }
            break;
        case DAT_DTO_COMPLETION_EVENT:
            CHECK(event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
            if (++completions == 2) OK(dat_ep_disconnect(a, DAT_CLOSE_ABRUPT_FLAG));
            break;
        case DAT_CONNECTION_EVENT_DISCONNECTED:
            gone++;
            break;
        default:
            FAIL("event %#x", event.event_number);
        }
    }
    CHECK(completions == 2);
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    free(pair.a.memory);
}

/* As much private data as there may be arrives whole; more is refused; what follows it is nobody's business. */
static void private_data(struct pair *pair)
{
    DAT_COUNT most = pair->provider.max_private_data_size;
    unsigned char *sent = malloc(most + 1);
    struct end a, b;
    DAT_EP_ATTR attr;
    DAT_EVENT event;
    DAT_CR_PARAM cr;
    DAT_CONNECTION_EVENT_DATA *told = &event.event_data.connect_event_data;
    CHECK(most >= 16 && sent);
    for (int i = 0; i <= most; i++) sent[i] = (unsigned char)(i * 7 + 1);
    attributes(&attr);
    end_of(pair, &a, &attr);
    end_of(pair, &b, &attr);
    REFUSED(dat_ep_connect(a.ep, pair->attr.ia_address_ptr, pair->port, SOON, most + 1, sent, DAT_QOS_BEST_EFFORT,
                           DAT_CONNECT_DEFAULT_FLAG), DAT_INVALID_PARAMETER);
    OK(dat_ep_connect(a.ep, pair->attr.ia_address_ptr, pair->port, SOON, most, sent, DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    take(pair->requests, &event, DAT_CONNECTION_REQUEST_EVENT);
    OK(dat_cr_query(event.event_data.cr_arrival_event_data.cr_handle, DAT_CR_FIELD_ALL, &cr));
    CHECK(cr.private_data_size >= most && memcmp(cr.private_data, sent, most) == 0);
    REFUSED(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b.ep, most + 1, sent),
            DAT_INVALID_PARAMETER);
    OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b.ep, most, sent));
    take(b.connect, &event, DAT_CONNECTION_EVENT_ESTABLISHED);
    take(a.connect, &event, DAT_CONNECTION_EVENT_ESTABLISHED);
    CHECK(told->private_data_size >= most && memcmp(told->private_data, sent, most) == 0);
    OK(dat_ep_free(a.ep));
    OK(dat_ep_free(b.ep));
    OK(dat_lmr_free(a.lmr));
    OK(dat_lmr_free(b.lmr));
    free(a.memory);
    free(b.memory);
    free(sent);
}

static void *waits(void *evd)
{
    DAT_EVENT event;
    DAT_COUNT more;
    return (void *)(uintptr_t)dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, &event, &more);
}

/* The IA is closed under a thread that waits without end, with work outstanding. */
static void closes_abruptly(struct pair *pair)
{
    pthread_t thread;
    void *result;
    DAT_EVENT event;
    DAT_LMR_TRIPLET iov = local(&pair->b, 0, 64);
    for (int i = 0; i < 32; i++) OK(dat_ep_post_recv(pair->b.ep, 1, &iov, cookie(i), DAT_COMPLETION_DEFAULT_FLAG));
    CHECK(pthread_create(&thread, NULL, waits, pair->b.recv) == 0);
    /* Nobody else may take events while a thread waits, which tells that it does by now. */
    for (int i = 0; DAT_GET_TYPE(dat_evd_dequeue(pair->b.recv, &event)) != DAT_INVALID_STATE; i++) {
        CHECK(i < 10000);
        usleep(1000);
    }
    close_pair(pair);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(DAT_GET_TYPE((uintptr_t)result) == DAT_ABORT);
}

/* The one named attribute there is: given back as it was set, changed, refused when it is another or says nothing. */
static void names_attributes(struct pair *pair)
{
    DAT_NAMED_ATTR list[2] = { { "single_threaded", "true" }, { "single_threaded", "false" } };
    const DAT_NAMED_ATTR bad[] = { { "single_threaded", "yes" }, { "colour", "true" }, { "single_threaded", "" } };
    const DAT_EP_PARAM_MASK mask =
        DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR | DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR;
    DAT_EP_PARAM param;
    DAT_EP_ATTR attr;
    DAT_EP_HANDLE ep;
    attributes(&attr);
    attr.ep_transport_specific_count = 1;
    attr.ep_transport_specific = list;
    OK(dat_ep_create(pair->ia, pair->pz, pair->a.recv, pair->a.request, pair->a.connect, &attr, &ep));
    OK(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
    CHECK(param.ep_attr.ep_transport_specific_count == 1 && param.ep_attr.ep_provider_specific_count == 0);
    CHECK(strcmp(param.ep_attr.ep_transport_specific->name, "single_threaded") == 0);
    CHECK(strcmp(param.ep_attr.ep_transport_specific->value, "true") == 0);
    param.ep_attr.ep_transport_specific = &list[1];
    OK(dat_ep_modify(ep, mask, &param));
    OK(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
    CHECK(param.ep_attr.ep_transport_specific_count == 1);
    CHECK(strcmp(param.ep_attr.ep_transport_specific->value, "false") == 0);
    attr.ep_transport_specific_count = 2;
    REFUSED(dat_ep_create(pair->ia, pair->pz, pair->a.recv, pair->a.request, pair->a.connect, &attr, &pair->a.ep),
            DAT_INVALID_PARAMETER);
    attr.ep_transport_specific_count = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        DAT_NAMED_ATTR one = bad[i];
        attr.ep_transport_specific = param.ep_attr.ep_transport_specific = &one;
        REFUSED(dat_ep_create(pair->ia, pair->pz, pair->a.recv, pair->a.request, pair->a.connect, &attr, &pair->a.ep),
                DAT_INVALID_PARAMETER);
        REFUSED(dat_ep_modify(ep, mask, &param), DAT_INVALID_PARAMETER);
    }
    param.ep_attr.ep_transport_specific_count = 0;
    OK(dat_ep_modify(ep, mask, &param));
    OK(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
    CHECK(param.ep_attr.ep_transport_specific_count == 0);
    OK(dat_ep_free(ep));
}

int main(int argc, char **argv)
{
    struct pair pair;
    CHECK(argc == 2);
    open_pair(&pair, argv[1]);
    connect_ends(&pair, &pair.a, &pair.b);
    polls_its_memory(&pair);
    suppresses(&pair);
    private_data(&pair);
    names_attributes(&pair);
    one_for_everything(argv[1]);
    closes_abruptly(&pair);
    return 0;
}
