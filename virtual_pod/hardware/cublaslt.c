/* Copyright: the baremetal.dgx authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A simulated libcublasLt.so.12 beside the simulated libcuda: the one form of product that gpu_burn asks
 * for (D = A^T B, alpha 1, beta 0), computed for real, so that the check of it is real. Everything else
 * is refused with CUBLAS_STATUS_NOT_SUPPORTED. Times are what an H100 takes under load: `rate.KIND` in TFLOP/s.
 *
 * Keys of a GPU: rate.bf16 645, rate.fp16 723, rate.fp8 1190, rate.tf32 396, rate.fp64 60
 *   flip COUNT ROW COLUMN BIT [KIND]   flip one bit of product number COUNT (of KIND) of a process, from
 *                                      0 on; `*` for every product
 *   nan COUNT ROW COLUMN               one NaN
 *   ret.cublasLtCreate CODE (also of Matmul and MatmulAlgoGetHeuristic), hang cublasLtMatmul
 */
#define _GNU_SOURCE
#include "state.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14, R_E4M3 = 28 };
enum { COMPUTE_32F = 68, COMPUTE_64F = 70, COMPUTE_TF32 = 77 };

struct layout {
    int type;
    uint64_t rows, columns;
    int64_t leading;
};
struct description {
    int compute, scale, transpose_a, transpose_b;
    char fast_accumulation;
};
struct preference {
    uint64_t workspace;
};
struct heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
struct kind {
    const char *name;
    int type, compute, scale, result;
    double rate;
    unsigned long long products;
};

static struct kind kinds[] = {
    {"bf16", R_16BF, COMPUTE_32F, R_32F, R_32F, 645, 0},  {"fp16", R_16F, COMPUTE_32F, R_32F, R_32F, 723, 0},
    {"fp8", R_E4M3, COMPUTE_32F, R_32F, R_32F, 1190, 0},  {"tf32", R_32F, COMPUTE_TF32, R_32F, R_32F, 396, 0},
    {"fp64", R_64F, COMPUTE_64F, R_64F, R_64F, 60, 0},
};
static unsigned long long products;
static int (*device)(void);
static void (*advance)(double);
static void (*hang)(const char *);
static int (*owns)(const void *, size_t);

/* The driver's library is there already; this one only computes on its clock. */
static int driver_there(void)
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

EXPORT int cublasLtCreate(void **handle)
{
    int code = driver_there() ? state_return(device(), __func__, OK) : NOT_INITIALIZED;
    if (code) return code;
    if (device() < 0) return NOT_INITIALIZED;
    *handle = malloc(1);
    return *handle ? OK : ALLOC_FAILED;
}

EXPORT int cublasLtDestroy(void *handle)
{
    free(handle);
    return OK;
}

EXPORT size_t cublasLtGetVersion(void) { return 120405; }

EXPORT const char *cublasLtGetStatusString(int status)
{
    switch (status) {
    case OK: return "success";
    case NOT_INITIALIZED: return "the library was not initialized";
    case ALLOC_FAILED: return "the resource allocation failed";
    case INVALID_VALUE: return "an invalid value was provided";
    case NOT_SUPPORTED: return "the functionality is not supported";
    default: return "unknown status";
    }
}

EXPORT int cublasLtMatmulDescCreate(struct description **made, int compute, int scale)
{
    *made = calloc(1, sizeof **made);
    if (!*made) return ALLOC_FAILED;
    (*made)->compute = compute;
    (*made)->scale = scale;
    return OK;
}

EXPORT int cublasLtMatmulDescSetAttribute(struct description *made, int attribute, const void *value, size_t size)
{
    if (attribute == 25 && size == 1) made->fast_accumulation = *(const char *)value;
    else if (attribute == 3 && size == 4) made->transpose_a = *(const int *)value;
    else if (attribute == 4 && size == 4) made->transpose_b = *(const int *)value;
    else return INVALID_VALUE;
    return OK;
}

EXPORT int cublasLtMatmulDescDestroy(struct description *made)
{
    free(made);
    return OK;
}

EXPORT int cublasLtMatrixLayoutCreate(struct layout **made, int type, uint64_t rows, uint64_t columns, int64_t leading)
{
    *made = malloc(sizeof **made);
    if (!*made) return ALLOC_FAILED;
    **made = (struct layout){type, rows, columns, leading};
    return OK;
}

EXPORT int cublasLtMatrixLayoutDestroy(struct layout *made)
{
    free(made);
    return OK;
}

EXPORT int cublasLtMatmulPreferenceCreate(struct preference **made)
{
    *made = calloc(1, sizeof **made);
    return *made ? OK : ALLOC_FAILED;
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(struct preference *made, int attribute, const void *value, size_t size)
{
    if (attribute != 1 || size != 8) return INVALID_VALUE;
    made->workspace = *(const uint64_t *)value;
    return OK;
}

EXPORT int cublasLtMatmulPreferenceDestroy(struct preference *made)
{
    free(made);
    return OK;
}

static struct kind *kind_of(const struct description *what, const struct layout *a, const struct layout *b,
                            const struct layout *c, const struct layout *d)
{
    int plain = what->transpose_a == 1 && what->transpose_b == 0 && a->rows == b->rows && d->rows == a->columns
                && d->columns == b->columns && c->rows == d->rows && c->columns == d->columns
                && a->leading == (int64_t)a->rows && b->leading == (int64_t)b->rows && d->leading == (int64_t)d->rows;
    for (size_t i = 0; plain && i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].type == a->type && kinds[i].type == b->type && kinds[i].compute == what->compute
            && kinds[i].scale == what->scale && kinds[i].result == d->type && kinds[i].result == c->type)
            return &kinds[i];
    return NULL;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, struct description *what, struct layout *a, struct layout *b,
                                          struct layout *c, struct layout *d, struct preference *preference, int wanted,
                                          struct heuristic *results, int *found)
{
    *found = 0;
    int code = handle && preference ? state_return(device(), __func__, OK) : NOT_INITIALIZED;
    struct kind *kind = kind_of(what, a, b, c, d);
    if (code || !kind) return code ? code : NOT_SUPPORTED;
    if (wanted < 1) return INVALID_VALUE;
    memset(results, 0, sizeof *results);
    results->algorithm[0] = 0x51D00000u + (uint64_t)(kind - kinds);
    *found = 1;
    return OK;
}

static float as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* A small binary format as float; gpu_burn writes neither NaN nor infinity, and zero as all bits off. */
static float widen(uint32_t bits, unsigned fraction, unsigned bias, unsigned sign_bit)
{
    if (!bits) return 0;
    uint32_t exponent = bits >> fraction & ((1u << (sign_bit - fraction)) - 1);
    uint32_t mantissa = bits & ((1u << fraction) - 1);
    return as_float(bits >> sign_bit << 31 | (exponent + 127 - bias) << 23 | mantissa << (23 - fraction));
}

static void load_row(float *out, const void *from, uint64_t row, uint64_t depth, int type)
{
    for (uint64_t k = 0; k < depth; k++) {
        uint64_t at = row * depth + k;
        if (type == R_32F) out[k] = ((const float *)from)[at];
        else if (type == R_16BF) out[k] = as_float((uint32_t)((const uint16_t *)from)[at] << 16);
        else if (type == R_16F) out[k] = widen(((const uint16_t *)from)[at], 10, 15, 15);
        else out[k] = widen(((const uint8_t *)from)[at], 3, 7, 7);
    }
}

__attribute__((optimize("O3"))) static float dot(const float *p, const float *q, uint64_t depth)
{
    float lanes[16] = {0};
    for (uint64_t k = 0; k + 16 <= depth; k += 16)
        for (int lane = 0; lane < 16; lane++) lanes[lane] += p[k + lane] * q[k + lane];
    for (int half = 8; half; half /= 2)
        for (int lane = 0; lane < half; lane++) lanes[lane] += lanes[lane + half];
    return lanes[0];
}

__attribute__((optimize("O3"))) static double dot_double(const double *p, const double *q, uint64_t depth)
{
    double lanes[8] = {0};
    for (uint64_t k = 0; k + 8 <= depth; k += 8)
        for (int lane = 0; lane < 8; lane++) lanes[lane] += p[k + lane] * q[k + lane];
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

static int compute(const void *a, const void *b, void *d, const struct layout *by_a, const struct layout *by_b)
{
    uint64_t depth = by_a->rows, columns = by_a->columns, rows = by_b->columns;
    if (by_a->type == R_64F) {
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < columns; c++)
                ((double *)d)[r * columns + c] =
                    dot_double((const double *)b + r * depth, (const double *)a + c * depth, depth);
        return OK;
    }
    float *q = malloc(4 * columns * depth), *p = malloc(4 * depth);
    for (uint64_t c = 0; q && p && c < columns; c++) load_row(q + c * depth, a, c, depth, by_a->type);
    for (uint64_t r = 0; q && p && r < rows; r++) {
        load_row(p, b, r, depth, by_b->type);
        for (uint64_t c = 0; c < columns; c++) ((float *)d)[r * columns + c] = dot(p, q + c * depth, depth);
    }
    int code = q && p ? OK : ALLOC_FAILED;
    free(q);
    free(p);
    return code;
}

/* Whether a fault is due at this product; a count is of all products, or of the kind's where one is named. */
static int due(const char *text, const struct kind *kind, int words, unsigned long long *place)
{
    char count[24] = "", of[12] = "";
    int found = sscanf(text, "%23s %llu %llu %llu %11s", count, place, place + 1, place + 2, of);
    if (words == 2) found = sscanf(text, "%23s %llu %llu %11s", count, place, place + 1, of) + 1;
    if (found < 4 || (*of && strcmp(of, kind->name))) return 0;
    return !strcmp(count, "*") || strtoull(count, NULL, 10) == (*of ? kind->products : products);
}

static void spoil(int gpu, const struct kind *kind, void *d, uint64_t columns, uint64_t rows)
{
    unsigned long long place[3];
    size_t width = kind->result == R_64F ? 8 : 4;
    if (due(state_text(gpu, "flip", ""), kind, 3, place) && place[0] < rows && place[1] < columns)
        ((unsigned char *)d)[(place[0] * columns + place[1]) * width + place[2] / 8 % width] ^= 1u << (place[2] & 7);
    if (due(state_text(gpu, "nan", ""), kind, 2, place) && place[0] < rows && place[1] < columns)
        memset((unsigned char *)d + (place[0] * columns + place[1]) * width, 0xFF, width);
}

EXPORT int cublasLtMatmul(void *handle, struct description *what, const void *alpha, const void *a, struct layout *by_a,
                          const void *b, struct layout *by_b, const void *beta, const void *c, struct layout *by_c,
                          void *d, struct layout *by_d, const struct heuristic *algorithm, void *workspace,
                          size_t workspace_size, void *stream)
{
    if (!handle || stream || (workspace_size && !workspace)) return INVALID_VALUE;
    int gpu = device();
    hang(__func__);
    int code = state_return(gpu, __func__, OK);
    struct kind *kind = kind_of(what, by_a, by_b, by_c, by_d);
    if (code || !kind) return code ? code : NOT_SUPPORTED;
    if (algorithm && algorithm->algorithm[0] != 0x51D00000u + (uint64_t)(kind - kinds)) return INVALID_VALUE;
    double one = kind->result == R_64F ? *(const double *)alpha : (double)*(const float *)alpha;
    double none = kind->result == R_64F ? *(const double *)beta : (double)*(const float *)beta;
    size_t width = kind->result == R_64F ? 8 : 4;
    if (one != 1 || none != 0 || c != d || by_a->rows % 16) return NOT_SUPPORTED;
    if (!owns(d, by_d->rows * by_d->columns * width)) return INVALID_VALUE;
    code = compute(a, b, d, by_a, by_b);
    if (code) return code;
    spoil(gpu, kind, d, by_d->rows, by_d->columns);
    products++;
    kind->products++;
    char key[16];
    snprintf(key, sizeof key, "rate.%s", kind->name);
    double flop = 2.0 * (double)by_a->rows * (double)by_a->columns * (double)by_b->columns;
    advance(flop / (state_real(gpu, key, kind->rate) * 1e6));
    return OK;
}
