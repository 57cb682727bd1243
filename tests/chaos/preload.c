/* Faults of the disk and of the wall clock, for a process that loads this library before all others. The harness writes
   what happens into a file of the layout of `struct control`, which every process of the node has in its memory. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
  volatile int32_t flush_error;     /* errno of fsync and fdatasync; 0: they work */
  volatile int32_t write_error;     /* errno of writes to files of the node */
  volatile int32_t flush_delay;     /* milliseconds that each flush takes longer */
  volatile int32_t hits;            /* how many calls failed or were late */
  volatile int64_t clock_offset;    /* microseconds that the wall clock is ahead */
};

static struct control none;
static struct control *control = &none;
static const char *folder = "";

#define REAL(result, name, ...) \
  static result (*real_##name)(__VA_ARGS__); \
  if (!real_##name) real_##name = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("CHAOS_CONTROL");
  int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *shared = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  folder = getenv("CHAOS_FOLDER");
  if (shared != MAP_FAILED && folder) control = shared;
}

/* Pipes, sockets and logs keep working: only files below the node's folder fail. */
static int is_ours(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strncmp(path, folder, strlen(folder)) == 0;
}

static int fails(int32_t error, int fd) {
  if (!error || !is_ours(fd)) return 0;
  __atomic_add_fetch(&control->hits, 1, __ATOMIC_RELAXED);
  errno = error;
  return 1;
}

static void flush_slowly(int fd) {
  int32_t delay = control->flush_delay;
  if (!delay || !is_ours(fd)) return;
  __atomic_add_fetch(&control->hits, 1, __ATOMIC_RELAXED);
  usleep(delay * 1000);
}

int fsync(int fd) {
  REAL(int, fsync, int);
  flush_slowly(fd);
  return fails(control->flush_error, fd) ? -1 : real_fsync(fd);
}

int fdatasync(int fd) {
  REAL(int, fdatasync, int);
  flush_slowly(fd);
  return fails(control->flush_error, fd) ? -1 : real_fdatasync(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t, write, int, const void *, size_t);
  return fails(control->write_error, fd) ? -1 : real_write(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
  return fails(control->write_error, fd) ? -1 : real_pwrite(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
  return fails(control->write_error, fd) ? -1 : real_pwrite64(fd, data, size, at);
}

int ftruncate64(int fd, off64_t size) {
  REAL(int, ftruncate64, int, off64_t);
  return fails(control->write_error, fd) ? -1 : real_ftruncate64(fd, size);
}

static void shift(struct timespec *time) {
  int64_t offset = control->clock_offset;
  if (!offset) return;
  int64_t nanoseconds = time->tv_nsec + offset % 1000000 * 1000;
  time->tv_sec += offset / 1000000 + nanoseconds / 1000000000;
  time->tv_nsec = nanoseconds % 1000000000;
  if (time->tv_nsec < 0) {
    time->tv_nsec += 1000000000;
    time->tv_sec--;
  }
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  REAL(int, clock_gettime, clockid_t, struct timespec *);
  int status = real_clock_gettime ? real_clock_gettime(clock, time) : (int)syscall(SYS_clock_gettime, clock, time);
  if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(time);
  return status;
}

int gettimeofday(struct timeval *restrict day, void *restrict zone) {
  (void)zone;
  struct timespec now;
  int status = clock_gettime(CLOCK_REALTIME, &now);
  day->tv_sec = now.tv_sec;
  day->tv_usec = now.tv_nsec / 1000;
  return status;
}

time_t time(time_t *kept) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (kept) *kept = now.tv_sec;
  return now.tv_sec;
}
