/* Copyright: the baremetal.dgx authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A simulated libnccl.so.2: what nccl_all_reduce uses, for ranks on this machine. It needs the simulated libcuda.
 *
 * The sums are real: ranks meet in a file of shared memory that the unique id names. Only the sum of floats is
 * taken, all else is refused. The real library returns before the work is done; this one waits inside the call.
 * Times come from the simulated clock of libcuda: nothing here is a measurement.
 *
 * Keys (of a GPU unless noted):
 *   nccl.busbw_gbps 478    bus bandwidth; the slowest rank decides for all
 *   nccl.flip INDEX BIT    an element of this GPU's result has a bit turned
 *   nccl.say TEXT          a line on standard output when the group is joined, as with NCCL_DEBUG
 *   nccl.async_error CODE  what ncclCommGetAsyncError says
 *   hang NAME              the function that never returns; the others wait for it
 *   ret.NAME CODE          what a function returns
 *   nccl.version (node)    22703
 */
#define _GNU_SOURCE
#include "state.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, CUDA_ERROR = 1, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };
enum { FLOAT32 = 7, SUM = 0 };
#define RANKS 16
#define ID_NAME "/simulated-nccl-"
#define PART (1u << 18) /* floats that a rank shows the others at a time */

struct id {
    char path[128];
};
struct shared {
    atomic_int joined, arrived;
    atomic_uint round;
    double rate[RANKS];
    float part[RANKS][PART];
};
struct comm {
    struct shared *shared;
    int rank, ranks, gpu;
    atomic_int aborted;
};

static int (*device)(void);
static void (*advance)(double);
static void (*hang)(const char *);
static int (*owns)(const void *, size_t);
static __thread char last_error[256];

static int cuda(void)
{
    void *driver = device ? NULL : dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver) {
        *(void **)&device = dlsym(driver, "simulated_device");
        *(void **)&advance = dlsym(driver, "simulated_advance");
        *(void **)&hang = dlsym(driver, "simulated_hang");
        *(void **)&owns = dlsym(driver, "simulated_owns");
    }
    return device && advance && hang && owns;
}

static int fail(int code, const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
    return code;
}

/* What stands before a function of a GPU: hangs and forced codes. */
static int before(const char *name)
{
    if (!cuda() || device() < 0) return fail(CUDA_ERROR, "no CUDA context is current (simulated)");
    hang(name);
    int code = state_return(device(), name, SUCCESS);
    return code ? fail(code, "forced by the state of the simulated hardware") : SUCCESS;
}

/* Wait for all ranks; nonzero when this one was asked to give up. */
static int meet(struct comm *comm)
{
    struct shared *shared = comm->shared;
    unsigned round = atomic_load(&shared->round);
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == comm->ranks) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->round, 1);
        return 0;
    }
    while (atomic_load(&shared->round) == round) {
        if (atomic_load(&comm->aborted)) return 1;
        usleep(100);
    }
    return 0;
}

EXPORT int ncclGetVersion(int *version)
{
    if (!version) return INVALID_ARGUMENT;
    *version = (int)state_int(NODE, "nccl.version", 22703);
    return SUCCESS;
}

EXPORT const char *ncclGetErrorString(int code)
{
    static const char *const TEXTS[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                        "invalid argument", "invalid usage", "remote process exited or there was a "
                                        "network error", "NCCL operation in progress"};
    return code >= 0 && code < 8 ? TEXTS[code] : "unknown result code";
}

EXPORT const char *ncclGetLastError(struct comm *comm)
{
    (void)comm;
    return last_error;
}

EXPORT int ncclGetUniqueId(struct id *id)
{
    int code = (int)state_int(NODE, "ret.ncclGetUniqueId", SUCCESS);
    if (code) return fail(code, "forced by the state of the simulated hardware");
    memset(id, 0, sizeof *id);
    /* A run that breaks leaves the file behind: where the runner sets TMPDIR, it goes with that. */
    const char *folder = getenv("TMPDIR");
    int length = snprintf(id->path, sizeof id->path, "%s" ID_NAME "XXXXXX", folder && *folder ? folder : "/dev/shm");
    if (length >= (int)sizeof id->path) return fail(SYSTEM_ERROR, "TMPDIR is too long");
    int file = mkstemp(id->path);
    if (file < 0 || ftruncate(file, sizeof(struct shared))) return fail(SYSTEM_ERROR, "no room for shared memory");
    close(file);
    return SUCCESS;
}

EXPORT int ncclCommInitRank(struct comm **out, int ranks, struct id id, int rank)
{
    int code = before(__func__);
    if (code) return code;
    if (ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks) return fail(INVALID_ARGUMENT, "rank out of range");
    if (!memchr(id.path, 0, sizeof id.path) || !strstr(id.path, ID_NAME)) return fail(INVALID_USAGE, "not an id of this library");
    int file = open(id.path, O_RDWR | O_CLOEXEC);
    struct comm *comm = calloc(1, sizeof *comm);
    if (!comm || file < 0) return fail(SYSTEM_ERROR, "no such group of ranks");
    comm->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (comm->shared == MAP_FAILED) return fail(SYSTEM_ERROR, "shared memory cannot be mapped");
    comm->rank = rank;
    comm->ranks = ranks;
    comm->gpu = device();
    comm->shared->rate[rank] = state_real(comm->gpu, "nccl.busbw_gbps", 478);
    /* No other process needs the name once all have it open. */
    if (atomic_fetch_add(&comm->shared->joined, 1) + 1 == ranks) unlink(id.path);
    if (meet(comm)) return fail(REMOTE_ERROR, "given up");
    const char *words = state_text(comm->gpu, "nccl.say", "");
    if (*words) {
        printf("%s\n", words);
        fflush(stdout);
    }
    *out = comm;
    return SUCCESS;
}

EXPORT int ncclAllReduce(const float *send, float *recv, size_t count, int type, int op, struct comm *comm,
                         void *stream)
{
    int code = before(__func__);
    if (code) return code;
    if (!comm || type != FLOAT32 || op != SUM || stream) return fail(INVALID_ARGUMENT, "only sums of floats");
    if (!owns(send, 4 * count) || !owns(recv, 4 * count)) return fail(INVALID_ARGUMENT, "no memory of a GPU");
    struct shared *shared = comm->shared;
    for (size_t done = 0; done < count; done += PART) {
        size_t now = count - done < PART ? count - done : PART;
        memcpy(shared->part[comm->rank], send + done, 4 * now);
        if (meet(comm)) return fail(REMOTE_ERROR, "given up");
        for (size_t i = 0; i < now; i++) {
            float sum = 0;
            for (int rank = 0; rank < comm->ranks; rank++) sum += shared->part[rank][i];
            recv[done + i] = sum;
        }
        if (meet(comm)) return fail(REMOTE_ERROR, "given up");
    }
    unsigned long long index;
    unsigned bit;
    if (sscanf(state_text(comm->gpu, "nccl.flip", ""), "%llu %u", &index, &bit) == 2 && index < count)
        ((uint32_t *)recv)[index] ^= 1u << (bit & 31);
    double slowest = shared->rate[0];
    for (int rank = 1; rank < comm->ranks; rank++)
        if (shared->rate[rank] < slowest) slowest = shared->rate[rank];
    advance(20 + 4.0 * (double)count * 2 * (comm->ranks - 1) / comm->ranks / (slowest * 1e3));
    return SUCCESS;
}

EXPORT int ncclCommGetAsyncError(struct comm *comm, int *code)
{
    if (!comm || !code) return INVALID_ARGUMENT;
    *code = (int)state_int(comm->gpu, "nccl.async_error", SUCCESS);
    return SUCCESS;
}

EXPORT int ncclCommAbort(struct comm *comm)
{
    if (!comm) return INVALID_ARGUMENT;
    atomic_store(&comm->aborted, 1);
    return SUCCESS;
}

EXPORT int ncclCommDestroy(struct comm *comm)
{
    return comm ? SUCCESS : INVALID_ARGUMENT;
}
