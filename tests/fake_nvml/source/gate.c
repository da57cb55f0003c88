#define _GNU_SOURCE
#include "gate.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HANDLES 64 /* generations of a GPU until its handles repeat */

Scene *scene;

static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;
static volatile int users;
static volatile uint32_t driver_generation;
static volatile uint32_t gpu_generations[GPUS];
static char handles[GPUS][HANDLES][INSTANCES + 1]; /* a handle is an address in this array, which stores nothing */

/* The driver */

static int map(void) {
    const char *path = getenv("FAKE_NVML_SCENE");
    struct stat facts;
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return DRIVER_NOT_LOADED;
    void *mapped = MAP_FAILED;
    if (!fstat(file, &facts) && facts.st_size == (off_t)sizeof(Scene))
        mapped = mmap(NULL, sizeof(Scene), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED || ((Scene *)mapped)->magic != MAGIC) {
        fprintf(stderr, "%s: no scene of this library: build both from the same sources\n", path);
        return DRIVER_NOT_LOADED;
    }
    scene = mapped;
    return SUCCESS;
}

int attach(int function) {
    pthread_mutex_lock(&attaching);
    int code = scene ? SUCCESS : map();
    if (!code) code = enter(function, -1);
    if (!code && users++ == 0) {
        driver_generation = scene->generation;
        for (int gpu = 0; gpu < GPUS; gpu++) gpu_generations[gpu] = scene->gpus[gpu].generation;
    }
    pthread_mutex_unlock(&attaching);
    return code;
}

int detach(void) {
    pthread_mutex_lock(&attaching);
    int code = users ? SUCCESS : UNINITIALIZED;
    if (users) users--;
    pthread_mutex_unlock(&attaching);
    if (scene) __atomic_add_fetch(&scene->calls[F_nvmlShutdown].calls_count, 1, __ATOMIC_RELAXED);
    return code;
}

/* Time */

int64_t clock_ns(int clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
int64_t wall_us(void) { return clock_ns(CLOCK_REALTIME) / 1000; }

void nap(int64_t ns) {
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    nanosleep(&time, NULL);
}

/* A call */

static int pass(Call *call) {
    __atomic_add_fetch(&call->calls_count, 1, __ATOMIC_RELAXED);
    uint64_t cost_ns = call->cost_ns;
    if (cost_ns)
        for (int64_t end_ns = now_ns() + (int64_t)cost_ns; now_ns() < end_ns;) {} /* a busy loop, because the driver uses CPU time too */
    while (__atomic_load_n(&call->hangs, __ATOMIC_ACQUIRE)) nap(1000000);
    return call->code;
}

int enter(int function, int gpu) {
    if (!scene) return UNINITIALIZED;
    int initial = function == F_nvmlInit_v2 || function == F_nvmlInitWithFlags;
    int code = pass(&scene->calls[function]);
    int gpu_code = gpu >= 0 ? pass(&scene->gpus[gpu].calls[function]) : SUCCESS;
    if (!initial && !users) return UNINITIALIZED;
    if (scene->driver_code) return scene->driver_code;
    if (!initial && driver_generation != scene->generation) return scene->stale_code;
    if (code || gpu < 0) return code;
    const Gpu *board = &scene->gpus[gpu];
    if (board->code) return board->code;
    if (board->attach_anew && gpu_generations[gpu] != board->generation) return GPU_IS_LOST;
    return gpu_code;
}

Handle handle_of(int gpu, int slot) { return &handles[gpu][scene->gpus[gpu].generation % HANDLES][slot + 1]; }

int enter_with(int function, Handle handle, Found *found) {
    long offset = (char *)handle - &handles[0][0][0];
    if (offset < 0 || offset >= (long)sizeof(handles)) {
        int code = enter(function, -1);
        return code ? code : INVALID_ARGUMENT;
    }
    int gpu = offset / (HANDLES * (INSTANCES + 1)), slot = offset % (INSTANCES + 1) - 1;
    uint32_t generation = offset / (INSTANCES + 1) % HANDLES;
    int code = enter(function, gpu);
    if (code) return code;
    Gpu *board = &scene->gpus[gpu];
    if (board->absent || generation != board->generation % HANDLES) return GPU_IS_LOST;
    if (slot >= 0 && !board->instances[slot].present) return NOT_FOUND;
    *found = (Found){gpu, slot, board, slot >= 0 ? &board->instances[slot] : NULL};
    return SUCCESS;
}

/* Values */

static double scatter(uint64_t tick) { /* between -1 and 1, different at each refresh */
    uint64_t mixed = (tick + 1) * 0x9e3779b97f4a7c15ull;
    mixed ^= mixed >> 29;
    mixed *= 0xbf58476d1ce4e5b9ull;
    return (double)(mixed >> 12) / (double)(1ull << 51) - 1;
}

double at(const Gpu *gpu, int signal, int64_t when_ns) {
    const Signal *known = &gpu->signals[signal];
    const Line *line = &known->lines[__atomic_load_n(&known->shown, __ATOMIC_ACQUIRE) & 1];
    int64_t refresh_ns = known->refresh_ns > 0 ? known->refresh_ns : 1;
    uint64_t tick = (uint64_t)(when_ns / refresh_ns);
    int64_t filled_ns = (int64_t)tick * refresh_ns;
    /* A set value applies at once, and its rate from the next refresh on. */
    double moved = filled_ns > line->since_ns ? line->rate * (double)(filled_ns - line->since_ns) / 1e9 : 0;
    return line->value + moved + (line->ripple ? line->ripple * scatter(tick) : 0);
}

int read_signal(const Gpu *gpu, int signal, double *value) {
    if (gpu->signals[signal].code) return gpu->signals[signal].code;
    *value = at(gpu, signal, now_ns());
    return SUCCESS;
}

int read_uint(const Gpu *gpu, int signal, unsigned *out) {
    double value;
    int code = read_signal(gpu, signal, &value);
    if (!code) *out = (unsigned)value;
    return code;
}

int text(char *out, unsigned size, const char *from) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, from);
    return SUCCESS;
}
