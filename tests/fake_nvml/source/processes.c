/* The processes on a GPU: three lists in three versions, a list with details, and the utilisation record. */
#include "gate.h"

#include <string.h>

enum { COMPUTE = 1, GRAPHICS = 2, MPS = 4 };

static const Processes *on(const Gpu *gpu) { return &gpu->processes[__atomic_load_n(&gpu->shown, __ATOMIC_ACQUIRE) & 1]; }

static int shown(const Found *found, const Process *process, unsigned lists) {
    return (process->lists & lists) && (!found->instance || found->instance->instance_id == process->instance_id);
}

/* Entries of all versions begin with the same fields; `size` distinguishes them. */
static int list(const Found *found, unsigned lists, unsigned size, unsigned *count, void *out) {
    const Processes *all = on(found->gpu);
    unsigned room = out ? *count : 0, number = 0;
    for (unsigned each = 0; each < all->count; each++) {
        const Process *process = &all->entries[each];
        if (!shown(found, process, lists)) continue;
        if (number < room) {
            ProcessV2 entry = {process->pid, process->memory_bytes, process->instance_id, process->compute_id};
            memcpy((char *)out + (size_t)number * size, &entry, size);
        }
        number++;
    }
    *count = number;
    return number > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define LIST(function, type, lists) \
    int function(Handle handle, unsigned *count, type *out) { \
        ANY(function, handle); \
        return list(&found, lists, sizeof(type), count, out); \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, ProcessV1, COMPUTE)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, ProcessV2, COMPUTE)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, ProcessV2, COMPUTE)
LIST(nvmlDeviceGetGraphicsRunningProcesses, ProcessV1, GRAPHICS)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, ProcessV2, GRAPHICS)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, ProcessV2, GRAPHICS)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, ProcessV1, MPS)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, ProcessV2, MPS)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, ProcessV2, MPS)

int nvmlDeviceGetRunningProcessDetailList(Handle handle, ProcessDetails *out) {
    ANY(nvmlDeviceGetRunningProcessDetailList, handle);
    if (out->version != VERSION(ProcessDetails, 1)) return VERSION_MISMATCH;
    if (out->mode > 2) return INVALID_ARGUMENT;
    const Processes *all = on(found.gpu);
    unsigned room = out->entries ? out->count : 0, number = 0;
    for (unsigned each = 0; each < all->count; each++) {
        const Process *process = &all->entries[each];
        if (!shown(&found, process, 1u << out->mode)) continue;
        if (number < room)
            out->entries[number] =
                (ProcessDetail){process->pid, process->memory_bytes, process->instance_id, process->compute_id, 0};
        number++;
    }
    out->count = number;
    return number > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetProcessUtilization(Handle handle, ProcessShare *out, unsigned *count, unsigned long long since_us) {
    ANY(nvmlDeviceGetProcessUtilization, handle);
    int64_t period_us = scene->utilization_period_ns / 1000;
    unsigned long long stamp_us = wall_us() / period_us * period_us; /* one entry per process, as of the last refresh */
    const Processes *all = on(found.gpu);
    unsigned room = out ? *count : 0, number = 0;
    if (stamp_us <= since_us) return NOT_FOUND;
    for (unsigned each = 0; each < all->count; each++) {
        const Process *process = &all->entries[each];
        if (!process->sm_percent && !process->mem_percent) continue;
        if (number < room) out[number] = (ProcessShare){process->pid, stamp_us, process->sm_percent, process->mem_percent, 0, 0};
        number++;
    }
    *count = number;
    if (!number) return NOT_FOUND;
    return number > room ? INSUFFICIENT_SIZE : SUCCESS;
}
