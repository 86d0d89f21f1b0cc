/* Copyright: the baremetal.dgx authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The state of the simulated hardware: one text file that all simulated libraries read.
 *
 * Lines are `key = value`; a line that begins with # shows nothing; the last line of a key counts, so
 * that a fault is made by appending its fragment. The path is in the environment variable
 * SIMULATED_HARDWARE, else /run/simulated-hardware/state. A file that is not there is a healthy node.
 * Of GPU N a key is looked for as `gpu.N.key`, then as `gpu.*.key`; keys of the node have no prefix.
 * The file is read again when its modification time, size or inode changes. All calls may come from
 * any thread.
 */
#ifndef SIMULATED_STATE_H
#define SIMULATED_STATE_H

/* What a simulated library shows to its users; all else stays inside, so that two of them in one
 * process do not share symbols. */
#define EXPORT __attribute__((visibility("default")))

/* The GPU number that asks for a key of the node. */
#define NODE (-1)

/* Return the value of a key, or the fallback. The text stays valid for the life of the process:
 * earlier readings of the file are kept, since a caller may hold pointers into them. */
const char *state_text(int gpu, const char *key, const char *fallback);

/* The same as a number; what is not a number gives the fallback. Integers may be written as 0x... */
long long state_int(int gpu, const char *key, long long fallback);
double state_real(int gpu, const char *key, double fallback);

/* What one library does to a GPU, another must see: the first one touches a file beside the state,
 * and a GPU is under load as long as that file is younger than a second. */
void state_mark_load(int gpu);
int state_under_load(int gpu);

/* Return the return code that `gpu.N.ret.FUNCTION = CODE` (or `ret.FUNCTION` of the node) forces on
 * a function, else the fallback. */
int state_return(int gpu, const char *function, int fallback);

#endif
