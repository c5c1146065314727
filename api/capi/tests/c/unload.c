/* The library is opened and closed by name again and again, once with an IA left open and its thread running. */
#include "common.h"
#include <dlfcn.h>

typedef DAT_RETURN (*openv)(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *, DAT_UINT32, DAT_UINT32,
                            DAT_BOOLEAN);
typedef DAT_RETURN (*closes)(DAT_IA_HANDLE, DAT_CLOSE_FLAGS);

static void *opens(void *name)
{
    for (int i = 0; i < 20; i++) {
        void *library = dlopen("libdat2.so.2", RTLD_NOW | RTLD_LOCAL);
        if (!library) FAIL("%s", dlerror());
        openv open = (openv)dlsym(library, "dat_ia_openv");
        closes close = (closes)dlsym(library, "dat_ia_close");
        DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
        DAT_IA_HANDLE ia;
        CHECK(open && close);
        DAT_RETURN got = open((char *)name, 8, &async, &ia, 2, 0, DAT_TRUE);
        if (got != DAT_SUCCESS) FAIL("open %d: %#x", i, got);
        /* Some forget. */
        if (i % 5 != 4) CHECK(close(ia, DAT_CLOSE_ABRUPT_FLAG) == DAT_SUCCESS);
        CHECK(dlclose(library) == 0);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    CHECK(argc == 2);
    opens(argv[1]);
    /* What a thread leaves behind ends after the library was closed. */
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, opens, argv[1]) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    usleep(100000);
    return 0;
}
