/* check MAX_BYTES: transfers between all ranks of an MPI, each byte verified. Rank 0 prints "ok NAME" or "FAILED NAME" for
 * each check, and at the end "checks: N ok, M failed". Exit status 1 when a check failed.
 * check --speed: rank 0 prints "latency BYTES MICROSECONDS" and "bandwidth BYTES MEGABYTES/S" for the pair of ranks 0 and
 * 1. Each is the median of several batches. */
#include "abi.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 20
#define BURST 64
#define BATCHES 5

static int rank, ranks, passed, failed;

static unsigned char byte_at(size_t i, int seed)
{
    return (unsigned char)((i * 2654435761u >> 13) + (unsigned)seed * 59u);
}

static unsigned char *filled(size_t n, int seed)
{
    unsigned char *bytes = malloc(n + 1);
    if (!bytes) exit(2);
    for (size_t i = 0; i < n; i++) bytes[i] = byte_at(i, seed);
    return bytes;
}

static int differs(const unsigned char *bytes, size_t n, int seed)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != byte_at(i, seed)) return 1;
    return 0;
}

/* All ranks agree on a check's result. */
static void report(const char *name, size_t n, int bad)
{
    int all = 0;
    MPI_Allreduce(&bad, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (all) failed++;
    else passed++;
    if (rank == 0) printf("%s %s %zu\n", all ? "FAILED" : "ok", name, n), fflush(stdout);
}

/* A message around the ring of ranks: everybody sends to the next and receives from the one before. */
static void ring(size_t n)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, bad = 0;
    int rounds = n < 262144 ? ROUNDS : ROUNDS / 5;
    for (int round = 0; round < rounds && !bad; round++) {
        unsigned char *out = filled(n, rank + round), *in = filled(n, 255);
        MPI_Request both[2];
        MPI_Irecv(in, (int)n, MPI_BYTE, before, 1, MPI_COMM_WORLD, &both[0]);
        MPI_Isend(out, (int)n, MPI_BYTE, next, 1, MPI_COMM_WORLD, &both[1]);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        bad = differs(in, n, before + round) || differs(out, n, rank + round);
        free(out);
        free(in);
    }
    report("ring", n, bad);
}

/* Many messages under way at once, matched by tag in the reverse order. */
static void burst(size_t n)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, bad = 0;
    unsigned char *out[BURST], *in[BURST];
    MPI_Request all[2 * BURST];
    for (int i = 0; i < BURST; i++) out[i] = filled(n, rank + i), in[i] = filled(n, 255);
    for (int i = 0; i < BURST; i++) MPI_Irecv(in[i], (int)n, MPI_BYTE, before, i, MPI_COMM_WORLD, &all[i]);
    for (int i = BURST - 1; i >= 0; i--)
        MPI_Isend(out[i], (int)n, MPI_BYTE, next, i, MPI_COMM_WORLD, &all[BURST + i]);
    MPI_Waitall(2 * BURST, all, MPI_STATUSES_IGNORE);
    for (int i = 0; i < BURST; i++) {
        bad |= differs(in[i], n, before + i);
        free(out[i]);
        free(in[i]);
    }
    report("burst", n, bad);
}

/* The message is there long before its receive. */
static void unexpected(size_t n)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    unsigned char *out = filled(n, rank), *in = filled(n, 255);
    MPI_Request sent;
    MPI_Isend(out, (int)n, MPI_BYTE, next, 2, MPI_COMM_WORLD, &sent);
    for (double start = MPI_Wtime(); MPI_Wtime() - start < 0.05;) {}
    MPI_Recv(in, (int)n, MPI_BYTE, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(1, &sent, MPI_STATUSES_IGNORE);
    report("unexpected", n, differs(in, n, before));
    free(out);
    free(in);
}

static void collectives(int n)
{
    double *in = calloc(n, sizeof *in), *out = calloc(n, sizeof *out);
    int *to = calloc(ranks * n, sizeof *to), *from = calloc(ranks * n, sizeof *from), bad = 0;
    if (!in || !out || !to || !from) exit(2);
    for (int i = 0; i < n; i++) in[i] = rank + 2.0 * i;
    MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) bad |= out[i] != 2.0 * i * ranks + ranks * (ranks - 1) / 2.0;
    report("allreduce", n, bad);
    for (int i = 0; i < n; i++) in[i] = rank == ranks - 1 ? i : -1;
    MPI_Bcast(in, n, MPI_DOUBLE, ranks - 1, MPI_COMM_WORLD);
    bad = 0;
    for (int i = 0; i < n; i++) bad |= in[i] != i;
    report("broadcast", n, bad);
    for (int i = 0; i < ranks * n; i++) to[i] = rank * ranks * n + i;
    MPI_Alltoall(to, n, MPI_INT, from, n, MPI_INT, MPI_COMM_WORLD);
    bad = 0;
    for (int peer = 0; peer < ranks; peer++)
        for (int i = 0; i < n; i++) bad |= from[peer * n + i] != peer * ranks * n + rank * n + i;
    report("all to all", n, bad);
    free(in), free(out), free(to), free(from);
}

/* Puts into the next rank's memory and gets from it. */
static void one_sided(size_t n)
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    unsigned char *window = filled(2 * n, rank + 7), *out = filled(n, rank), *in = filled(n, 255);
    MPI_Win win;
    MPI_Win_create(window, (MPI_Aint)(2 * n), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(out, (int)n, MPI_BYTE, next, (MPI_Aint)n, (int)n, MPI_BYTE, win);
    MPI_Get(in, (int)n, MPI_BYTE, next, 0, (int)n, MPI_BYTE, win);
    MPI_Win_fence(0, win);
    report("put and get", n, differs(window + n, n, before) || differs(in, n, next + 7));
    MPI_Win_free(&win);
    free(window), free(out), free(in);
}

static int ascending(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static double median(double *values)
{
    qsort(values, BATCHES, sizeof *values, ascending);
    return values[BATCHES / 2];
}

/* Half a round trip, and messages of one direction, between ranks 0 and 1. The first batch warms up. */
static void speed(size_t n)
{
    unsigned char *bytes = filled(n, 1);
    int rounds = n < 65536 ? 2000 : 100, peer = 1 - rank;
    double latency[BATCHES], bandwidth[BATCHES];
    for (int batch = -1; rank < 2 && batch < BATCHES; batch++) {
        double start = MPI_Wtime();
        for (int i = 0; i < rounds; i++) {
            if (rank == 0) MPI_Send(bytes, (int)n, MPI_BYTE, peer, 3, MPI_COMM_WORLD);
            MPI_Recv(bytes, (int)n, MPI_BYTE, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1) MPI_Send(bytes, (int)n, MPI_BYTE, peer, 3, MPI_COMM_WORLD);
        }
        double middle = MPI_Wtime();
        for (int i = 0; i < rounds && rank == 0; i++) MPI_Send(bytes, (int)n, MPI_BYTE, peer, 4, MPI_COMM_WORLD);
        for (int i = 0; i < rounds && rank == 1; i++)
            MPI_Recv(bytes, (int)n, MPI_BYTE, peer, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        char done = 0;
        if (rank == 1) MPI_Send(&done, 1, MPI_BYTE, peer, 5, MPI_COMM_WORLD);
        else MPI_Recv(&done, 1, MPI_BYTE, peer, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double end = MPI_Wtime();
        if (batch < 0) continue;
        latency[batch] = (middle - start) * 1e6 / rounds / 2;
        bandwidth[batch] = (double)n * rounds / (end - middle) / 1e6;
    }
    if (rank == 0) {
        printf("latency %zu %.2f\n", n, median(latency));
        printf("bandwidth %zu %.0f\n", n, median(bandwidth)), fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(bytes);
}

static void checks(size_t most)
{
    static const size_t sizes[] = {0, 1, 8, 64, 1000, 4096, 16000, 32768, 65536, 262144, 1048576, 4194304};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] <= most) ring(sizes[i]);
    burst(256);
    burst(20000);
    unexpected(2000);
    unexpected(100000);
    collectives(1);
    collectives(1000);
    collectives(20000);
    one_sided(4096);
    one_sided(200000);
    if (rank == 0) printf("checks: %d ok, %d failed\n", passed, failed), fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "65536";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (strcmp(what, "--speed")) checks(strtoull(what, NULL, 0));
    else speed(8), speed(4096), speed(65536), speed(1048576);
    MPI_Finalize();
    if (rank == 0) puts("finalized");
    return failed != 0;
}
