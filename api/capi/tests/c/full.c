/* No handle is left. The object that got none is gone, so its IA still closes in order. */
#include "common.h"

/* The number of cells that the library has. */
enum { CELLS = 1 << 20 };

static DAT_PZ_HANDLE zones[CELLS];

int main(int argc, char **argv)
{
    DAT_IA_HANDLE ia, refused;
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL, other = DAT_HANDLE_NULL;
    DAT_RETURN code = DAT_SUCCESS;
    size_t made = 0;
    CHECK(argc == 2);
    OK(dat_ia_open(argv[1], 8, &async, &ia));
    while (made < CELLS && (code = dat_pz_create(ia, &zones[made])) == DAT_SUCCESS)
        made++;
    CHECK(made == CELLS - 2);
    CHECK(DAT_GET_TYPE(code) == DAT_INSUFFICIENT_RESOURCES);

    /* Neither the IA nor, with one free cell, its dispatcher gets a handle. */
    REFUSED(dat_ia_open(argv[1], 8, &other, &refused), DAT_INSUFFICIENT_RESOURCES);
    OK(dat_pz_free(zones[--made]));
    other = DAT_HANDLE_NULL;
    REFUSED(dat_ia_open(argv[1], 8, &other, &refused), DAT_INSUFFICIENT_RESOURCES);
    OK(dat_pz_create(ia, &zones[made++]));

    while (made > 0)
        OK(dat_pz_free(zones[--made]));
    OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    return 0;
}
