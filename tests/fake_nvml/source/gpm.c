/* The performance monitor: a mean between two samples, and nonsense between two that are too near. */
#include "gate.h"

#include <math.h>
#include <stdlib.h>

#define SHORTEST_NS 100000000

typedef struct { int64_t at_ns; int gpu; } Taken;

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
    *(Taken *)sample = (Taken){now_ns(), found.index};
    return SUCCESS;
}

int nvmlGpmMigSampleGet(Handle handle, unsigned instance, Handle sample) {
    BOARD(nvmlGpmMigSampleGet, handle);
    for (int slot = 0; slot < INSTANCES; slot++)
        if (found.gpu->instances[slot].present && found.gpu->instances[slot].instance_id == instance)
            return *(Taken *)sample = (Taken){now_ns(), found.index}, SUCCESS;
    return NOT_FOUND;
}

static int metric(unsigned id) {
    switch (id) {
    case 2: return S_sm_activity_percent;
    case 3: return S_sm_occupancy_percent;
    case 5: return S_tensor_activity_percent;
    case 10: return S_dram_activity_percent;
    default: return -1;
    }
}

int nvmlGpmMetricsGet(GpmRequest *request) {
    const Taken *first = request->first, *second = request->second;
    int code = enter(F_nvmlGpmMetricsGet, second->gpu);
    if (code) return code;
    if (request->version != 1) return VERSION_MISMATCH;
    for (unsigned each = 0; each < request->count; each++) {
        GpmMetric *wanted = &request->metrics[each];
        int signal = metric(wanted->id);
        double begin, end;
        wanted->code = signal < 0 ? NOT_SUPPORTED : read_signal(&scene->gpus[second->gpu], signal, &end);
        if (wanted->code) continue;
        begin = at(&scene->gpus[second->gpu], signal, first->at_ns);
        wanted->value = second->at_ns - first->at_ns < SHORTEST_NS ? NAN : (begin + end) / 2;
    }
    return SUCCESS;
}
