/* Copyright: the baremetal.dgx authors
 * SPDX-License-Identifier: GPL-3.0-or-later */
#define _GNU_SOURCE
#include "state.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct line {
    char *key, *value;
};

struct reading {
    char *path;
    struct timespec changed;
    off_t size;
    ino_t inode;
    char *text;
    struct line *lines;
    size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct reading *current;

static char *trimmed(char *text) {
    while (isspace((unsigned char)*text)) text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) end--;
    *end = 0;
    return text;
}

static void parse(struct reading *reading) {
    size_t room = 0;
    char *rest = reading->text, *line;
    while ((line = strsep(&rest, "\n"))) {
        line = trimmed(line);
        char *equals = strchr(line, '=');
        if (*line == '#' || !equals) continue;
        *equals = 0;
        if (reading->count == room) {
            room = room ? 2 * room : 64;
            struct line *more = realloc(reading->lines, room * sizeof *more);
            if (!more) abort();
            reading->lines = more;
        }
        reading->lines[reading->count++] = (struct line){trimmed(line), trimmed(equals + 1)};
    }
}

static struct reading *read_file(const char *path, const struct stat *now) {
    struct reading *reading = calloc(1, sizeof *reading);
    FILE *file = fopen(path, "re");
    size_t length = 0;
    if (!reading || !(reading->path = strdup(path))) abort();
    if (now) {
        reading->changed = now->st_mtim;
        reading->size = now->st_size;
        reading->inode = now->st_ino;
    }
    if (file) {
        if (getdelim(&reading->text, &length, 0, file) < 0) {
            free(reading->text);
            reading->text = NULL;
        }
        fclose(file);
    }
    if (reading->text) parse(reading);
    return reading;
}

static const char *state_path(void) {
    const char *path = getenv("SIMULATED_HARDWARE");
    return path && *path ? path : "/run/simulated-hardware/state";
}

static const struct reading *fresh(void) {
    const char *path = state_path();
    struct stat now;
    int found = stat(path, &now) == 0;
    if (!found) memset(&now, 0, sizeof now);
    if (!current || strcmp(current->path, path) || current->inode != now.st_ino ||
        current->size != now.st_size || current->changed.tv_sec != now.st_mtim.tv_sec ||
        current->changed.tv_nsec != now.st_mtim.tv_nsec)
        current = read_file(path, &now);
    return current;
}

static const char *find(const struct reading *reading, const char *key) {
    for (size_t i = reading->count; i-- > 0;)
        if (!strcmp(reading->lines[i].key, key)) return reading->lines[i].value;
    return NULL;
}

const char *state_text(int gpu, const char *key, const char *fallback) {
    char name[256];
    const char *value = NULL;
    pthread_mutex_lock(&lock);
    const struct reading *reading = fresh();
    if (reading->count == 0) {
        value = NULL;
    } else if (gpu < 0) {
        value = find(reading, key);
    } else {
        snprintf(name, sizeof name, "gpu.%d.%s", gpu, key);
        value = find(reading, name);
        if (!value) {
            snprintf(name, sizeof name, "gpu.*.%s", key);
            value = find(reading, name);
        }
    }
    pthread_mutex_unlock(&lock);
    return value ? value : fallback;
}

long long state_int(int gpu, const char *key, long long fallback) {
    const char *text = state_text(gpu, key, NULL);
    char *end;
    if (!text || !*text) return fallback;
    errno = 0;
    /* Masks use all 64 bits, and signed reading would cut them. */
    long long value = *text == '-' ? strtoll(text, &end, 0) : (long long)strtoull(text, &end, 0);
    return errno || *end ? fallback : value;
}

double state_real(int gpu, const char *key, double fallback) {
    const char *text = state_text(gpu, key, NULL);
    char *end;
    if (!text || !*text) return fallback;
    double value = strtod(text, &end);
    return *end ? fallback : value;
}

int state_return(int gpu, const char *function, int fallback) {
    char key[128];
    snprintf(key, sizeof key, "ret.%s", function);
    return (int)state_int(gpu, key, fallback);
}

static int load_path(int gpu, char *path, size_t room) {
    int length = snprintf(path, room, "%s.load-%d", state_path(), gpu);
    return length > 0 && (size_t)length < room;
}

void state_mark_load(int gpu) {
    char path[4096];
    if (gpu < 0 || !load_path(gpu, path, sizeof path)) return;
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return;
    /* Without times it is now. */
    (void)futimens(file, NULL);
    close(file);
}

int state_under_load(int gpu) {
    char path[4096];
    struct stat marked;
    struct timespec now;
    if (!load_path(gpu, path, sizeof path) || stat(path, &marked)) return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    double age = (double)(now.tv_sec - marked.st_mtim.tv_sec) + (double)(now.tv_nsec - marked.st_mtim.tv_nsec) / 1e9;
    return age > -1 && age < 1;
}
