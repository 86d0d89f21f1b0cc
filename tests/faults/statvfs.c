/* Copyright: the baremetal.dgx authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Preloaded into the health program: what a file system does to its callers. FAULTY_PATH is the
 * path, FAULTY_HOW is hang, slow, crash, stale, eio, denied, read-only or inodes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
static int faulty(const char *path, int (*real)(const char *, struct statvfs *), struct statvfs *out) {
    const char *place = getenv("FAULTY_PATH"), *how = getenv("FAULTY_HOW");
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
int statvfs(const char *path, struct statvfs *out) { return faulty(path, dlsym(RTLD_NEXT, "statvfs"), out); }
int statvfs64(const char *path, struct statvfs64 *out) {
    return faulty(path, (int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs64"), (struct statvfs *)out);
}
