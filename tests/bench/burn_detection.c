/* Copyright: the baremetal.dgx authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Counts what the burn-in's own check finds: the element functions are those of the shipped kernels.
 *
 *   burn_detection SEED TILES FLIPS N
 *
 * A tile is an N x N product of integers (bf16 form) or of random data (raw form). Each form checks TILES
 * clean tiles, then FLIPS results with one flipped bit each, at a random place and a random bit. A flip
 * is located when the row is named by the row's sum and the column by the exact row (or by the columns'
 * sums), and nothing else is named. Prints one line of counts for each form.
 */
#define _POSIX_C_SOURCE 200809L
#include "../../plugins/module_utils/_gpu/kernels.cu"

#include <stdio.h>
#include <stdlib.h>

static u32 n;
static u64 state;
static u64 draw(void) { return mix64(state += PHI); }

static float as_float(u32 bits) { float value; memcpy(&value, &bits, 4); return value; }
static float bf16_at(u64 seed, u64 index, u32 mode) { return as_float((u32)operand_bits(KIND_BF16, mode, seed, index, 45) << 16); }

static void product(float *c, u64 p, u64 q, u32 mode)
{
    float *a = malloc(4ull * n * n), *b = malloc(4ull * n * n);
    for (u64 i = 0; i < (u64)n * n; i++) a[i] = bf16_at(p, i, mode), b[i] = bf16_at(q, i, mode);
    for (u32 r = 0; r < n; r++)
        for (u32 column = 0; column < n; column++) {
            float sum = 0;
            for (u32 k = 0; k < n; k++) sum += a[r * n + k] * b[column * n + k];
            c[r * n + column] = sum;
        }
    free(a);
    free(b);
}

static void expect(u64 *out, const u64 *weights, u64 p, u64 q)
{
    u64 *folded = calloc(n, 8);
    for (u32 c = 0; c < n; c++)
        for (u32 k = 0; k < n; k++) folded[k] += (u64)value_at(q, (u64)c * n + k, 45) * weights[c];
    for (u32 r = 0; r < n; r++) {
        out[r] = 0;
        for (u32 k = 0; k < n; k++) out[r] += (u64)value_at(p, (u64)r * n + k, 45) * folded[k];
    }
    free(folded);
}

static u64 row_sum(const float *c, const u64 *weights, u32 row, u32 raw, u32 *impossible)
{
    u64 sum = 0;
    for (u32 i = 0; i < n; i++)
        if (raw) sum += BITS_OF_FLOAT(c[row * n + i]) * weights[i];
        else *impossible |= add_float(c[row * n + i], weights[i], &sum);
    return sum;
}

static u64 column_sum(const float *c, const u64 *weights, u32 column)
{
    u64 sum = 0;
    for (u32 r = 0; r < n; r++) sum += BITS_OF_FLOAT(c[r * n + column]) * weights[r];
    return sum;
}

/* How many rows are bad, and the first of them. */
static u32 check(const float *c, const u64 *weights, const u64 *expected, u32 raw, u32 *first)
{
    u32 bad = 0;
    for (u32 r = 0; r < n; r++) {
        u32 impossible = 0;
        if (row_sum(c, weights, r, raw, &impossible) != expected[r] || impossible)
            if (!bad++) *first = r;
    }
    return bad;
}

static u32 wrong_column(const float *c, const u64 *weights, const u64 *columns, u32 row, u64 p, u64 q, u32 raw, u32 *first)
{
    u32 wrong = 0;
    for (u32 column = 0; column < n; column++) {
        int differs;
        if (raw) differs = column_sum(c, weights, column) != columns[column];
        else {
            i64 exact = 0;
            for (u32 k = 0; k < n; k++) exact += value_at(p, (u64)row * n + k, 45) * value_at(q, (u64)column * n + k, 45);
            differs = BITS_OF_FLOAT((float)exact) != BITS_OF_FLOAT(c[row * n + column]);
        }
        if (differs && !wrong++) *first = column;
    }
    return wrong;
}

int main(int count, char **words)
{
    if (count != 5) return 2;
    u64 seed = strtoull(words[1], NULL, 10);
    long tiles = atol(words[2]), flips = atol(words[3]);
    n = (u32)atol(words[4]);
    float *c = malloc(4ull * n * n);
    u64 *weights = malloc(8ull * n), *expected = malloc(8ull * n), *columns = malloc(8ull * n);
    for (u32 i = 0; i < n; i++) weights[i] = weight_at(i);
    for (u32 raw = 0; raw < 2; raw++) {
        long alarms = 0, found = 0, located = 0, by_bit[32] = {0};
        state = seed;
        for (long tile = 0; tile < tiles; tile++) {
            u64 p = draw() >> 8, q = draw() >> 8;
            u32 first = 0, share = (u32)((flips * (tile + 1)) / tiles - (flips * tile) / tiles);
            product(c, p, q, raw);
            if (raw)
                for (u32 i = 0; i < n; i++) {
                    expected[i] = row_sum(c, weights, i, 1, &first);
                    columns[i] = column_sum(c, weights, i);
                }
            else expect(expected, weights, p, q);
            if (raw) product(c, p, q, raw); /* the same product again must be the same bits */
            alarms += check(c, weights, expected, raw, &first) != 0;
            for (u32 flip = 0; flip < share; flip++) {
                u32 at = (u32)(draw() % ((u64)n * n)), bit = (u32)(draw() & 31);
                u32 bits = BITS_OF_FLOAT(c[at]), row = 0, column = 0;
                c[at] = as_float(bits ^ 1u << bit);
                u32 bad = check(c, weights, expected, raw, &row);
                found += bad != 0;
                by_bit[bit] += bad != 0;
                if (bad == 1 && row == at / n)
                    located += wrong_column(c, weights, columns, row, p, q, raw, &column) == 1 && column == at % n;
                c[at] = as_float(bits);
            }
        }
        int bits = 0;
        for (int bit = 0; bit < 32; bit++) bits += by_bit[bit] > 0;
        printf("%s tiles=%ld false_alarms=%ld flips=%ld found=%ld located=%ld bits=%d\n", raw ? "entropy" : "exact",
               tiles, alarms, flips, found, located, bits);
    }
    return 0;
}
