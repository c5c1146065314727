/* Notification objects: waiting, agents, the magic handles for dispatchers of asynchronous errors. */
#include "common.h"

static volatile int called;
static DAT_EVD_HANDLE volatile called_with;

static void agent(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    CHECK(data == (DAT_PVOID)&called);
    called_with = evd;
    __sync_fetch_and_add(&called, 1);
}

static void soon(int count)
{
    for (int i = 0; i < 10000 && called < count; i++) usleep(1000);
    CHECK(called == count);
}

static void post(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    OK(dat_evd_post_se(evd, &event));
}

int main(int argc, char **argv)
{
    struct pair pair;
    DAT_CNO_HANDLE cno, with_agent;
    DAT_EVD_HANDLE evd, hint = NULL;
    DAT_EVENT event;
    DAT_CNO_PARAM param;
    DAT_OS_WAIT_PROXY_AGENT none = {NULL, NULL}, ours = {(DAT_PVOID)&called, agent};
    CHECK(argc == 2);
    open_pair(&pair, argv[1]);

    OK(dat_cno_create(pair.ia, none, &cno));
    OK(dat_evd_create(pair.ia, 16, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
    CHECK(dat_cno_wait(cno, 20000, &hint) != DAT_SUCCESS && hint == DAT_HANDLE_NULL);
    post(evd);
    OK(dat_cno_wait(cno, SOON, &hint));
    CHECK(hint == evd);
    OK(dat_evd_dequeue(evd, &event));
    REFUSED_AS(dat_cno_free(cno), DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);

    OK(dat_cno_create(pair.ia, ours, &with_agent));
    OK(dat_cno_query(with_agent, DAT_CNO_FIELD_ALL, &param));
    CHECK(param.proxy_type == DAT_PROXY_TYPE_AGENT && param.proxy.agent.proxy_agent_func == agent);
    OK(dat_evd_modify_cno(evd, with_agent));
    post(evd);
    soon(1);
    CHECK(called_with == evd);
    OK(dat_evd_dequeue(evd, &event));
    post(evd);
    usleep(50000);
    CHECK(called == 1);
    OK(dat_cno_query(with_agent, DAT_CNO_FIELD_ALL, &param));
    CHECK(param.proxy_type == DAT_PROXY_TYPE_NONE);
    OK(dat_cno_wait(with_agent, SOON, &hint));
    OK(dat_cno_modify_agent(with_agent, ours));
    post(evd);
    soon(2);
    OK(dat_evd_free(evd));
    OK(dat_cno_free(cno));

    /* A second IA of this adapter shares the first one's dispatcher, or says that somebody has one. */
    DAT_IA_HANDLE second;
    DAT_EVD_HANDLE async = pair.async, known;
    OK(dat_ia_open(argv[1], 0, &async, &second));
    CHECK(async == pair.async);
    OK(dat_ia_query(second, &known, 0, NULL, 0, NULL));
    CHECK(known == pair.async);
    OK(dat_ia_close(second, DAT_CLOSE_GRACEFUL_FLAG));
    async = DAT_EVD_ASYNC_EXISTS;
    OK(dat_ia_open(argv[1], 0, &async, &second));
    CHECK(async == DAT_EVD_OUT_OF_SCOPE);
    OK(dat_ia_query(second, &known, 0, NULL, 0, NULL));
    CHECK(known == DAT_EVD_OUT_OF_SCOPE);
    OK(dat_ia_close(second, DAT_CLOSE_GRACEFUL_FLAG));
    async = pair.a.recv;
    REFUSED(dat_ia_open(argv[1], 8, &async, &second), DAT_INVALID_HANDLE);
    DAT_EVD_PARAM evd_param;
    OK(dat_evd_query(pair.async, DAT_EVD_FIELD_ALL, &evd_param));
    CHECK(evd_param.evd_flags == DAT_EVD_ASYNC_FLAG);
    REFUSED(dat_evd_free(pair.async), DAT_INVALID_STATE);
    close_pair(&pair);
    return 0;
}
