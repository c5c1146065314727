/* A process forks with an IA open and connected. The child's calls on what it inherited are refused, its own IA works,
 * and the parent does not notice. */
#include "common.h"
#include <sys/wait.h>

static void child(const struct pair *pair, const char *name)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_HANDLE made;
    DAT_EP_ATTR attr;
    DAT_LMR_TRIPLET iov = local(&pair->a, 0, 64);
    struct pair own;
    attributes(&attr);
    /* Any error, but no crash. */
    CHECK(dat_pz_create(pair->ia, &made) != DAT_SUCCESS);
    CHECK(dat_ep_create(pair->ia, pair->pz, pair->a.recv, pair->a.request, pair->a.connect, &attr, &made) != DAT_SUCCESS);
    CHECK(dat_ep_post_send(pair->a.ep, 1, &iov, cookie(1), DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS);
    CHECK(dat_ep_post_recv(pair->a.ep, 1, &iov, cookie(1), DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS);
    CHECK(dat_evd_dequeue(pair->a.recv, &event) != DAT_SUCCESS);
    CHECK(dat_evd_wait(pair->a.recv, 1000, 1, &event, &more) != DAT_SUCCESS);
    dat_ep_disconnect(pair->a.ep, DAT_CLOSE_ABRUPT_FLAG);
    dat_ep_free(pair->b.ep);
    dat_ia_close(pair->ia, DAT_CLOSE_ABRUPT_FLAG);
    /* A child may use the library for itself. */
    open_pair(&own, name);
    connect_ends(&own, &own.a, &own.b);
    close_pair(&own);
}

static void exchange(struct pair *pair, int number)
{
    DAT_LMR_TRIPLET iov = local(&pair->b, 0, 64);
    OK(dat_ep_post_recv(pair->b.ep, 1, &iov, cookie(number), DAT_COMPLETION_DEFAULT_FLAG));
    iov = local(&pair->a, 0, 64);
    OK(dat_ep_post_send(pair->a.ep, 1, &iov, cookie(number + 1), DAT_COMPLETION_DEFAULT_FLAG));
    take_dto(pair->b.recv, pair->b.ep, number, 64);
    take_dto(pair->a.request, pair->a.ep, number + 1, 64);
}

int main(int argc, char **argv)
{
    struct pair pair;
    int status;
    CHECK(argc == 2);
    open_pair(&pair, argv[1]);
    connect_ends(&pair, &pair.a, &pair.b);
    for (int i = 0; i < 3; i++) {
        exchange(&pair, i * 2);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            alarm(30);
            child(&pair, argv[1]);
            /* Once by way of the functions that run at a program's end. */
            if (i) _exit(0);
            exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        if (status != 0) FAIL("child %d ended with status %#x", i, status);
    }
    exchange(&pair, 100);
    close_pair(&pair);
    return 0;
}
