/* Copyright: the baremetal.dgx authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A simulated libcuda.so.1 for machines without a GPU: what gpu_burn uses of the driver API, no more.
 *
 * Memory of a device is memory of the process. Kernels are looked up by name in the PTX text that was
 * loaded and computed here with the element functions of the kernels' own source. Anything unknown is
 * refused with the driver's own error code. Times come from a simulated clock for each device, which
 * every operation moves by what a real H100 takes; nothing here is a measurement.
 *
 * Keys (of a GPU unless noted), with what is there when they are not:
 *   slots (node) 8           absent, pci, name     cuda.memory_mib 512 (memory of the process!)
 *   hbm_gbps 3000            h2d_gbps, d2h_gbps 55     peer_gbps 385, peer_gbps.TO
 *   pace_ms 20               each wait lasts so long, so that eight simulated GPUs leave a laptop alone
 *   hang NAME                the driver function or kernel that never returns
 *   lost 1                   every call on the GPU fails, as after Xid 79
 *   ret.NAME CODE            what a function returns
 *   memory_flip WORD BIT     a memory cell that does not keep a bit
 *   h2d_flip, peer_flip TO   a bit goes wrong on the way (of asynchronous copies)
 */
#define _GNU_SOURCE
#include "state.h"

#include "../../plugins/module_utils/_gpu/kernels.cu"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, INVALID_PTX = 218, INVALID_HANDLE = 400, NOT_FOUND = 500, PEER_ENABLED = 704, UNKNOWN = 999
};
#define DEVICES 16
#define PTX_VERSION ".version 8.0"

struct allocation {
    char *at;
    size_t size;
    int device;
    struct allocation *next;
};
struct device {
    int number;
    size_t used;
    double now_us;
    unsigned peers;
};
struct event {
    double at_us;
};
struct kernel {
    const char *name;
    int (*compute)(int gpu, void **arguments, const unsigned *grid, unsigned block, double *bytes);
};

static struct device devices[DEVICES];
static struct allocation *allocations;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialized;
static __thread struct device *current;
/* Of a DGX H100, as in nvml.c. */
static const char *const ADDRESSES[8] = {"1b:00.0", "43:00.0", "52:00.0", "61:00.0",
                                         "9d:00.0", "c3:00.0", "d1:00.0", "df:00.0"};

static int count_devices(void)
{
    long long count = state_int(NODE, "slots", 8);
    return count < 0 ? 0 : count > DEVICES ? DEVICES : (int)count;
}

static void hang(int gpu, const char *name)
{
    while (!strcmp(state_text(gpu, "hang", ""), name)) usleep(50000);
}

/* What stands before every function: forced codes, hangs, a lost GPU. */
static int before(const char *name)
{
    int gpu = current ? current->number : NODE;
    hang(gpu, name);
    if (gpu != NODE && state_int(gpu, "lost", 0)) return UNKNOWN;
    return state_return(gpu, name, initialized || !strncmp(name, "cuInit", 6) ? OK : NOT_INITIALIZED);
}
#define BEFORE() do { int code_ = before(__func__); if (code_) return code_; } while (0)
#define NEED_CONTEXT() do { BEFORE(); if (!current) return INVALID_CONTEXT; } while (0)

static void pace(void)
{
    if (current) state_mark_load(current->number);
    usleep((useconds_t)(1000 * state_real(current ? current->number : NODE, "pace_ms", 20)));
}

static double hbm_us(int gpu, double bytes) { return bytes / (state_real(gpu, "hbm_gbps", 3000) * 1e3); }

static struct allocation *owner(const void *at, size_t size)
{
    struct allocation *found = allocations;
    while (found && !((const char *)at >= found->at && (const char *)at + size <= found->at + found->size))
        found = found->next;
    return found;
}

/* For the simulated libcublasLt, which computes on the same clock and knows no own devices. */
EXPORT int simulated_device(void) { return current ? current->number : -1; }
EXPORT void simulated_advance(double us) { if (current) current->now_us += us; }
EXPORT void simulated_hang(const char *name) { if (current) hang(current->number, name); }
EXPORT int simulated_owns(const void *at, size_t size) { return owner(at, size) != NULL; }

EXPORT int cuInit(unsigned flags)
{
    BEFORE();
    if (flags) return INVALID_VALUE;
    if (!count_devices()) return NO_DEVICE;
    initialized = 1;
    return OK;
}

EXPORT int cuDriverGetVersion(int *version)
{
    *version = (int)state_int(NODE, "cuda_version", 13000);
    return OK;
}

EXPORT int cuGetErrorName(int code, const char **text)
{
    static const struct { int code; const char *name; } NAMES[] = {
        {0, "CUDA_SUCCESS"}, {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
        {3, "CUDA_ERROR_NOT_INITIALIZED"}, {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"},
        {201, "CUDA_ERROR_INVALID_CONTEXT"}, {214, "CUDA_ERROR_ECC_UNCORRECTABLE"}, {218, "CUDA_ERROR_INVALID_PTX"},
        {400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"}, {600, "CUDA_ERROR_NOT_READY"},
        {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
        {719, "CUDA_ERROR_LAUNCH_FAILED"}, {802, "CUDA_ERROR_SYSTEM_NOT_READY"}, {999, "CUDA_ERROR_UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (NAMES[i].code == code) {
            *text = NAMES[i].name;
            return OK;
        }
    *text = NULL;
    return INVALID_VALUE;
}

EXPORT int cuDeviceGetCount(int *count)
{
    BEFORE();
    *count = count_devices();
    return OK;
}

static const char *address(int gpu) { return state_text(gpu, "pci", gpu < 8 ? ADDRESSES[gpu] : "ff:00.0"); }

EXPORT int cuDeviceGetByPCIBusId(int *device, const char *wanted)
{
    BEFORE();
    /* the domain has four digits, eight or none, and the text either case */
    size_t length = strlen(wanted);
    for (int gpu = 0; length >= 7 && gpu < count_devices(); gpu++)
        if (!strcasecmp(address(gpu), wanted + length - 7) && !state_int(gpu, "absent", 0)) {
            *device = gpu;
            return state_int(gpu, "lost", 0) ? UNKNOWN : OK;
        }
    return INVALID_DEVICE;
}

EXPORT int cuDeviceGetPCIBusId(char *text, int size, int device)
{
    BEFORE();
    if (device < 0 || device >= count_devices() || size < 13) return INVALID_VALUE;
    snprintf(text, (size_t)size, "0000:%s", address(device));
    return OK;
}

EXPORT int cuDeviceGetName(char *text, int size, int device)
{
    BEFORE();
    if (device < 0 || device >= count_devices()) return INVALID_DEVICE;
    snprintf(text, (size_t)size, "%s", state_text(device, "name", "NVIDIA H100 80GB HBM3"));
    return OK;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    BEFORE();
    if (device < 0 || device >= count_devices()) return INVALID_DEVICE;
    switch (attribute) {
    case 16: *value = 132; return OK; /* multiprocessors */
    case 75: *value = (int)state_int(device, "cuda.major", 9); return OK; /* compute capability */
    case 76: *value = (int)state_int(device, "cuda.minor", 0); return OK;
    default: return INVALID_VALUE;
    }
}

EXPORT int cuDevicePrimaryCtxRetain(struct device **context, int device)
{
    BEFORE();
    if (device < 0 || device >= count_devices()) return INVALID_DEVICE;
    if (state_int(device, "lost", 0)) return UNKNOWN;
    devices[device].number = device;
    *context = &devices[device];
    return OK;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
    BEFORE();
    return device < 0 || device >= count_devices() ? INVALID_DEVICE : OK;
}

EXPORT int cuCtxSetCurrent(struct device *context)
{
    if (context && (context < devices || context >= devices + DEVICES)) return INVALID_CONTEXT;
    current = context;
    BEFORE();
    return OK;
}

EXPORT int cuCtxSynchronize(void)
{
    NEED_CONTEXT();
    pace();
    return OK;
}

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    NEED_CONTEXT();
    *total = (size_t)state_int(current->number, "cuda.memory_mib", 512) << 20;
    *free_bytes = *total > current->used ? *total - current->used : 0;
    return OK;
}

EXPORT int cuMemAlloc_v2(void **at, size_t size)
{
    NEED_CONTEXT();
    size_t free_bytes, total;
    if (cuMemGetInfo_v2(&free_bytes, &total) || !size) return INVALID_VALUE;
    if (size > free_bytes) return OUT_OF_MEMORY;
    struct allocation *fresh = malloc(sizeof *fresh);
    if (!fresh || posix_memalign((void **)&fresh->at, 512, size)) return OUT_OF_MEMORY;
    fresh->size = size;
    fresh->device = current->number;
    pthread_mutex_lock(&lock);
    fresh->next = allocations;
    allocations = fresh;
    current->used += size;
    pthread_mutex_unlock(&lock);
    *at = fresh->at;
    return OK;
}

EXPORT int cuMemFree_v2(void *at)
{
    NEED_CONTEXT();
    pthread_mutex_lock(&lock);
    struct allocation **link = &allocations, *found;
    while (*link && (*link)->at != at) link = &(*link)->next;
    found = *link;
    if (found) {
        *link = found->next;
        devices[found->device].used -= found->size;
        free(found->at);
        free(found);
    }
    pthread_mutex_unlock(&lock);
    return found ? OK : INVALID_VALUE;
}

EXPORT int cuMemHostAlloc(void **at, size_t size, unsigned flags)
{
    NEED_CONTEXT();
    if (flags & ~7u) return INVALID_VALUE;
    return posix_memalign(at, 4096, size) ? OUT_OF_MEMORY : OK;
}

EXPORT int cuMemFreeHost(void *at)
{
    NEED_CONTEXT();
    free(at);
    return OK;
}

static int to_device(void *to, const void *from, size_t size)
{
    if (!owner(to, size)) return INVALID_VALUE;
    memcpy(to, from, size);
    current->now_us += size / (state_real(current->number, "h2d_gbps", 55) * 1e3);
    return OK;
}

static int to_host(void *to, const void *from, size_t size)
{
    if (!owner(from, size)) return INVALID_VALUE;
    memcpy(to, from, size);
    current->now_us += size / (state_real(current->number, "d2h_gbps", 55) * 1e3);
    return OK;
}

EXPORT int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { NEED_CONTEXT(); return to_device(to, from, size); }
EXPORT int cuMemcpyDtoH_v2(void *to, const void *from, size_t size) { NEED_CONTEXT(); return to_host(to, from, size); }
EXPORT int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t size, void *stream)
{
    NEED_CONTEXT();
    int code = stream ? INVALID_HANDLE : to_device(to, from, size);
    if (!code && size && state_int(current->number, "h2d_flip", 0)) ((char *)to)[size / 2] ^= 1;
    return code;
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t size, void *stream)
{
    NEED_CONTEXT();
    return stream ? INVALID_HANDLE : to_host(to, from, size);
}

EXPORT int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t size, void *stream)
{
    NEED_CONTEXT();
    if (stream || !owner(to, size) || !owner(from, size)) return INVALID_VALUE;
    memmove(to, from, size);
    current->now_us += hbm_us(current->number, 2.0 * (double)size);
    return OK;
}

EXPORT int cuMemcpyPeerAsync(void *to, struct device *there, const void *from, struct device *here, size_t size,
                             void *stream)
{
    NEED_CONTEXT();
    struct allocation *target = owner(to, size), *source = owner(from, size);
    if (stream || !target || !source || target->device != there->number || source->device != here->number)
        return INVALID_VALUE;
    memcpy(to, from, size);
    if (size && state_int(here->number, "peer_flip", -1) == there->number) ((char *)to)[size / 3] ^= 16;
    char key[32];
    snprintf(key, sizeof key, "peer_gbps.%d", there->number);
    double rate = state_real(here->number, key, state_real(here->number, "peer_gbps", 385));
    current->now_us += (double)size / (rate * 1e3);
    return OK;
}

EXPORT int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    BEFORE();
    int count = count_devices();
    if (device < 0 || peer < 0 || device >= count || peer >= count) return INVALID_DEVICE;
    *can = device != peer && (int)state_int(device, "peer", 1);
    return OK;
}

EXPORT int cuCtxEnablePeerAccess(struct device *peer, unsigned flags)
{
    NEED_CONTEXT();
    if (flags || peer < devices || peer >= devices + DEVICES) return INVALID_VALUE;
    if (current->peers >> peer->number & 1) return PEER_ENABLED;
    current->peers |= 1u << peer->number;
    return OK;
}

EXPORT int cuMemsetD32_v2(void *at, unsigned word, size_t count)
{
    NEED_CONTEXT();
    if (!owner(at, 4 * count)) return INVALID_VALUE;
    for (size_t i = 0; i < count; i++) ((unsigned *)at)[i] = word;
    current->now_us += hbm_us(current->number, 4.0 * (double)count);
    return OK;
}

EXPORT int cuEventCreate(struct event **event, unsigned flags)
{
    NEED_CONTEXT();
    if (flags) return INVALID_VALUE;
    *event = calloc(1, sizeof **event);
    return *event ? OK : OUT_OF_MEMORY;
}

EXPORT int cuEventRecord(struct event *event, void *stream)
{
    NEED_CONTEXT();
    if (!event || stream) return INVALID_HANDLE;
    event->at_us = current->now_us;
    return OK;
}

EXPORT int cuEventSynchronize(struct event *event)
{
    NEED_CONTEXT();
    if (!event) return INVALID_HANDLE;
    pace();
    return OK;
}

EXPORT int cuEventElapsedTime(float *ms, struct event *from, struct event *to)
{
    NEED_CONTEXT();
    if (!from || !to) return INVALID_HANDLE;
    *ms = (float)((to->at_us - from->at_us) / 1000);
    return OK;
}

EXPORT int cuEventDestroy_v2(struct event *event)
{
    NEED_CONTEXT();
    free(event);
    return OK;
}

/* Kernels. Each checks its launch and that its memory is memory of a device. */

#define ARGUMENT(type, index) (*(type *)arguments[index])
#define OWNED(at, size) do { if (!owner((at), (size))) return 700; } while (0)
#define COMPUTE(name) \
    static int name(int gpu, void **arguments, const unsigned *grid, unsigned block, double *bytes)

COMPUTE(fill)
{
    char *out = ARGUMENT(char *, 0);
    u64 count = ARGUMENT(u64, 1), seed = ARGUMENT(u64, 2);
    u32 amp = ARGUMENT(u32, 3), kind = ARGUMENT(u32, 4), mode = ARGUMENT(u32, 5);
    (void)gpu, (void)grid, (void)block;
    static const unsigned SIZES[] = {2, 2, 4, 1, 8};
    if (kind > KIND_FP64 || mode > DATA_ENTROPY) return INVALID_VALUE;
    OWNED(out, count * SIZES[kind]);
    for (u64 i = 0; i < count; i++) {
        u64 bits = operand_bits(kind, mode, seed, i, amp); /* little-endian, as the GPU is */
        memcpy(out + i * SIZES[kind], &bits, SIZES[kind]);
    }
    *bytes = (double)count * SIZES[kind];
    return OK;
}

COMPUTE(weights)
{
    u64 *out = ARGUMENT(u64 *, 0), count = ARGUMENT(u64, 1);
    (void)gpu, (void)grid, (void)block;
    OWNED(out, 8 * count);
    for (u64 i = 0; i < count; i++) out[i] = weight_at(i);
    *bytes = 8.0 * (double)count;
    return OK;
}

COMPUTE(fold)
{
    u64 *folded = ARGUMENT(u64 *, 0), seed = ARGUMENT(u64, 3);
    u32 columns = ARGUMENT(u32, 1), depth = ARGUMENT(u32, 2), amp = ARGUMENT(u32, 4);
    (void)gpu;
    if (grid[0] * block < depth) return INVALID_VALUE;
    OWNED(folded, 8ull * depth);
    for (u32 c = 0; c < columns; c++) {
        u64 weight = weight_at(c);
        for (u32 k = 0; k < depth; k++) folded[k] += (u64)value_at(seed, (u64)c * depth + k, amp) * weight;
    }
    *bytes = 8.0 * depth;
    return OK;
}

COMPUTE(expect)
{
    u64 *out = ARGUMENT(u64 *, 0), *folded = ARGUMENT(u64 *, 1), seed = ARGUMENT(u64, 3);
    u32 depth = ARGUMENT(u32, 2), amp = ARGUMENT(u32, 4);
    (void)gpu, (void)block;
    OWNED(out, 8ull * grid[0]);
    OWNED(folded, 8ull * depth);
    for (u32 r = 0; r < grid[0]; r++) {
        out[r] = 0;
        for (u32 k = 0; k < depth; k++) out[r] += (u64)value_at(seed, (u64)r * depth + k, amp) * folded[k];
    }
    *bytes = 8.0 * depth;
    return OK;
}

COMPUTE(expect_row)
{
    i64 *out = ARGUMENT(i64 *, 0);
    u32 row = ARGUMENT(u32, 1), depth = ARGUMENT(u32, 2), amp = ARGUMENT(u32, 5);
    u64 seed_p = ARGUMENT(u64, 3), seed_q = ARGUMENT(u64, 4);
    (void)gpu, (void)block;
    OWNED(out, 8ull * grid[0]);
    for (u32 c = 0; c < grid[0]; c++) {
        out[c] = 0;
        for (u32 k = 0; k < depth; k++)
            out[c] += value_at(seed_p, (u64)row * depth + k, amp) * value_at(seed_q, (u64)c * depth + k, amp);
    }
    *bytes = 8.0 * grid[0];
    return OK;
}

static void settle(u64 row, u64 sum, u64 impossible, const u64 *expected, u64 *sums, u64 *result)
{
    sums[row] = sum;
    if (expected && (sum != expected[row] || impossible)) {
        result[0]++;
        if (row < result[1]) result[1] = row;
        if (impossible) result[2]++;
    }
}

static int check_rows(void **arguments, u32 rows, u32 width, int form, double *bytes)
{
    char *c = ARGUMENT(char *, 0);
    u64 *by = ARGUMENT(u64 *, 1), *expected = ARGUMENT(u64 *, 2), *sums = ARGUMENT(u64 *, 3);
    u64 *result = ARGUMENT(u64 *, 4);
    u32 columns = ARGUMENT(u32, 5);
    if (columns % 4) return INVALID_VALUE;
    OWNED(c, (size_t)rows * columns * width);
    OWNED(by, 8ull * columns);
    OWNED(sums, 8ull * rows);
    if (expected) OWNED(expected, 8ull * rows);
    if (expected) OWNED(result, 24);
    for (u32 r = 0; r < rows; r++) {
        u64 sum = 0, impossible = 0;
        char *row = c + (size_t)r * columns * width;
        for (u32 i = 0; i < columns; i++)
            if (form == 0) impossible |= add_float(((float *)row)[i], by[i], &sum);
            else if (form == 1) impossible |= add_double(((double *)row)[i], by[i], &sum);
            else sum += ((u32 *)row)[i] * by[i];
        settle(r, sum, impossible, expected, sums, result);
    }
    *bytes = (double)rows * columns * width;
    return OK;
}

COMPUTE(check_float) { (void)gpu, (void)block; return check_rows(arguments, 8 * grid[0], 4, 0, bytes); }
COMPUTE(check_double) { (void)gpu, (void)block; return check_rows(arguments, grid[0], 8, 1, bytes); }
COMPUTE(hash_rows) { (void)gpu, (void)block; return check_rows(arguments, 8 * grid[0], 4, 2, bytes); }

COMPUTE(hash_columns)
{
    u32 *c = ARGUMENT(u32 *, 0), rows = ARGUMENT(u32, 3), words = ARGUMENT(u32, 4);
    u64 *by = ARGUMENT(u64 *, 1), *sums = ARGUMENT(u64 *, 2);
    (void)gpu;
    if (grid[0] * block < words) return INVALID_VALUE;
    OWNED(c, 4ull * rows * words);
    OWNED(by, 8ull * rows);
    OWNED(sums, 8ull * words);
    for (u32 r = 0; r < rows; r++)
        for (u32 word = 0; word < words; word++) sums[word] += c[(u64)r * words + word] * by[r];
    *bytes = 4.0 * rows * words;
    return OK;
}

COMPUTE(pattern_write)
{
    u64 *out = ARGUMENT(u64 *, 0), count = ARGUMENT(u64, 1), seed = ARGUMENT(u64, 2);
    u32 mode = ARGUMENT(u32, 3);
    (void)grid, (void)block;
    OWNED(out, 8 * count);
    for (u64 i = 0; i < count; i++) out[i] = pattern_at(mode, seed, i);
    unsigned long long word;
    unsigned bit;
    if (sscanf(state_text(gpu, "memory_flip", ""), "%llu %u", &word, &bit) == 2 && word < count)
        out[word] ^= 1ull << (bit & 63);
    *bytes = 8.0 * (double)count;
    return OK;
}

COMPUTE(pattern_check)
{
    u64 *in = ARGUMENT(u64 *, 0), count = ARGUMENT(u64, 1), seed = ARGUMENT(u64, 2), *result = ARGUMENT(u64 *, 4);
    u32 mode = ARGUMENT(u32, 3);
    (void)gpu, (void)grid, (void)block;
    OWNED(in, 8 * count);
    OWNED(result, 16);
    for (u64 i = 0; i < count; i++)
        if (in[i] != pattern_at(mode, seed, i)) {
            result[0]++;
            if (i < result[1]) result[1] = i;
        }
    *bytes = 8.0 * (double)count;
    return OK;
}

COMPUTE(read_all)
{
    u64 *in = ARGUMENT(u64 *, 0), pairs = ARGUMENT(u64, 1), *result = ARGUMENT(u64 *, 2);
    (void)gpu, (void)grid, (void)block;
    OWNED(in, 16 * pairs);
    OWNED(result, 8);
    for (u64 i = 0; i < 2 * pairs; i++) *result += in[i];
    *bytes = 16.0 * (double)pairs;
    return OK;
}

static const struct kernel KERNELS[] = {
    {"burn_fill", fill}, {"burn_weights", weights}, {"burn_fold", fold}, {"burn_expect", expect},
    {"burn_expect_row", expect_row}, {"burn_check_float", check_float}, {"burn_check_double", check_double},
    {"burn_hash_rows", hash_rows}, {"burn_hash_columns", hash_columns}, {"burn_pattern_write", pattern_write},
    {"burn_pattern_check", pattern_check}, {"burn_read", read_all},
};

EXPORT int cuModuleLoadData(char **module, const void *image)
{
    NEED_CONTEXT();
    const char *text = image;
    if (strncmp(text, PTX_VERSION, strlen(PTX_VERSION))) return INVALID_PTX;
    *module = strdup(text);
    return *module ? OK : OUT_OF_MEMORY;
}

EXPORT int cuModuleGetFunction(const struct kernel **function, char *module, const char *name)
{
    NEED_CONTEXT();
    char entry[96];
    snprintf(entry, sizeof entry, ".visible .entry %s(", name);
    if (!module || !strstr(module, entry)) return NOT_FOUND;
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
        if (!strcmp(KERNELS[i].name, name)) {
            *function = &KERNELS[i];
            return OK;
        }
    return NOT_FOUND;
}

EXPORT int cuLaunchKernel(const struct kernel *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, void *stream,
                          void **arguments, void **extra)
{
    NEED_CONTEXT();
    if (kernel < KERNELS || kernel >= KERNELS + sizeof KERNELS / sizeof *KERNELS) return INVALID_HANDLE;
    if (!grid_x || !grid_y || grid_z != 1 || !block_x || block_x > 1024 || block_x % 32 || block_y != 1 || block_z != 1)
        return INVALID_VALUE;
    if (shared || stream || !arguments || extra) return INVALID_VALUE;
    hang(current->number, kernel->name);
    unsigned grid[2] = {grid_x, grid_y};
    double bytes = 0;
    int code = kernel->compute(current->number, arguments, grid, block_x, &bytes);
    current->now_us += hbm_us(current->number, bytes) * 1.1 + 3;
    return code;
}
