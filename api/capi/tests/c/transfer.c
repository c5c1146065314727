/* Sends, writes and reads by every path; a graceful way down. Argument: the IA's name. */
#include "common.h"

int main(int argc, char **argv)
{
    struct pair pair;
    DAT_EVENT event;
    DAT_EP_STATE state;
    DAT_BOOLEAN recv_idle, request_idle;
    DAT_LMR_TRIPLET two[2];
    CHECK(argc == 2);
    open_pair(&pair, argv[1]);
    connect_ends(&pair, &pair.a, &pair.b);

    memset(pair.a.memory, 'a', 100);
    two[0] = local(&pair.b, 0, 60);
    two[1] = local(&pair.b, 1000, 60);
    OK(dat_ep_post_recv(pair.b.ep, 2, two, cookie(7), DAT_COMPLETION_DEFAULT_FLAG));
    two[0] = local(&pair.a, 0, 100);
    OK(dat_ep_post_send(pair.a.ep, 1, two, cookie(8), DAT_COMPLETION_DEFAULT_FLAG));
    take_dto(pair.b.recv, pair.b.ep, 7, 100);
    take_dto(pair.a.request, pair.a.ep, 8, 100);
    CHECK(pair.b.memory[0] == 'a' && pair.b.memory[59] == 'a' && pair.b.memory[60] == 0);
    CHECK(pair.b.memory[1000] == 'a' && pair.b.memory[1039] == 'a' && pair.b.memory[1040] == 0);

    memset(pair.a.memory, 'w', 5000);
    DAT_RMR_TRIPLET target = remote(&pair.b, 8192, 5000);
    two[0] = local(&pair.a, 0, 5000);
    OK(dat_ep_post_rdma_write(pair.a.ep, 1, two, cookie(9), &target, DAT_COMPLETION_DEFAULT_FLAG));
    take_dto(pair.a.request, pair.a.ep, 9, 5000);
    CHECK(pair.b.memory[8192] == 'w' && pair.b.memory[8192 + 4999] == 'w' && pair.b.memory[8192 + 5000] == 0);

    DAT_RMR_TRIPLET source = remote(&pair.b, 8192, 3000);
    two[0] = local(&pair.a, 20000, 3000);
    OK(dat_ep_post_rdma_read(pair.a.ep, 1, two, cookie(10), &source, DAT_COMPLETION_DEFAULT_FLAG));
    take_dto(pair.a.request, pair.a.ep, 10, 3000);
    CHECK(pair.a.memory[20000] == 'w' && pair.a.memory[22999] == 'w');

    REFUSED(dat_evd_dequeue(pair.a.request, &event), DAT_QUEUE_EMPTY);
    CHECK(dat_evd_dequeue(pair.a.request, &event) == DAT_QUEUE_EMPTY);
    OK(dat_ep_disconnect(pair.a.ep, DAT_CLOSE_GRACEFUL_FLAG));
    take(pair.a.connect, &event, DAT_CONNECTION_EVENT_DISCONNECTED);
    take(pair.b.connect, &event, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_get_status(pair.a.ep, &state, &recv_idle, &request_idle));
    CHECK(state == DAT_EP_STATE_DISCONNECTED && recv_idle && request_idle);
    OK(dat_ep_reset(pair.a.ep));
    OK(dat_ep_reset(pair.b.ep));
    connect_ends(&pair, &pair.a, &pair.b);
    REFUSED_AS(dat_ia_close(pair.ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_STATE, DAT_INVALID_STATE_IA_IN_USE);

    for (struct end *end = &pair.a;; end = &pair.b) {
        OK(dat_ep_free(end->ep));
        OK(dat_lmr_free(end->lmr));
        OK(dat_evd_free(end->recv));
        OK(dat_evd_free(end->request));
        OK(dat_evd_free(end->connect));
        if (end == &pair.b) break;
    }
    OK(dat_psp_free(pair.psp));
    OK(dat_evd_free(pair.requests));
    OK(dat_pz_free(pair.pz));
    OK(dat_ia_close(pair.ia, DAT_CLOSE_GRACEFUL_FLAG));
    REFUSED_AS(dat_ia_close(pair.ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
    return 0;
}
