/* Several openings of one name, as dapltest -T L -w 8 makes them: an endpoint of one reports its connections to a dispatcher
 * of another. Nothing else is shared. */
#include "common.h"

int main(int argc, char **argv)
{
    struct pair first, second;
    DAT_EP_ATTR attr;
    DAT_EP_HANDLE ep;
    DAT_EP_PARAM param;
    DAT_IA_HANDLE stranger;
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, elsewhere;
    DAT_EVENT event;
    CHECK(argc == 2);
    open_pair(&first, argv[1]);
    open_pair(&second, argv[1]);
    attributes(&attr);

    /* Completions and zones stay with their own opening. */
    REFUSED(dat_ep_create(second.ia, second.pz, first.a.recv, second.a.request, second.a.connect, &attr, &ep),
            DAT_INVALID_HANDLE);
    REFUSED(dat_ep_create(second.ia, second.pz, second.a.recv, first.a.request, second.a.connect, &attr, &ep),
            DAT_INVALID_HANDLE);
    REFUSED(dat_ep_create(second.ia, first.pz, second.a.recv, second.a.request, second.a.connect, &attr, &ep),
            DAT_INVALID_HANDLE);
    REFUSED(dat_ep_create(second.ia, second.pz, second.a.recv, second.a.request, first.a.recv, &attr, &ep),
            DAT_INVALID_HANDLE);

    /* So do connections of another name. */
    OK(dat_ia_open(strcmp(argv[1], "loopback0") ? "loopback0" : "shm0", 8, &async, &stranger));
    OK(dat_evd_create(stranger, 16, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &elsewhere));
    REFUSED(dat_ep_create(second.ia, second.pz, second.a.recv, second.a.request, elsewhere, &attr, &ep),
            DAT_INVALID_HANDLE);
    OK(dat_ia_close(stranger, DAT_CLOSE_ABRUPT_FLAG));

    /* A connection of the second opening is reported to the first one's dispatcher, from its beginning to its end. */
    OK(dat_ep_free(second.a.ep));
    OK(dat_evd_free(second.a.connect));
    second.a.connect = first.a.connect;
    OK(dat_ep_create(second.ia, second.pz, second.a.recv, second.a.request, first.a.connect, &attr, &second.a.ep));
    OK(dat_ep_query(second.a.ep, DAT_EP_FIELD_ALL, &param));
    CHECK(param.connect_evd_handle == first.a.connect && param.ia_handle == second.ia);
    connect_ends(&second, &second.a, &second.b);
    REFUSED(dat_evd_free(first.a.connect), DAT_INVALID_STATE);
    DAT_LMR_TRIPLET to = local(&second.b, 0, 64), from = local(&second.a, 0, 64);
    OK(dat_ep_post_recv(second.b.ep, 1, &to, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_post_send(second.a.ep, 1, &from, cookie(2), DAT_COMPLETION_DEFAULT_FLAG));
    take_dto(second.b.recv, second.b.ep, 1, 64);
    take_dto(second.a.request, second.a.ep, 2, 64);
    OK(dat_ep_disconnect(second.b.ep, DAT_CLOSE_ABRUPT_FLAG));
    take(first.a.connect, &event, DAT_CONNECTION_EVENT_DISCONNECTED);
    CHECK(event.event_data.connect_event_data.ep_handle == second.a.ep);
    take(second.b.connect, &event, DAT_CONNECTION_EVENT_DISCONNECTED);

    /* The first opening goes, and the endpoint of the second stays usable without its events. */
    OK(dat_ep_reset(second.a.ep));
    OK(dat_ep_reset(second.b.ep));
    connect_ends(&second, &second.a, &second.b);
    close_pair(&first);
    OK(dat_ep_disconnect(second.a.ep, DAT_CLOSE_ABRUPT_FLAG));
    take(second.b.connect, &event, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_free(second.a.ep));
    CHECK(dat_evd_dequeue(second.async, &event) != DAT_SUCCESS);
    close_pair(&second);
    return 0;
}
