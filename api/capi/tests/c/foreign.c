/* A provider the application brings along: registered, listed, opened, reached through its table, removed. */
#include "common.h"

static struct {
    DAT_PROVIDER *table;
} ia_object, pz_object;
static DAT_PROVIDER table;
static int closed;

static DAT_RETURN open_it(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *evd, DAT_IA_HANDLE *ia)
{
    ia_object.table = &table;
    *ia = &ia_object;
    return strcmp(name, "brought") == 0 && qlen == 8 ? DAT_SUCCESS : DAT_INTERNAL_ERROR;
}

static DAT_RETURN close_it(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS flags)
{
    CHECK(ia == &ia_object && flags == DAT_CLOSE_GRACEFUL_FLAG);
    closed++;
    return DAT_SUCCESS;
}

static DAT_RETURN make_pz(DAT_IA_HANDLE ia, DAT_PZ_HANDLE *pz)
{
    CHECK(ia == &ia_object);
    pz_object.table = &table;
    *pz = &pz_object;
    return DAT_SUCCESS;
}

static DAT_RETURN free_pz(DAT_PZ_HANDLE pz)
{
    CHECK(pz == &pz_object);
    return DAT_SUCCESS;
}

int main(int argc, char **argv)
{
    DAT_PROVIDER_INFO info = {"brought", 2, 0, DAT_THREADSAFE};
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_PZ_HANDLE pz;
    struct pair pair;
    CHECK(argc == 2);
    table.device_name = "brought";
    table.ia_open_func = open_it;
    table.ia_close_func = close_it;
    table.pz_create_func = make_pz;
    table.pz_free_func = free_pz;
    REFUSED(dat_registry_add_provider(NULL, &info), DAT_INVALID_PARAMETER);
    REFUSED(dat_registry_add_provider(&table, NULL), DAT_INVALID_PARAMETER);
    OK(dat_registry_add_provider(&table, &info));
    REFUSED(dat_registry_add_provider(&table, &info), DAT_PROVIDER_ALREADY_REGISTERED);
    REFUSED_AS(dat_ia_openv("brought", 8, &async, &ia, 1, 2, DAT_THREADSAFE), DAT_PROVIDER_NOT_FOUND,
               DAT_MAJOR_NOT_FOUND);
    REFUSED_AS(dat_ia_openv("brought", 8, &async, &ia, 2, 1, DAT_THREADSAFE), DAT_PROVIDER_NOT_FOUND,
               DAT_MINOR_NOT_FOUND);
    REFUSED_AS(dat_ia_openv("brought", 8, &async, &ia, 2, 0, !DAT_THREADSAFE), DAT_PROVIDER_NOT_FOUND,
               DAT_THREAD_SAFETY_NOT_FOUND);
    OK(dat_ia_open("brought", 8, &async, &ia));
    CHECK((uintptr_t)ia < 65536);
    OK(dat_pz_create(ia, &pz));
    CHECK(pz == &pz_object);
    OK(dat_pz_free(pz));
    REFUSED(dat_registry_remove_provider(&table, &info), DAT_PROVIDER_IN_USE);
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    CHECK(closed == 1);
    OK(dat_registry_remove_provider(&table, &info));
    REFUSED(dat_registry_remove_provider(&table, &info), DAT_INVALID_PARAMETER);

    /* Ours go on working beside it. */
    open_pair(&pair, argv[1]);
    connect_ends(&pair, &pair.a, &pair.b);
    close_pair(&pair);
    return 0;
}
