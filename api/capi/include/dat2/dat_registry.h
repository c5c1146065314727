/*
 * dat_registry.h - the registry: providers that a program brings along, and what a provider library has.
 */
#ifndef _DAT_REGISTRY_H_
#define _DAT_REGISTRY_H_

#include <dat2/udat_redirection.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A provider of the program itself. Both stay where they are until it is removed. */
DAT_RETURN dat_registry_add_provider(const DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *info);
DAT_RETURN dat_registry_remove_provider(const DAT_PROVIDER *provider, const DAT_PROVIDER_INFO *info);

/* What a registry looks for in a provider library: called after loading and before unloading. */
#define DAT_PROVIDER_INIT_FUNC_NAME dat_provider_init
#define DAT_PROVIDER_FINI_FUNC_NAME dat_provider_fini
#define DAT_PROVIDER_INIT_FUNC_STR "dat_provider_init"
#define DAT_PROVIDER_FINI_FUNC_STR "dat_provider_fini"
typedef void (*DAT_PROVIDER_INIT_FUNC)(const DAT_PROVIDER_INFO *, const char *);
typedef void (*DAT_PROVIDER_FINI_FUNC)(const DAT_PROVIDER_INFO *);

/* Whether two adapters are the same device. */
typedef enum dat_ha_relationship {
    DAT_HA_FALSE,
    DAT_HA_TRUE,
    DAT_HA_UNKNOWN,
    DAT_HA_CONFLICTING,
    DAT_HA_EXTENSION_BASE
} DAT_HA_RELATIONSHIP;

#ifdef __cplusplus
}
#endif

#endif
