/* Intel MPI uses uDAPL only where the limit of locked memory is unlimited, and asks getrlimit for it. Software providers
 * lock no memory. Preloaded, this answers the one question. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/resource.h>

int getrlimit(__rlimit_resource_t which, struct rlimit *limit)
{
    if (which == RLIMIT_MEMLOCK) {
        limit->rlim_cur = limit->rlim_max = RLIM_INFINITY;
        return 0;
    }
    typedef int call(__rlimit_resource_t, struct rlimit *);
    call *next = (call *)dlsym(RTLD_NEXT, "getrlimit");
    return next ? next(which, limit) : -1;
}
