/* For programs written for uDAPL 1.2: its names over uDAPL 2.0. */
#ifndef UDAPL12_UDAT_H
#define UDAPL12_UDAT_H
#include <dat2/udat.h>
#define max_mtu_size max_message_size
#define target_address virtual_address
/* 2.0 has no padding in triplets. Programs set it to 0 before the length. */
#define pad segment_length
/* 2.0 added a parameter: addresses are virtual ones. */
#define dat_lmr_create(ia, type, region, length, pz, privileges, lmr, local, remote, size, at) \
    dat_lmr_create(ia, type, region, length, pz, privileges, DAT_VA_TYPE_VA, lmr, local, remote, size, at)
#endif
