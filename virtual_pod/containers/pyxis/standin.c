/* Copyright: the baremetal.dgx authors
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A stand-in for pyxis in the virtual pod, written for the tests, where the real one cannot be had.
 * It shows srun's --container-* options, takes and refuses the options that a line of plugstack.conf
 * can give to pyxis, has `enroot create` unpack the image as the user, and runs the task inside, in a
 * user and a mount namespace that an ordinary user can make. It knows no entry points, no saved and
 * no named containers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>

#pragma GCC visibility push(default)
SPANK_PLUGIN(pyxis, 1)
#pragma GCC visibility pop
#define VISIBLE __attribute__((visibility("default")))

enum { IMAGE = 1, MOUNTS, OTHER };

static const char *const KNOWN[] = {"runtime_path=", "execute_entrypoint=", "container_scope=", "sbatch_support=",
				    "use_enroot_load=", "importer=", "use_squashfuse=", NULL};

static char image[PATH_MAX], mounts[PATH_MAX], rootfs[PATH_MAX], name[64];
static char runtime_path[PATH_MAX] = "/run/pyxis";
static int scope_is_job;

static int keep(int value, const char *argument, int remote)
{
	(void)remote;
	if (value == IMAGE)
		snprintf(image, sizeof(image), "%s", argument);
	else if (value == MOUNTS)
		snprintf(mounts, sizeof(mounts), "%s", argument);
	return 0;
}

static struct spank_option OPTIONS[] = {
	{"container-image", "PATH", "[stand-in] the image to run the job in", 1, IMAGE, keep},
	{"container-mounts", "SRC:DST[:FLAGS]", "[stand-in] folders of the node to see inside", 1, MOUNTS, keep},
	{"container-workdir", "PATH", "[stand-in] accepted, without effect", 1, OTHER, keep},
	{"container-name", "NAME", "[stand-in] accepted, without effect", 1, OTHER, keep},
	{"container-mount-home", NULL, "[stand-in] accepted, without effect", 0, OTHER, keep},
	{"container-writable", NULL, "[stand-in] accepted, without effect", 0, OTHER, keep},
	{"container-remap-root", NULL, "[stand-in] accepted, without effect", 0, OTHER, keep},
	SPANK_OPTIONS_TABLE_END,
};

/* Like the real one, an option that is not known is an error, and only where jobs run. */
static int read_arguments(int count, char **arguments)
{
	for (int at = 0; at < count; at++) {
		int known = 0;
		for (int key = 0; KNOWN[key]; key++)
			known |= !strncmp(arguments[at], KNOWN[key], strlen(KNOWN[key]));
		if (!known) {
			slurm_error("pyxis: unknown configuration option: %s", arguments[at]);
			return -1;
		}
		if (!strncmp(arguments[at], "runtime_path=", 13))
			snprintf(runtime_path, sizeof(runtime_path), "%s", arguments[at] + 13);
		if (!strcmp(arguments[at], "container_scope=job"))
			scope_is_job = 1;
	}
	return 0;
}

VISIBLE int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	spank_context_t context = spank_context();

	if (context == S_CTX_REMOTE && read_arguments(count, arguments))
		return -1;
	if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
		return 0;
	for (struct spank_option *option = OPTIONS; option->name; option++)
		if (spank_option_register(spank, option) != ESPANK_SUCCESS)
			return -1;
	return 0;
}

VISIBLE int slurm_spank_slurmd_init(spank_t spank, int count, char **arguments)
{
	(void)spank;
	if (read_arguments(count, arguments))
		return -1;
	if (mkdir(runtime_path, 0755) && errno != EEXIST) {
		slurm_error("pyxis: couldn't mkdir %s: %s", runtime_path, strerror(errno));
		return -1;
	}
	return 0;
}

/* Runs enroot as the caller; what it prints goes to `out`. */
static int enroot(char *out, size_t size, char *const arguments[])
{
	int pipes[2], status = -1;
	size_t have = 0;
	ssize_t got;
	pid_t child;

	if (pipe2(pipes, O_CLOEXEC))
		return -1;
	child = fork();
	if (child == 0) {
		int null = open("/dev/null", O_RDONLY);
		uid_t uid = geteuid();
		gid_t gid = getegid();
		/* Slurm has changed the effective ones only, and a shell would go back to the others. */
		if (setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
			_exit(126);
		dup2(null, 0);
		dup2(pipes[1], 1);
		dup2(pipes[1], 2);
		execvp("enroot", arguments);
		dprintf(2, "enroot: %s", strerror(errno));
		_exit(127);
	}
	close(pipes[1]);
	while (child > 0 && have + 1 < size && (got = read(pipes[0], out + have, size - 1 - have)) > 0)
		have += got;
	out[have] = 0;
	out[strcspn(out, "\n")] = 0;
	close(pipes[0]);
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* With the user's rights, once a step: unpack the image. */
VISIBLE int slurm_spank_user_init(spank_t spank, int count, char **arguments)
{
	uint32_t job = 0, step = 0;
	char output[PATH_MAX];
	struct stat found;

	(void)count;
	(void)arguments;
	if (!image[0])
		return 0;
	/* As the real one: slurmd makes the folder when it starts with the plug-in, and no other process. */
	if (stat(runtime_path, &found)) {
		slurm_error("pyxis: %s: %s; was slurmd started with the plug-in?", runtime_path, strerror(errno));
		return -1;
	}
	spank_get_item(spank, S_JOB_ID, &job);
	spank_get_item(spank, S_JOB_STEPID, &step);
	snprintf(name, sizeof(name), "pyxis_%u.%u", job, step);
	char *const create[] = {"enroot", "create", "--name", name, image, NULL};
	char *const path[] = {"enroot", "standin-path", name, NULL};
	if (enroot(output, sizeof(output), create)) {
		slurm_error("pyxis: failed to create container filesystem: %s", output);
		return -1;
	}
	if (enroot(rootfs, sizeof(rootfs), path)) {
		slurm_error("pyxis: container has no filesystem: %s", rootfs);
		return -1;
	}
	return 0;
}

static int map_id(const char *file, unsigned inside)
{
	char text[64];
	int handle = open(file, O_WRONLY), bad;

	if (handle < 0)
		return -1;
	snprintf(text, sizeof(text), "%u %u 1", inside, inside);
	bad = write(handle, text, strlen(text)) < 0;
	close(handle);
	return bad ? -1 : 0;
}

static int bind_in(const char *from, const char *to, int read_only)
{
	char target[PATH_MAX * 2];

	snprintf(target, sizeof(target), "%s%s", rootfs, to);
	if (mkdir(target, 0755) && errno != EEXIST)
		return -1;
	if (mount(from, target, NULL, MS_BIND | MS_REC, NULL))
		return -1;
	return read_only ? mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) : 0;
}

static int enter(void)
{
	static const char *const SHARED[] = {"/proc", "/sys", "/dev", NULL};
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int handle;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) {
		slurm_error("pyxis: an ordinary user can make no user namespace: %s", strerror(errno));
		return -1;
	}
	/* Who has changed its user finds its own files in /proc to be root's. */
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	handle = open("/proc/self/setgroups", O_WRONLY);
	if (handle >= 0) {
		if (write(handle, "deny", 4) < 0)
			slurm_error("pyxis: setgroups: %s", strerror(errno));
		close(handle);
	}
	if (map_id("/proc/self/uid_map", uid) || map_id("/proc/self/gid_map", gid) ||
	    mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) || mount(rootfs, rootfs, NULL, MS_BIND | MS_REC, NULL)) {
		slurm_error("pyxis: couldn't set up the namespaces: %s", strerror(errno));
		return -1;
	}
	for (int at = 0; SHARED[at]; at++)
		if (bind_in(SHARED[at], SHARED[at], 0)) {
			slurm_error("pyxis: couldn't mount %s: %s", SHARED[at], strerror(errno));
			return -1;
		}
	for (char *rest = mounts, *one; (one = strsep(&rest, ",")) && one[0];) {
		char *from = strsep(&one, ":"), *to = strsep(&one, ":");
		if (bind_in(from, to ? to : from, one && !strcmp(one, "ro"))) {
			slurm_error("pyxis: couldn't mount %s: %s", from, strerror(errno));
			return -1;
		}
	}
	if (chdir(rootfs) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/")) {
		slurm_error("pyxis: couldn't enter the image: %s", strerror(errno));
		return -1;
	}
	return 0;
}

/* In the task, as the user, right before its program. */
VISIBLE int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	(void)count;
	(void)arguments;
	if (!image[0])
		return 0;
	spank_setenv(spank, "PYXIS_STANDIN", "1", 1);
	return enter();
}

static int as_user(uid_t uid, gid_t gid, char *const arguments[])
{
	char output[256];
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		struct passwd *entry = getpwuid(uid);
		if (setgroups(0, NULL) || setgid(entry ? entry->pw_gid : gid) || setuid(uid))
			_exit(1);
		if (entry)
			setenv("HOME", entry->pw_dir, 1);
		if (!getenv("PATH"))
			setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
		_exit(enroot(output, sizeof(output), arguments) ? 1 : 0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

VISIBLE int slurm_spank_exit(spank_t spank, int count, char **arguments)
{
	uid_t uid = (uid_t)-1;
	gid_t gid = (gid_t)-1;
	char *const away[] = {"enroot", "remove", "-f", name, NULL};

	(void)count;
	(void)arguments;
	if (spank_context() != S_CTX_REMOTE || !name[0])
		return 0;
	spank_get_item(spank, S_JOB_UID, &uid);
	spank_get_item(spank, S_JOB_GID, &gid);
	return as_user(uid, gid, away);
}

/* As the real one: with container_scope=job a node on which `enroot list` fails is drained. */
VISIBLE int slurm_spank_job_epilog(spank_t spank, int count, char **arguments)
{
	uid_t uid = (uid_t)-1;
	char *const list[] = {"enroot", "list", NULL};

	if (read_arguments(count, arguments))
		return -1;
	if (!scope_is_job)
		return 0;
	spank_get_item(spank, S_JOB_UID, &uid);
	return as_user(uid, 65534, list) ? -1 : 0;
}
