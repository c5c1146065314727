/* Programs that go through the table at the head of every handle, as the macros of the headers do. */
#include "common.h"
#include <poll.h>

DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE, DAT_IA_HANDLE *);

int main(int argc, char **argv)
{
    struct pair pair;
    DAT_IA_HANDLE inner, back;
    DAT_EVD_HANDLE evd, hint;
    DAT_CNO_HANDLE cno;
    DAT_FD fd;
    DAT_EVENT event;
    DAT_EVD_PARAM param;
    DAT_PZ_HANDLE pz;
    DAT_PROVIDER *table;
    CHECK(argc == 2);
    open_pair(&pair, argv[1]);

    CHECK((uintptr_t)pair.ia < 65536);
    OK(dats_get_ia_handle(pair.ia, &inner));
    CHECK((uintptr_t)inner > 65536);
    OK(dats_get_ia_handle(inner, &back));
    CHECK(back == pair.ia);
    REFUSED_AS(dats_get_ia_handle((DAT_IA_HANDLE)(uintptr_t)4000, &back), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);

    table = DAT_HANDLE_TO_PROVIDER(pair.a.ep);
    CHECK(strcmp(table->device_name, argv[1]) == 0);
    CHECK(table == DAT_HANDLE_TO_PROVIDER(inner) && table == DAT_HANDLE_TO_PROVIDER(pair.a.recv));
    for (void **slot = (void **)&table->ia_open_func; slot <= (void **)&table->handle_extendedop_func; slot++)
        CHECK(*slot != NULL);

    /* The address works wherever the number does. */
    OK(DAT_PZ_CREATE(inner, &pz));
    OK(DAT_PZ_FREE(pz));
    OK(dat_pz_create(inner, &pz));
    OK(dat_pz_free(pz));

    /* Functions the system's library does not export. */
    OK(DAT_CNO_FD_CREATE(inner, &fd, &cno));
    OK(dat_evd_create(pair.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
    OK(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &param));
    CHECK(param.cno_handle == cno && param.ia_handle == pair.ia && param.evd_qlen >= 8);
    struct pollfd look = {fd, POLLIN, 0};
    CHECK(poll(&look, 1, 0) == 0);
    REFUSED(DAT_CNO_TRIGGER(cno, &hint), DAT_QUEUE_EMPTY);
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data.pointer = &event;
    OK(DAT_EVD_POST_SE(evd, &event));
    CHECK(poll(&look, 1, 10000) == 1);
    OK(DAT_CNO_TRIGGER(cno, &hint));
    CHECK(hint == evd);
    CHECK(poll(&look, 1, 0) == 0);
    OK(DAT_EVD_DEQUEUE(evd, &event));
    CHECK(event.event_number == DAT_SOFTWARE_EVENT && event.event_data.software_event_data.pointer == &event);

    connect_ends(&pair, &pair.a, &pair.b);
    DAT_LMR_TRIPLET iov = local(&pair.b, 0, 64);
    OK(DAT_EP_POST_RECV(pair.b.ep, 1, &iov, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    iov = local(&pair.a, 0, 64);
    OK(DAT_EP_POST_SEND_WITH_INVALIDATE(pair.a.ep, 1, &iov, cookie(2), DAT_COMPLETION_DEFAULT_FLAG, DAT_FALSE, 0));
    take_dto(pair.b.recv, pair.b.ep, 1, 64);
    take_dto(pair.a.request, pair.a.ep, 2, 64);

    /* A stale handle still leads to a table, which refuses it. */
    OK(DAT_EP_FREE(pair.a.ep));
    REFUSED_AS(DAT_EP_FREE(pair.a.ep), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    OK(dat_ia_close(pair.ia, DAT_CLOSE_ABRUPT_FLAG));
    REFUSED_AS(DAT_EP_RESET(pair.b.ep), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
    REFUSED_AS(DAT_PZ_CREATE(inner, &pz), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    return 0;
}
