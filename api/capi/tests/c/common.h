/* What the C tests share: checks that say where they failed, and two endpoints connected to each other. */
#ifndef COMMON_H
#define COMMON_H
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>

#define FAIL(...)                                                                                                     \
    do {                                                                                                              \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                               \
        fprintf(stderr, __VA_ARGS__);                                                                                 \
        fprintf(stderr, "\n");                                                                                        \
        exit(1);                                                                                                      \
    } while (0)

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) FAIL("not so: %s", #condition);                                                             \
    } while (0)

/* A call that must succeed. */
#define OK(call)                                                                                                      \
    do {                                                                                                              \
        DAT_RETURN ok_ = (call);                                                                                      \
        const char *major_ = "?", *minor_ = "?";                                                                      \
        if (ok_ != DAT_SUCCESS) {                                                                                     \
            dat_strerror(ok_, &major_, &minor_);                                                                      \
            FAIL("%s is %#x %s %s", #call, ok_, major_, minor_);                                                      \
        }                                                                                                             \
    } while (0)

/* A call that must answer with this type. */
#define REFUSED(call, type)                                                                                           \
    do {                                                                                                              \
        DAT_RETURN got_ = (call);                                                                                     \
        if (DAT_GET_TYPE(got_) != (DAT_UINT32)(type)) FAIL("%s is %#x, not %s", #call, got_, #type);                  \
    } while (0)

/* A call that must answer with this type and subtype. */
#define REFUSED_AS(call, type, subtype)                                                                               \
    do {                                                                                                              \
        DAT_RETURN got_ = (call);                                                                                     \
        if (DAT_GET_TYPE(got_) != (DAT_UINT32)(type) || DAT_GET_SUBTYPE(got_) != (DAT_UINT32)(subtype))               \
            FAIL("%s is %#x, not %s %s", #call, got_, #type, #subtype);                                               \
    } while (0)

/* Ten seconds: for what happens at once on an idle machine. */
#define SOON 10000000

#define BYTES 65536

/* One end. */
struct end {
    DAT_EVD_HANDLE recv, request, connect;
    DAT_EP_HANDLE ep;
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
    unsigned char *memory;
};

/* An IA with two ends. */
struct pair {
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE async, requests;
    DAT_PZ_HANDLE pz;
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL port;
    DAT_IA_ATTR attr;
    DAT_PROVIDER_ATTR provider;
    struct end a, b;
};

static inline void take(DAT_EVD_HANDLE evd, DAT_EVENT *event, DAT_EVENT_NUMBER number)
{
    DAT_COUNT more;
    OK(dat_evd_wait(evd, SOON, 1, event, &more));
    if (event->event_number != number) FAIL("event %#x, not %#x", event->event_number, number);
    CHECK(event->evd_handle == evd);
}

static inline void take_dto(DAT_EVD_HANDLE evd, DAT_EP_HANDLE ep, DAT_UINT64 cookie, DAT_SEG_LENGTH length)
{
    DAT_EVENT event;
    DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
    take(evd, &event, DAT_DTO_COMPLETION_EVENT);
    CHECK(dto->status == DAT_DTO_SUCCESS);
    CHECK(dto->ep_handle == ep);
    if (dto->user_cookie.as_64 != cookie) FAIL("cookie %lu, not %lu", (long)dto->user_cookie.as_64, (long)cookie);
    CHECK(dto->transfered_length == length);
}

static inline void attributes(DAT_EP_ATTR *attr)
{
    memset(attr, 0, sizeof *attr);
    attr->service_type = DAT_SERVICE_TYPE_RC;
    attr->max_recv_dtos = attr->max_request_dtos = 64;
    attr->max_recv_iov = attr->max_request_iov = 4;
    attr->max_rdma_read_in = attr->max_rdma_read_out = 4;
}

static inline void memory_of(struct pair *pair, struct end *end)
{
    DAT_REGION_DESCRIPTION region;
    DAT_VLEN size;
    DAT_VADDR at;
    CHECK(posix_memalign((void **)&end->memory, 4096, BYTES) == 0);
    memset(end->memory, 0, BYTES);
    region.for_va = end->memory;
    OK(dat_lmr_create(pair->ia, DAT_MEM_TYPE_VIRTUAL, region, BYTES, pair->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA,
                      &end->lmr, &end->local, &end->remote, &size, &at));
    CHECK(size >= BYTES && at <= (DAT_VADDR)(uintptr_t)end->memory && end->remote != 0);
}

static inline void end_of(struct pair *pair, struct end *end, const DAT_EP_ATTR *attr)
{
    OK(dat_evd_create(pair->ia, 512, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &end->recv));
    OK(dat_evd_create(pair->ia, 512, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &end->request));
    OK(dat_evd_create(pair->ia, 16, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &end->connect));
    OK(dat_ep_create(pair->ia, pair->pz, end->recv, end->request, end->connect, attr, &end->ep));
    memory_of(pair, end);
}

static inline void open_pair(struct pair *pair, const char *name)
{
    DAT_EP_ATTR attr;
    memset(pair, 0, sizeof *pair);
    OK(dat_ia_open((char *)name, 8, &pair->async, &pair->ia));
    OK(dat_ia_query(pair->ia, NULL, DAT_IA_FIELD_ALL, &pair->attr, DAT_PROVIDER_FIELD_ALL, &pair->provider));
    OK(dat_pz_create(pair->ia, &pair->pz));
    OK(dat_evd_create(pair->ia, 16, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &pair->requests));
    OK(dat_psp_create_any(pair->ia, &pair->port, pair->requests, DAT_PSP_CONSUMER_FLAG, &pair->psp));
    attributes(&attr);
    end_of(pair, &pair->a, &attr);
    end_of(pair, &pair->b, &attr);
}

/* Connects a to b. */
static inline void connect_ends(struct pair *pair, struct end *a, struct end *b)
{
    DAT_EVENT event;
    DAT_CR_PARAM cr;
    OK(dat_ep_connect(a->ep, pair->attr.ia_address_ptr, pair->port, SOON, 5, "hello", DAT_QOS_BEST_EFFORT,
                      DAT_CONNECT_DEFAULT_FLAG));
    take(pair->requests, &event, DAT_CONNECTION_REQUEST_EVENT);
    CHECK(event.event_data.cr_arrival_event_data.sp_handle.psp_handle == pair->psp);
    CHECK(event.event_data.cr_arrival_event_data.conn_qual == pair->port);
    OK(dat_cr_query(event.event_data.cr_arrival_event_data.cr_handle, DAT_CR_FIELD_ALL, &cr));
    CHECK(cr.private_data_size >= 5 && memcmp(cr.private_data, "hello", 5) == 0);
    CHECK(cr.local_ep_handle == DAT_HANDLE_NULL);
    OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b->ep, 3, "you"));
    take(b->connect, &event, DAT_CONNECTION_EVENT_ESTABLISHED);
    take(a->connect, &event, DAT_CONNECTION_EVENT_ESTABLISHED);
    CHECK(event.event_data.connect_event_data.ep_handle == a->ep);
    CHECK(event.event_data.connect_event_data.private_data_size >= 3);
    CHECK(memcmp(event.event_data.connect_event_data.private_data, "you", 3) == 0);
}

static inline DAT_LMR_TRIPLET local(const struct end *end, int offset, int length)
{
    DAT_LMR_TRIPLET triplet = {(DAT_VADDR)(uintptr_t)(end->memory + offset), (DAT_SEG_LENGTH)length, end->local};
    return triplet;
}

static inline DAT_RMR_TRIPLET remote(const struct end *end, int offset, int length)
{
    DAT_RMR_TRIPLET triplet = {(DAT_VADDR)(uintptr_t)(end->memory + offset), (DAT_SEG_LENGTH)length, end->remote};
    return triplet;
}

static inline DAT_DTO_COOKIE cookie(DAT_UINT64 value)
{
    DAT_DTO_COOKIE cookie;
    cookie.as_64 = value;
    return cookie;
}

static inline void close_pair(struct pair *pair)
{
    OK(dat_ia_close(pair->ia, DAT_CLOSE_ABRUPT_FLAG));
    free(pair->a.memory);
    free(pair->b.memory);
}
#endif
