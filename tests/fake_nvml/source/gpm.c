/* The performance monitor: the mean between two samples, or NaN if they are less than 100 ms apart. */
#include "gate.h"

#include <math.h>
#include <stdlib.h>

#define SHORTEST_NS 100000000

typedef struct { int64_t at_ns; int gpu, slot; } Taken; /* slot -1: the whole board */

int nvmlGpmQueryDeviceSupport(Handle handle, GpmSupport *out) {
    BOARD(nvmlGpmQueryDeviceSupport, handle);
    if (out->version != 1) return VERSION_MISMATCH;
    return read_uint(found.gpu, S_gpm_support, &out->supported);
}

int nvmlGpmSampleAlloc(Handle *out) {
    int code = enter(F_nvmlGpmSampleAlloc, -1);
    if (!code) *out = calloc(1, sizeof(Taken));
    return code;
}

int nvmlGpmSampleFree(Handle sample) {
    if (scene) __atomic_add_fetch(&scene->calls[F_nvmlGpmSampleFree].calls_count, 1, __ATOMIC_RELAXED);
    free(sample);
    return SUCCESS;
}

int nvmlGpmSampleGet(Handle handle, Handle sample) {
    BOARD(nvmlGpmSampleGet, handle);
    *(Taken *)sample = (Taken){now_ns(), found.index, -1};
    return SUCCESS;
}

int nvmlGpmMigSampleGet(Handle handle, unsigned instance, Handle sample) {
    BOARD(nvmlGpmMigSampleGet, handle);
    for (int slot = 0; slot < INSTANCES; slot++)
        if (found.gpu->instances[slot].present && found.gpu->instances[slot].instance_id == instance)
            return *(Taken *)sample = (Taken){now_ns(), found.index, slot}, SUCCESS;
    return NOT_FOUND;
}

/* Return a metric's signal, and the ratio of the metric's unit to the signal's unit. */
static int metric(unsigned id, double *scale) {
    *scale = id == 20 || id == 21 ? 1024 : 1; /* MiB per second from KiB */
    switch (id) {
    case 2: return S_sm_activity_percent;
    case 3: return S_sm_occupancy_percent;
    case 5: return S_tensor_activity_percent;
    case 10: return S_dram_activity_percent;
    case 20: return S_pcie_sent_kib;
    case 21: return S_pcie_received_kib;
    default: return -1;
    }
}

/* A MIG instance has separate activities, and no PCIe metrics. */
static int of_instance(const Instance *instance, unsigned id, double *value) {
    switch (id) {
    case 2: *value = instance->sm_activity_percent; return SUCCESS;
    case 3: *value = instance->sm_occupancy_percent; return SUCCESS;
    case 5: *value = instance->tensor_activity_percent; return SUCCESS;
    case 10: *value = instance->dram_activity_percent; return SUCCESS;
    default: return NOT_SUPPORTED;
    }
}

static int mean(const Taken *first, const Taken *second, unsigned id, double *value) {
    const Gpu *board = &scene->gpus[second->gpu];
    double scale, end;
    if (second->slot >= 0) return of_instance(&board->instances[second->slot], id, value);
    int signal = metric(id, &scale);
    int code = signal < 0 ? NOT_SUPPORTED : read_signal(board, signal, &end);
    if (!code) *value = (at(board, signal, first->at_ns) + end) / 2 / scale;
    return code;
}

int nvmlGpmMetricsGet(GpmRequest *request) {
    const Taken *first = request->first, *second = request->second;
    int code = enter(F_nvmlGpmMetricsGet, second->gpu);
    if (code) return code;
    if (request->version != 1) return VERSION_MISMATCH;
    for (unsigned each = 0; each < request->count; each++) {
        GpmMetric *wanted = &request->metrics[each];
        wanted->code = mean(first, second, wanted->id, &wanted->value);
        if (!wanted->code && second->at_ns - first->at_ns < SHORTEST_NS) wanted->value = NAN;
    }
    return SUCCESS;
}
