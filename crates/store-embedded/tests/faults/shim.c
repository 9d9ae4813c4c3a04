/* Simulates power cuts and full disks. A child process loads this library with LD_PRELOAD.
 *
 * Power cuts. $SHIM_MIRROR records the last synced state of everything under $SHIM_ROOT.
 *
 *   synced/<inode>  the content of a file when it was last synced
 *   dirs/<inode>    the entries of a directory when it was last synced: "<inode> <f|d> <name>" per line
 *   live/<inode>    a hard link to the file, so that its inode number is not reused and the test can read its unsynced
 *                   content
 *
 * Files are identified by inode, so a rename only changes directories. A name is durable once its directory was synced.
 * If its file was never synced, the file is empty. Real file systems guarantee more (ext4 also keeps the name of a
 * synced file), but the store does not rely on that. The shim writes the mirror before it calls the real sync, because
 * a sync guarantees nothing about writes that happen during the call.
 *
 * Limits of the model: pages of one sync become durable in file order, and a kill can interrupt that. Unsynced writes are
 * lost completely; the test adds random unsynced pages and names when it rebuilds the directory. Shared mappings and
 * O_SYNC bypass the shim, so they abort the process. System calls that bypass libc are not seen.
 *
 * Full disk. While the file $SHIM_FULL exists, every call under $SHIM_ROOT that allocates space fails with ENOSPC.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define REAL(name)                                       \
    (*({                                                 \
        static typeof(&name) found;                      \
        if (!found) found = (typeof(&name))real(#name);  \
        found;                                           \
    }))

static char root[PATH_MAX], mirror[PATH_MAX], full[PATH_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "shim: no %s\n", name);
        abort();
    }
    return found;
}

static void die(const char *what) {
    fprintf(stderr, "shim: %s: %s\n", what, strerror(errno));
    abort();
}

/* A file that was written or synced since the start. */
struct known {
    ino_t inode;
    off_t from, to; /* written and not yet synced, if from < to */
    int whole;      /* changed in a way that a range cannot describe */
    struct known *next;
};
#define BUCKETS 1024
static struct known *files[BUCKETS];

static int under(const char *path) {
    size_t length = strlen(root);
    return length && !strncmp(path, root, length) && (path[length] == '/' || path[length] == '\0');
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = '\0';
    return 1;
}

static void in_mirror(char *path, const char *kind, ino_t inode) {
    if (snprintf(path, PATH_MAX, "%s/%s/%llu", mirror, kind, (unsigned long long)inode) >= PATH_MAX) die("path");
}

/* Prevents reuse of the inode number. False if the file has no name any more: then it cannot be found after a power cut. */
static int pin(const char *from, ino_t inode) {
    char path[PATH_MAX];
    in_mirror(path, "live", inode);
    return !linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) || errno == EEXIST;
}

/* The record of a file under the root, or NULL for other files. Requires the lock. */
static struct known *known(int fd, const struct stat *status) {
    if (!*mirror || !S_ISREG(status->st_mode)) return NULL;
    struct known *file = files[status->st_ino % BUCKETS];
    while (file && file->inode != status->st_ino) file = file->next;
    char path[PATH_MAX], link[64];
    if (!path_of(fd, path) || !under(path)) return NULL;
    if (file) return file;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (!pin(link, status->st_ino)) return NULL;
    file = calloc(1, sizeof *file);
    file->inode = status->st_ino;
    file->whole = 1;
    file->next = files[status->st_ino % BUCKETS];
    return files[status->st_ino % BUCKETS] = file;
}

static void dirty(int fd, off_t from, ssize_t length, int whole) {
    struct stat status;
    int error = errno;
    if (*mirror && !fstat(fd, &status) && S_ISREG(status.st_mode)) {
        pthread_mutex_lock(&lock);
        struct known *file = known(fd, &status);
        if (file) {
            if (from < 0) from = lseek(fd, 0, SEEK_CUR) - length;
            int clean = file->from >= file->to;
            if (clean || from < file->from) file->from = from;
            if (clean || from + length > file->to) file->to = from + length;
            file->whole |= whole;
        }
        pthread_mutex_unlock(&lock);
    }
    errno = error;
}

static void copy(int from, int to, off_t start, off_t end) {
    static char buffer[1 << 16]; /* guarded by the lock */
    while (start < end) {
        size_t want = end - start < (off_t)sizeof buffer ? (size_t)(end - start) : sizeof buffer;
        ssize_t got = pread(from, buffer, want, start);
        if (got < 0) die("read");
        if (!got) return;
        if (REAL(pwrite)(to, buffer, got, start) != got) die("write to the mirror");
        start += got;
    }
}

static void sync_file(int fd, const struct stat *status) {
    struct known *file = known(fd, status);
    if (!file) return;
    char path[PATH_MAX];
    in_mirror(path, "live", file->inode);
    int from = REAL(open)(path, O_RDONLY | O_CLOEXEC); /* fd itself may be open for writing only */
    in_mirror(path, "synced", file->inode);
    int to = REAL(open)(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (from < 0 || to < 0) die("mirror of a file");
    /* The mirror is changed in place, so a kill here does not lose earlier synced content. */
    if (REAL(ftruncate)(to, status->st_size)) die("size of a mirror");
    if (file->whole) {
        off_t at = 0;
        while (at < status->st_size) {
            off_t data = lseek(from, at, SEEK_DATA);
            if (data < 0) data = status->st_size;
            if (data > at) REAL(fallocate)(to, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, data - at);
            if (data >= status->st_size) break;
            off_t hole = lseek(from, data, SEEK_HOLE);
            copy(from, to, data, hole);
            at = hole;
        }
    } else {
        copy(from, to, file->from, file->to < status->st_size ? file->to : status->st_size);
    }
    file->from = file->to = 0;
    file->whole = 0;
    close(from);
    close(to);
}

static void sync_directory(const char *path, ino_t inode) {
    char name[PATH_MAX], other[PATH_MAX + 8], child[PATH_MAX];
    in_mirror(name, "dirs", inode);
    snprintf(other, sizeof other, "%s.new", name);
    if (access(name, F_OK)) REAL(open)(path, O_PATH | O_CLOEXEC); /* never closed: prevents reuse of the inode number */
    FILE *list = fopen(other, "w");
    DIR *directory = opendir(path);
    if (!list || !directory) die("mirror of a directory");
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat status;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (snprintf(child, sizeof child, "%s/%s", path, entry->d_name) >= (int)sizeof child) die("path");
        if (lstat(child, &status)) continue; /* removed concurrently */
        if (S_ISREG(status.st_mode) && !pin(child, status.st_ino)) continue;
        fprintf(list, "%llu %c %s\n", (unsigned long long)status.st_ino, S_ISDIR(status.st_mode) ? 'd' : 'f',
                entry->d_name);
    }
    closedir(directory);
    if (fclose(list) || rename(other, name)) die("mirror of a directory");
}

static void synced(int fd) {
    struct stat status;
    char path[PATH_MAX];
    if (!*mirror) return;
    pthread_mutex_lock(&lock);
    if (fstat(fd, &status)) {
        /* The real call reports the error. */
    } else if (S_ISDIR(status.st_mode)) {
        /* The path of a removed directory ends in " (deleted)". Its content does not matter. */
        if (path_of(fd, path) && under(path) && !access(path, F_OK)) sync_directory(path, status.st_ino);
    } else {
        sync_file(fd, &status);
    }
    pthread_mutex_unlock(&lock);
}

/* The initial content counts as synced. */
static int adopt(const char *path, const struct stat *status, int kind, struct FTW *at) {
    (void)at;
    if (kind == FTW_D) {
        sync_directory(path, status->st_ino);
    } else if (kind == FTW_F) {
        int fd = REAL(open)(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) die("a file at the start");
        sync_file(fd, status);
        close(fd);
    }
    return 0;
}

static void setting(const char *name, char *value) {
    const char *set = getenv(name);
    if (set && strlen(set) < PATH_MAX) strcpy(value, set);
}

__attribute__((constructor)) static void begin(void) {
    setting("SHIM_ROOT", root);
    setting("SHIM_MIRROR", mirror);
    setting("SHIM_FULL", full);
    if (!*mirror) return;
    if (nftw(root, adopt, 64, FTW_PHYS)) die("the root at the start");
    char ready[PATH_MAX + 8];
    snprintf(ready, sizeof ready, "%s/ready", mirror);
    close(REAL(open)(ready, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

EXPORT int fsync(int fd) {
    synced(fd);
    return REAL(fsync)(fd);
}

EXPORT int fdatasync(int fd) {
    synced(fd);
    return REAL(fdatasync)(fd);
}

static int no_room(const char *path) {
    if (!*full || !under(path) || access(full, F_OK)) return 0;
    errno = ENOSPC;
    return 1;
}

static int no_room_in(int fd) {
    char path[PATH_MAX];
    if (!*full) return 0;
    return path_of(fd, path) && no_room(path);
}

EXPORT ssize_t write(int fd, const void *data, size_t length) {
    if (no_room_in(fd)) return -1;
    ssize_t done = REAL(write)(fd, data, length);
    if (done > 0) dirty(fd, -1, done, 0);
    return done;
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (no_room_in(fd)) return -1;
    ssize_t done = REAL(writev)(fd, parts, count);
    if (done > 0) dirty(fd, -1, done, 0);
    return done;
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    if (no_room_in(fd)) return -1;
    ssize_t done = REAL(pwrite)(fd, data, length, at);
    if (done > 0) dirty(fd, at, done, 0);
    return done;
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t length, off_t at) { return pwrite(fd, data, length, at); }

EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    if (no_room_in(fd)) return -1;
    ssize_t done = REAL(pwritev)(fd, parts, count, at);
    if (done > 0) dirty(fd, at, done, 0);
    return done;
}

EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) {
    return pwritev(fd, parts, count, at);
}

EXPORT int ftruncate(int fd, off_t length) {
    struct stat status;
    if (!fstat(fd, &status) && length > status.st_size && no_room_in(fd)) return -1;
    int done = REAL(ftruncate)(fd, length);
    if (!done) dirty(fd, 0, 0, 1);
    return done;
}

EXPORT int ftruncate64(int fd, off_t length) { return ftruncate(fd, length); }

EXPORT int fallocate(int fd, int mode, off_t at, off_t length) {
    if (no_room_in(fd)) return -1;
    int done = REAL(fallocate)(fd, mode, at, length);
    if (!done) dirty(fd, 0, 0, 1);
    return done;
}

EXPORT int fallocate64(int fd, int mode, off_t at, off_t length) { return fallocate(fd, mode, at, length); }

EXPORT int posix_fallocate(int fd, off_t at, off_t length) {
    if (no_room_in(fd)) return ENOSPC;
    int done = REAL(posix_fallocate)(fd, at, length);
    if (!done) dirty(fd, 0, 0, 1);
    return done;
}

EXPORT int posix_fallocate64(int fd, off_t at, off_t length) { return posix_fallocate(fd, at, length); }

EXPORT ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t length, unsigned flags) {
    if (no_room_in(to)) return -1;
    ssize_t done = REAL(copy_file_range)(from, from_at, to, to_at, length, flags);
    if (done > 0) dirty(to, 0, 0, 1);
    return done;
}

EXPORT ssize_t sendfile(int to, int from, off_t *at, size_t length) {
    if (no_room_in(to)) return -1;
    ssize_t done = REAL(sendfile)(to, from, at, length);
    if (done > 0) dirty(to, 0, 0, 1);
    return done;
}

EXPORT ssize_t sendfile64(int to, int from, off_t *at, size_t length) { return sendfile(to, from, at, length); }

static int opened(int at, const char *path, int flags, mode_t mode) {
    if (flags & O_CREAT && access(path, F_OK) && no_room(path)) return -1;
    int fd = REAL(openat)(at, path, flags, mode);
    char found[PATH_MAX];
    if (fd >= 0 && flags & (O_TRUNC | O_DSYNC) && *mirror && path_of(fd, found) && under(found)) {
        if (flags & O_DSYNC) die("O_SYNC is not modelled");
        dirty(fd, 0, 0, 1);
    }
    return fd;
}

#define WITH_MODE(flags)                                          \
    mode_t mode = 0;                                              \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list more;                                             \
        va_start(more, flags);                                    \
        mode = va_arg(more, mode_t);                              \
        va_end(more);                                             \
    }

EXPORT int open(const char *path, int flags, ...) {
    WITH_MODE(flags)
    return opened(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...) {
    WITH_MODE(flags)
    return opened(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int at, const char *path, int flags, ...) {
    WITH_MODE(flags)
    return opened(at, path, flags, mode);
}

EXPORT int openat64(int at, const char *path, int flags, ...) {
    WITH_MODE(flags)
    return opened(at, path, flags, mode);
}

EXPORT int mkdir(const char *path, mode_t mode) {
    if (no_room(path)) return -1;
    return REAL(mkdir)(path, mode);
}

static void check_mapping(int protection, int flags, int fd) {
    char path[PATH_MAX];
    if (fd < 0 || !*mirror || (flags & MAP_TYPE) == MAP_PRIVATE || !(protection & PROT_WRITE)) return;
    if (path_of(fd, path) && under(path)) die("shared mappings are not modelled");
}

EXPORT void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
    check_mapping(protection, flags, fd);
    return REAL(mmap)(at, length, protection, flags, fd, offset);
}

EXPORT void *mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
    check_mapping(protection, flags, fd);
    return REAL(mmap)(at, length, protection, flags, fd, offset);
}
