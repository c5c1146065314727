/*
 * dat_platform_specific.h - the basic types, for Linux.
 */
#ifndef _DAT_PLATFORM_SPECIFIC_H_
#define _DAT_PLATFORM_SPECIFIC_H_

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Alignment in bytes at which buffers are fastest, unless a program sets another. */
#ifndef DAT_OPTIMAL_ALIGNMENT
#define DAT_OPTIMAL_ALIGNMENT 256
#endif

/* Old C++ headers hide this macro. */
#ifndef UINT64_C
#define UINT64_C(c) c##UL
#endif

typedef uint32_t DAT_UINT32;
typedef uint64_t DAT_UINT64;
__extension__ typedef unsigned long long DAT_UVERYLONG;
typedef void *DAT_PVOID;
typedef int DAT_COUNT;
typedef DAT_UINT64 DAT_PADDR;
typedef int DAT_FD;

typedef struct sockaddr DAT_SOCK_ADDR;
typedef struct sockaddr_in6 DAT_SOCK_ADDR6;
#define DAT_AF_INET AF_INET
#define DAT_AF_INET6 AF_INET6

/* What socket(2) takes: family, type and protocol of the address of a common service point. */
typedef struct dat_comm {
    int domain;
    int type;
    int protocol;
} DAT_COMM;

/* An IA handle as a number and back. IA handles are small numbers; all other handles are addresses. */
#define DAT_IA_HANDLE_TO_UL(a) ((unsigned long) (a))
#define DAT_UL_TO_IA_HANDLE(a) ((DAT_IA_HANDLE) (a))

/* Calling convention and linkage: those of the system. */
#define DAT_API
#define DAT_EXPORT extern

/* Direction of a parameter, for prototypes of programs. These headers do not use them. */
#ifndef IN
#define IN
#endif
#ifndef OUT
#define OUT
#endif
#ifndef INOUT
#define INOUT
#endif

#endif
