/* An endpoint as an MPI library makes it. One dispatcher takes receives with the default flag, requests with the
 * unsignalled flag, and software events. The attributes say 3 bytes; the messages are longer. Triplets are not aligned.
 * The specification refuses all of this. The reference library accepts it. */
#include "common.h"

#define LONG 272

static void endpoint(struct pair *pair, struct end *end)
{
    DAT_EP_ATTR attr;
    DAT_EP_PARAM param;
    attributes(&attr);
    attr.max_message_size = 3;
    attr.request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
    OK(dat_evd_create(pair->ia, 512, DAT_HANDLE_NULL,
                      DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG | DAT_EVD_SOFTWARE_FLAG, &end->recv));
    end->request = end->recv;
    OK(dat_evd_create(pair->ia, 64, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG, &end->connect));
    OK(dat_ep_create(pair->ia, pair->pz, end->recv, end->request, end->connect, &attr, &end->ep));
    OK(dat_ep_query(end->ep, DAT_EP_FIELD_ALL, &param));
    CHECK(param.ep_attr.max_message_size == 3);
    CHECK(param.ep_attr.request_completion_flags == DAT_COMPLETION_UNSIGNALLED_FLAG);
    memory_of(pair, end);
}

/* A message each way; the request's completion and the receive's meet on one dispatcher. */
static void transfer(struct end *from, struct end *to)
{
    DAT_LMR_TRIPLET source = local(from, 0, LONG), target = local(to, 4096, LONG);
    memset(from->memory, 7, LONG);
    memset(to->memory + 4096, 0, LONG);
    /* Out of a packed structure. */
    char packed[4 + sizeof target];
    memcpy(packed + 4, &target, sizeof target);
    OK(dat_ep_post_recv(to->ep, 1, (DAT_LMR_TRIPLET *)(packed + 4), cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_post_send(from->ep, 1, &source, cookie(2), DAT_COMPLETION_DEFAULT_FLAG));
    take_dto(to->recv, to->ep, 1, LONG);
    take_dto(from->request, from->ep, 2, LONG);
    CHECK(to->memory[4096] == 7 && to->memory[4096 + LONG - 1] == 7);
}

/* A software event wakes the same dispatcher. */
static void software(struct end *end)
{
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data.pointer = end;
    OK(dat_evd_post_se(end->recv, &event));
    take(end->recv, &event, DAT_SOFTWARE_EVENT);
    CHECK(event.event_data.software_event_data.pointer == end);
}

int main(int argc, char **argv)
{
    struct pair pair;
    CHECK(argc == 2);
    memset(&pair, 0, sizeof pair);
    OK(dat_ia_open(argv[1], 8, &pair.async, &pair.ia));
    OK(dat_ia_query(pair.ia, NULL, DAT_IA_FIELD_ALL, &pair.attr, DAT_PROVIDER_FIELD_ALL, &pair.provider));
    OK(dat_pz_create(pair.ia, &pair.pz));
    endpoint(&pair, &pair.a);
    endpoint(&pair, &pair.b);
    pair.requests = pair.b.connect;
    OK(dat_psp_create_any(pair.ia, &pair.port, pair.requests, DAT_PSP_CONSUMER_FLAG, &pair.psp));
    connect_ends(&pair, &pair.a, &pair.b);
    for (int i = 0; i < 100; i++) {
        transfer(&pair.a, &pair.b);
        transfer(&pair.b, &pair.a);
        software(&pair.a);
    }
    close_pair(&pair);
    return 0;
}
