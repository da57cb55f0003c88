/* Changed clocks: adds the content of the file $TEST_CLOCKS, two int64 nanoseconds, to CLOCK_REALTIME and CLOCK_BOOTTIME. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static const volatile long long *offsets;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TEST_CLOCKS");
    int descriptor = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (descriptor >= 0) {
        void *page = mmap(0, 16, PROT_READ, MAP_SHARED, descriptor, 0);
        offsets = page == MAP_FAILED ? 0 : page;
    }
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (!real) begin();
    int failed = real(clock, out);
    long long add = failed || !offsets ? 0 : clock == CLOCK_REALTIME ? offsets[0] : clock == CLOCK_BOOTTIME ? offsets[1] : 0;
    long long all = out->tv_nsec + add;
    out->tv_sec += all / 1000000000 - (all % 1000000000 < 0);
    out->tv_nsec = ((all % 1000000000) + 1000000000) % 1000000000;
    return failed;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
