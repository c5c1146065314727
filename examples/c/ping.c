/* Two processes exchange messages through uDAPL: the classic C interface, over any provider.
 *
 *   ping shm0 server 7777            in one terminal
 *   ping shm0 client 7777 1000       in another, on the same host
 *
 * Build: cc ping.c -o ping $(pkg-config --cflags --libs dat2)
 */
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dat2/udat.h>

#define BYTES 64
#define PATIENCE 10000000 /* microseconds */

static void must(const char *what, DAT_RETURN result)
{
    const char *major = "?", *minor = "?";
    if (result == DAT_SUCCESS) return;
    dat_strerror(result, &major, &minor);
    fprintf(stderr, "%s: %s %s\n", what, major, minor);
    exit(1);
}

/* Everything one side needs. */
struct side {
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE events; /* one dispatcher for all kinds of events */
    DAT_PZ_HANDLE pz;
    DAT_EP_HANDLE ep;
    DAT_LMR_CONTEXT context;
    char buffer[2 * BYTES]; /* the message to send, then the message received */
};

static void open_side(struct side *side, const char *name)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_LMR_HANDLE lmr;
    DAT_REGION_DESCRIPTION region;
    DAT_EP_ATTR attr;

    must("dat_ia_open", dat_ia_open((char *)name, 8, &async, &side->ia));
    must("dat_pz_create", dat_pz_create(side->ia, &side->pz));
    must("dat_evd_create",
         dat_evd_create(side->ia, 64, DAT_HANDLE_NULL,
                        DAT_EVD_CR_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_DTO_FLAG, &side->events));
    region.for_va = side->buffer;
    must("dat_lmr_create", dat_lmr_create(side->ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof side->buffer, side->pz,
                                          DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG,
                                          DAT_VA_TYPE_VA, &lmr, &side->context, NULL, NULL, NULL));
    memset(&attr, 0, sizeof attr);
    attr.service_type = DAT_SERVICE_TYPE_RC;
    attr.max_recv_dtos = attr.max_request_dtos = 8;
    attr.max_recv_iov = attr.max_request_iov = 1;
    must("dat_ep_create",
         dat_ep_create(side->ia, side->pz, side->events, side->events, side->events, &attr, &side->ep));
}

/* The next event, which must be of this kind. */
static DAT_EVENT expect(struct side *side, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    DAT_COUNT more;
    must("dat_evd_wait", dat_evd_wait(side->events, PATIENCE, 1, &event, &more));
    if (event.event_number != number) {
        fprintf(stderr, "event %#x where %#x was expected\n", event.event_number, number);
        exit(1);
    }
    return event;
}

static DAT_LMR_TRIPLET part(struct side *side, int index)
{
    DAT_LMR_TRIPLET triplet;
    triplet.virtual_address = (DAT_VADDR)(uintptr_t)(side->buffer + index * BYTES);
    triplet.segment_length = BYTES;
    triplet.lmr_context = side->context;
    return triplet;
}

static void receive(struct side *side)
{
    DAT_DTO_COOKIE cookie = {.as_64 = 1};
    DAT_LMR_TRIPLET segment = part(side, 1);
    must("dat_ep_post_recv", dat_ep_post_recv(side->ep, 1, &segment, cookie, DAT_COMPLETION_DEFAULT_FLAG));
}

static void post(struct side *side)
{
    DAT_DTO_COOKIE cookie = {.as_64 = 0};
    DAT_LMR_TRIPLET segment = part(side, 0);
    /* Success needs no message: the answer shows it. */
    must("dat_ep_post_send", dat_ep_post_send(side->ep, 1, &segment, cookie, DAT_COMPLETION_SUPPRESS_FLAG));
}

/* Waits for a message; 0 when the peer has gone. */
static int arrived(struct side *side)
{
    DAT_EVENT event;
    DAT_COUNT more;
    must("dat_evd_wait", dat_evd_wait(side->events, PATIENCE, 1, &event, &more));
    return event.event_number == DAT_DTO_COMPLETION_EVENT
        && event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS;
}

static void serve(struct side *side, DAT_CONN_QUAL port)
{
    DAT_PSP_HANDLE psp;
    DAT_EVENT event;
    int count = 0;

    must("dat_psp_create", dat_psp_create(side->ia, port, side->events, DAT_PSP_CONSUMER_FLAG, &psp));
    receive(side); /* before the peer can send */
    printf("listening\n");
    fflush(stdout);
    event = expect(side, DAT_CONNECTION_REQUEST_EVENT);
    must("dat_cr_accept", dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, side->ep, 0, NULL));
    expect(side, DAT_CONNECTION_EVENT_ESTABLISHED);
    while (arrived(side)) {
        memcpy(side->buffer, side->buffer + BYTES, BYTES);
        receive(side);
        post(side);
        count++;
    }
    printf("served %d messages\n", count);
}

static void ask(struct side *side, DAT_CONN_QUAL port, int rounds)
{
    DAT_IA_ATTR attr;
    int i;

    must("dat_ia_query", dat_ia_query(side->ia, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &attr, 0, NULL));
    receive(side);
    must("dat_ep_connect", dat_ep_connect(side->ep, attr.ia_address_ptr, port, PATIENCE, 0, NULL,
                                          DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    expect(side, DAT_CONNECTION_EVENT_ESTABLISHED);
    for (i = 0; i < rounds; i++) {
        snprintf(side->buffer, BYTES, "message %d", i);
        post(side);
        if (!arrived(side) || memcmp(side->buffer, side->buffer + BYTES, BYTES) != 0) {
            fprintf(stderr, "round %d: no answer, or a wrong one\n", i);
            exit(1);
        }
        receive(side);
    }
    must("dat_ep_disconnect", dat_ep_disconnect(side->ep, DAT_CLOSE_GRACEFUL_FLAG));
    printf("%d messages came back\n", rounds);
}

int main(int argc, char **argv)
{
    static struct side side;
    if (argc < 4) {
        fprintf(stderr, "usage: %s NAME server PORT | %s NAME client PORT ROUNDS\n", argv[0], argv[0]);
        return 2;
    }
    open_side(&side, argv[1]);
    if (strcmp(argv[2], "server") == 0)
        serve(&side, strtoull(argv[3], NULL, 0));
    else
        ask(&side, strtoull(argv[3], NULL, 0), argc > 4 ? atoi(argv[4]) : 1000);
    /* Abruptly: all that is left is freed with it. */
    must("dat_ia_close", dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG));
    return 0;
}
