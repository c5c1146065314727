/* Opens each name given and lists what there is: `NAME=CODE` in hexadecimal, then `*NAME` for each entry. */
#include "common.h"

int main(int argc, char **argv)
{
    static DAT_PROVIDER_INFO infos[256];
    DAT_PROVIDER_INFO *list[256];
    DAT_COUNT count = 0;
    for (int i = 1; i < argc; i++) {
        DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
        DAT_IA_HANDLE ia;
        DAT_RETURN result = dat_ia_open(argv[i], 8, &async, &ia);
        printf("%s=%x\n", argv[i], result);
        if (result == DAT_SUCCESS) OK(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
    }
    for (int i = 0; i < 256; i++) list[i] = &infos[i];
    REFUSED(dat_registry_list_providers(0, &count, list), DAT_INVALID_PARAMETER);
    CHECK(count > 0);
    REFUSED(dat_registry_list_providers(256, NULL, list), DAT_INVALID_PARAMETER);
    REFUSED(dat_registry_list_providers(256, &count, NULL), DAT_INVALID_PARAMETER);
    OK(dat_registry_list_providers(256, &count, list));
    for (int i = 0; i < count; i++) {
        CHECK(infos[i].dapl_version_major == 2);
        printf("*%s\n", infos[i].ia_name);
    }
    return 0;
}
