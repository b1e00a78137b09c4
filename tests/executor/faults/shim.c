/* Simulates a disk with power loss and a clock that is set. Loaded before the C library.
 *
 * Below SHIM_FOLDER only synced data survives: each fsync of a file copies its content to SHIM_SHADOW/f<id>, and
 * each fsync of a folder writes its names to SHIM_SHADOW/d<id>. A file whose name was never synced is lost.
 * `shim.rs` rebuilds the content of the disk from these files.
 *
 * SHIM_KILL=n   kills the process before its n-th sync.
 * SHIM_EIO=n    fails the n-th sync, once.
 * SHIM_CLOCK    a file with the seconds to add to the time of day, read on each call.
 * SHIM_UPTIME   a file with the seconds to add to the time since boot, including suspend.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int syncs;

static void identity(int fd, const char *name, char *out, size_t size) {
    struct statx found;
    memset(&found, 0, sizeof found);
    int flags = *name ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH;
    statx(fd, name, flags, STATX_INO | STATX_BTIME | STATX_TYPE, &found);
    snprintf(out, size, "%c%llu-%lld-%u", S_ISDIR(found.stx_mode) ? 'd' : 'f', (unsigned long long)found.stx_ino,
             (long long)found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
}

static void keep(int fd, const char *shadow) {
    char id[96], path[PATH_MAX], temporary[PATH_MAX + 8], buffer[1 << 16];
    identity(fd, "", id, sizeof id);
    snprintf(path, sizeof path, "%s/%s", shadow, id);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    int out = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (id[0] == 'd') {
        int again = openat(fd, ".", O_RDONLY | O_DIRECTORY);
        DIR *folder = fdopendir(again);
        struct dirent *entry;
        while (folder && (entry = readdir(folder))) {
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
            identity(fd, entry->d_name, id, sizeof id);
            dprintf(out, "%s %s\n", id, entry->d_name);
        }
        if (folder) closedir(folder);
    } else {
        /* Do not open the file again: closing it would release the locks of SQLite. */
        off_t at = 0;
        ssize_t got;
        while ((got = pread(fd, buffer, sizeof buffer, at)) > 0) {
            if (write(out, buffer, got) != got) abort();
            at += got;
        }
    }
    close(out);
    rename(temporary, path);
}

/* Returns 1 if the sync must fail, otherwise 0. */
static int before(int fd) {
    const char *below = getenv("SHIM_FOLDER");
    if (!below) return 0;
    char self[64], path[PATH_MAX];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(self, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (strncmp(path, below, strlen(below))) return 0;
    int number = __sync_add_and_fetch(&syncs, 1);
    const char *nth = getenv("SHIM_KILL");
    if (nth && atoi(nth) == number) kill(getpid(), SIGKILL);
    nth = getenv("SHIM_EIO");
    if (nth && atoi(nth) == number) {
        errno = EIO;
        return 1;
    }
    const char *shadow = getenv("SHIM_SHADOW");
    if (shadow) keep(fd, shadow);
    return 0;
}

int fsync(int fd) { return before(fd) ? -1 : 0; }
int fdatasync(int fd) { return before(fd) ? -1 : 0; }

int clock_gettime(clockid_t clock, struct timespec *time) {
    int outcome = syscall(SYS_clock_gettime, clock, time);
    const char *path = clock == CLOCK_REALTIME   ? getenv("SHIM_CLOCK")
                       : clock == CLOCK_BOOTTIME ? getenv("SHIM_UPTIME")
                                                 : NULL;
    if (path && outcome == 0) {
        char text[32] = {0};
        int file = open(path, O_RDONLY);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0) time->tv_sec += atoll(text);
            close(file);
        }
    }
    return outcome;
}
