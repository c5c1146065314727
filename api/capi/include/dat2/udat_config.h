/*
 * udat_config.h - version and options of the interface.
 */
#ifndef _UDAT_CONFIG_H_
#define _UDAT_CONFIG_H_

/* The version that dat_ia_open asks for. */
#define DAT_VERSION_MAJOR 2
#define DAT_VERSION_MINOR 0

/* Whether dat_ia_open asks for a thread-safe provider. Ours are thread-safe and answer to both. */
#ifndef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE
#endif

/* Extensions are always declared. */
#ifndef DAT_EXTENSIONS
#define DAT_EXTENSIONS 1
#endif

#endif
