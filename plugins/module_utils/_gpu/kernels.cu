// Copyright: the baremetal.dgx authors
// SPDX-License-Identifier: GPL-3.0-or-later
//
// The small kernels of gpu_burn: operands, checksums of rows, memory patterns. `.ci/burn_kernels.py`
// turns this file into the PTX text of kernels.py. The element functions in the first half are
// plain C: the simulated libcuda of the virtual pod and tests/bench/burn_detection.py compile them too,
// so what is tested on a CPU is the arithmetic that runs on a GPU.
//
// A result C[r][c] = sum over k of P[r][k] * Q[c][k] is in memory row by row. P and Q are functions of
// (seed, index), so every check is made against the function, never against what is in memory.

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;

#ifdef __CUDACC__
#define ELEMENT static __device__ __forceinline__
#define BITS_OF_FLOAT(x) __float_as_uint(x)
#define BITS_OF_DOUBLE(x) ((u64)__double_as_longlong(x))
#define NEAREST_INT(x) __float2int_rn(x)
#define NEAREST_LONG(x) __double2ll_rn(x)
#else
#include <math.h>
#include <string.h>
#define ELEMENT static inline
ELEMENT u32 BITS_OF_FLOAT(float x) { u32 bits; memcpy(&bits, &x, 4); return bits; }
ELEMENT u64 BITS_OF_DOUBLE(double x) { u64 bits; memcpy(&bits, &x, 8); return bits; }
// The device saturates and gives 0 for NaN; C leaves both undefined.
ELEMENT int NEAREST_INT(float x)
{
    if (x != x) return 0;
    return x >= 2147483648.0f ? 2147483647 : x < -2147483648.0f ? (int)-2147483648LL : (int)rintf(x);
}
ELEMENT i64 NEAREST_LONG(double x)
{
    if (x != x) return 0;
    if (x >= 9223372036854775808.0) return 9223372036854775807LL;
    return x < -9223372036854775808.0 ? -9223372036854775807LL - 1 : (i64)rint(x);
}
#endif

enum { KIND_BF16, KIND_FP16, KIND_TF32, KIND_FP8, KIND_FP64 };
enum { DATA_EXACT, DATA_ENTROPY };
enum { PATTERN_WORD, PATTERN_ADDRESS, PATTERN_RANDOM };

#define PHI 0x9E3779B97F4A7C15ull
#define WEIGHT_SEED 0xD1B54A32D192ED03ull

ELEMENT u64 mix64(u64 x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// An integer in -amp..amp.
ELEMENT i64 value_at(u64 seed, u64 index, u32 amp)
{
    u64 upper = mix64(index + (seed + 1) * PHI) >> 32;
    return (i64)((upper * (2ull * amp + 1)) >> 32) - (i64)amp;
}

// Odd, therefore invertible mod 2^64: one wrong element of a row always changes the row's sum.
ELEMENT u64 weight_at(u64 column) { return mix64((column + 1) * PHI + WEIGHT_SEED) | 1; }

// The bits of an integer in a binary format; exact, since callers keep |value| < 2^(fraction + 1).
ELEMENT u64 encode(i64 value, u32 fraction, u32 bias, u32 sign_bit)
{
    u64 sign = value < 0 ? 1ull << sign_bit : 0;
    u64 size = (u64)(value < 0 ? -value : value);
    if (size == 0) return 0;
    u32 exponent = 0;
    for (u64 rest = size >> 1; rest; rest >>= 1) exponent++;
    u64 mantissa = (size << (fraction - exponent)) & ((1ull << fraction) - 1);
    return sign | ((u64)(exponent + bias) << fraction) | mantissa;
}

// Random sign and fraction, exponents within 2^-4 .. 2^3: many bits toggle, no product overflows.
ELEMENT u64 scatter(u64 random, u32 fraction, u32 bias, u32 sign_bit)
{
    u64 exponent = bias - 4 + ((random >> 56) & 7);
    return ((random >> 63) << sign_bit) | (exponent << fraction) | (random & ((1ull << fraction) - 1));
}

ELEMENT u64 operand_bits(u32 kind, u32 mode, u64 seed, u64 index, u32 amp)
{
    i64 value = value_at(seed, index, amp);
    u64 random = mix64(index + (seed + 1) * PHI);
    int exact = mode == DATA_EXACT;
    switch (kind) {
    case KIND_BF16: return exact ? encode(value, 7, 127, 15) : scatter(random, 7, 127, 15);
    case KIND_FP16: return exact ? encode(value, 10, 15, 15) : scatter(random, 10, 15, 15);
    case KIND_TF32: // 10 bits of fraction, kept in 32: the tensor core ignores the lower 13
        return (exact ? encode(value, 10, 127, 18) : scatter(random, 10, 127, 18)) << 13;
    case KIND_FP8: return exact ? encode(value, 3, 7, 7) : scatter(random, 3, 7, 7);
    default: return exact ? encode(value, 52, 1023, 63) : scatter(random, 52, 1023, 63);
    }
}

// Adds one element to its row's sum; returns 1 for what an exact product cannot be: NaN, infinity,
// a fraction, or minus zero, which no sum of integers gives.
ELEMENT u32 add_float(float x, u64 weight, u64 *sum)
{
    int value = NEAREST_INT(x);
    *sum += (u64)(i64)value * weight;
    return !((float)value == x) || BITS_OF_FLOAT(x) == 0x80000000u;
}
ELEMENT u32 add_double(double x, u64 weight, u64 *sum)
{
    i64 value = NEAREST_LONG(x);
    *sum += (u64)value * weight;
    return !((double)value == x) || BITS_OF_DOUBLE(x) == 0x8000000000000000ull;
}

ELEMENT u64 pattern_at(u32 mode, u64 seed, u64 index)
{
    if (mode == PATTERN_WORD) return seed;
    return mode == PATTERN_ADDRESS ? index ^ seed : mix64(index + (seed + 1) * PHI);
}

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define THREAD ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS ((u64)gridDim.x * blockDim.x)
#define ROWS 8 // rows a block sums at once, so that each weight is read once for all of them

static __device__ u64 block_sum(u64 part) // the whole sum, in thread 0 only
{
    __shared__ u64 warps[32];
    for (int lane = 16; lane; lane >>= 1) part += __shfl_down_sync(0xFFFFFFFFu, part, lane);
    __syncthreads(); // the last use of `warps` must be over
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = part;
    __syncthreads();
    u64 sum = 0;
    if (threadIdx.x == 0)
        for (u32 warp = 0; warp < (blockDim.x + 31) / 32; warp++) sum += warps[warp];
    return sum;
}

// out: `count` operands of `kind`.
KERNEL burn_fill(void *out, u64 count, u64 seed, u32 amp, u32 kind, u32 mode)
{
    for (u64 i = THREAD; i < count; i += THREADS) {
        u64 bits = operand_bits(kind, mode, seed, i, amp);
        if (kind == KIND_FP8) ((unsigned char *)out)[i] = (unsigned char)bits;
        else if (kind == KIND_TF32) ((u32 *)out)[i] = (u32)bits;
        else if (kind == KIND_FP64) ((u64 *)out)[i] = bits;
        else ((unsigned short *)out)[i] = (unsigned short)bits;
    }
}

KERNEL burn_weights(u64 *weights, u64 count)
{
    for (u64 i = THREAD; i < count; i += THREADS) weights[i] = weight_at(i);
}

// folded[k] += sum over columns c of Q[c][k] * weight(c); grid.y shares out the columns.
KERNEL burn_fold(u64 *folded, u32 columns, u32 depth, u64 seed, u32 amp)
{
    u32 k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= depth) return;
    u64 sum = 0;
    for (u32 c = blockIdx.y; c < columns; c += gridDim.y)
        sum += (u64)value_at(seed, (u64)c * depth + k, amp) * weight_at(c);
    atomicAdd(folded + k, sum);
}

// expected[r] = sum over k of P[r][k] * folded[k], one block a row: what the row's sum must be.
KERNEL burn_expect(u64 *expected, const u64 *folded, u32 depth, u64 seed, u32 amp)
{
    u64 sum = 0;
    for (u32 k = threadIdx.x; k < depth; k += blockDim.x)
        sum += (u64)value_at(seed, (u64)blockIdx.x * depth + k, amp) * folded[k];
    sum = block_sum(sum);
    if (threadIdx.x == 0) expected[blockIdx.x] = sum;
}

// out[c] = the exact element of one row, one block a column: finds the column after a failure.
KERNEL burn_expect_row(i64 *out, u32 row, u32 depth, u64 seed_p, u64 seed_q, u32 amp)
{
    u64 sum = 0;
    for (u32 k = threadIdx.x; k < depth; k += blockDim.x)
        sum += (u64)(value_at(seed_p, (u64)row * depth + k, amp)
                     * value_at(seed_q, (u64)blockIdx.x * depth + k, amp));
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = (i64)sum;
}

// result: [0] bad rows, [1] the first of them (starts as 2^64-1), [2] rows with impossible elements.
static __device__ void settle_row(u64 row, u64 sum, u64 impossible, const u64 *expected, u64 *sums, u64 *result)
{
    sums[row] = sum;
    if (expected && (sum != expected[row] || impossible)) {
        atomicAdd(result, 1ull);
        atomicMin(result + 1, row);
        if (impossible) atomicAdd(result + 2, 1ull);
    }
}

// `columns` is a multiple of 4 and the number of rows one of ROWS; blockIdx.x counts groups of rows.
KERNEL burn_check_float(const float4 *c, const u64 *weights, const u64 *expected, u64 *sums, u64 *result, u32 columns)
{
    u64 row = (u64)blockIdx.x * ROWS;
    u64 sum[ROWS] = {0};
    u32 impossible[ROWS] = {0};
#pragma unroll 1
    for (u32 at = threadIdx.x; at < columns / 4; at += blockDim.x) {
        u64 w0 = weights[4 * at], w1 = weights[4 * at + 1], w2 = weights[4 * at + 2], w3 = weights[4 * at + 3];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float4 x = c[(row + r) * (columns / 4) + at];
            impossible[r] |= add_float(x.x, w0, &sum[r]) | add_float(x.y, w1, &sum[r])
                           | add_float(x.z, w2, &sum[r]) | add_float(x.w, w3, &sum[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        u64 whole = block_sum(sum[r]);
        u64 bad = block_sum(impossible[r]);
        if (threadIdx.x == 0) settle_row(row + r, whole, bad, expected, sums, result);
    }
}

KERNEL burn_check_double(const double2 *c, const u64 *weights, const u64 *expected, u64 *sums, u64 *result, u32 columns)
{
    u64 row = blockIdx.x, sum = 0;
    u32 impossible = 0;
#pragma unroll 1
    for (u32 at = threadIdx.x; at < columns / 2; at += blockDim.x) {
        double2 x = c[row * (columns / 2) + at];
        impossible |= add_double(x.x, weights[2 * at], &sum) | add_double(x.y, weights[2 * at + 1], &sum);
    }
    sum = block_sum(sum);
    u64 bad = block_sum(impossible);
    if (threadIdx.x == 0) settle_row(row, sum, bad, expected, sums, result);
}

// The sum of a row's raw 32-bit words by weight: finds any changed bit, minus zeros included.
// Without `expected` (null) it only writes `sums`. `words` is a multiple of 4.
KERNEL burn_hash_rows(const uint4 *c, const u64 *weights, const u64 *expected, u64 *sums, u64 *result, u32 words)
{
    u64 row = (u64)blockIdx.x * ROWS;
    u64 sum[ROWS] = {0};
#pragma unroll 1
    for (u32 at = threadIdx.x; at < words / 4; at += blockDim.x) {
        u64 w0 = weights[4 * at], w1 = weights[4 * at + 1], w2 = weights[4 * at + 2], w3 = weights[4 * at + 3];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            uint4 x = c[(row + r) * (words / 4) + at];
            sum[r] += x.x * w0 + x.y * w1 + x.z * w2 + x.w * w3;
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        u64 whole = block_sum(sum[r]);
        if (threadIdx.x == 0) settle_row(row + r, whole, 0, expected, sums, result);
    }
}

// sums[word] += its column's raw words by weight; grid.y shares out the rows.
KERNEL burn_hash_columns(const u32 *c, const u64 *weights, u64 *sums, u32 rows, u32 words)
{
    u32 word = blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= words) return;
    u64 sum = 0;
    for (u32 r = blockIdx.y; r < rows; r += gridDim.y) sum += c[(u64)r * words + word] * weights[r];
    atomicAdd(sums + word, sum);
}

KERNEL burn_pattern_write(u64 *out, u64 count, u64 seed, u32 mode)
{
    for (u64 i = THREAD; i < count; i += THREADS) out[i] = pattern_at(mode, seed, i);
}

// result: [0] wrong words, [1] the first of them (starts as 2^64-1).
KERNEL burn_pattern_check(const u64 *in, u64 count, u64 seed, u32 mode, u64 *result)
{
    for (u64 i = THREAD; i < count; i += THREADS)
        if (in[i] != pattern_at(mode, seed, i)) {
            atomicAdd(result, 1ull);
            atomicMin(result + 1, i);
        }
}

// result[0] += the sum of all words: a read whose every word counts, so that none can be left out.
KERNEL burn_read(const ulonglong2 *in, u64 pairs, u64 *result)
{
    u64 sum = 0;
    for (u64 i = THREAD; i < pairs; i += THREADS) {
        ulonglong2 two = in[i];
        sum += two.x + two.y;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) atomicAdd(result, sum);
}
#endif
