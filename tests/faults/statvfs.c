/* Copyright: the baremetal.dgx authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Preloaded into the health program: what a file system does to whoever asks it. SPOILT_PATH is the
 * path, SPOILT_HOW is hang, slow, crash, stale, eio, denied, read-only or inodes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
static int spoilt(const char *path, int (*real)(const char *, struct statvfs *), struct statvfs *out) {
    const char *place = getenv("SPOILT_PATH"), *how = getenv("SPOILT_HOW");
    int rc;
    if (!place || !how || strcmp(path, place)) return real(path, out);
    if (!strcmp(how, "hang")) for (;;) pause();
    if (!strcmp(how, "slow")) usleep(200000);
    if (!strcmp(how, "crash")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "stale")) { errno = ESTALE; return -1; }
    if (!strcmp(how, "eio")) { errno = EIO; return -1; }
    if (!strcmp(how, "denied")) { errno = EACCES; return -1; }
    rc = real(path, out);
    if (!strcmp(how, "read-only")) out->f_flag |= ST_RDONLY;
    if (!strcmp(how, "inodes")) { out->f_files = 1000000; out->f_favail = 10; }
    return rc;
}
int statvfs(const char *path, struct statvfs *out) { return spoilt(path, dlsym(RTLD_NEXT, "statvfs"), out); }
int statvfs64(const char *path, struct statvfs64 *out) {
    return spoilt(path, (int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs64"), (struct statvfs *)out);
}
