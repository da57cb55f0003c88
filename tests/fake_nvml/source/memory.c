/* Memory, with each call's definition of used memory. */
#include "gate.h"

/* A MIG instance has no separate reserve. */
static int memory(const Found *found, unsigned long long *total, unsigned long long *reserved, unsigned long long *used) {
    if (found->instance) {
        *total = found->instance->memory_total_bytes, *used = found->instance->memory_used_bytes, *reserved = 0;
        return SUCCESS;
    }
    double amounts[3];
    static const int signals[] = {S_memory_total_bytes, S_memory_reserved_bytes, S_memory_used_bytes};
    for (int each = 0; each < 3; each++) {
        int code = read_signal(found->gpu, signals[each], &amounts[each]);
        if (code) return code;
    }
    *total = amounts[0], *reserved = amounts[1], *used = amounts[2];
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Handle handle, Memory *out) {
    ANY(nvmlDeviceGetMemoryInfo, handle);
    unsigned long long total, reserved, used;
    int code = memory(&found, &total, &reserved, &used);
    if (!code) *out = (Memory){total, total - reserved - used, reserved + used}; /* this call counts the reserve as used */
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(Handle handle, MemoryV2 *out) {
    ANY(nvmlDeviceGetMemoryInfo_v2, handle);
    if (out->version != VERSION(MemoryV2, 2)) return VERSION_MISMATCH;
    int code = memory(&found, &out->total, &out->reserved, &out->used);
    if (!code) out->free = out->total - out->reserved - out->used;
    return code;
}

int nvmlDeviceGetBAR1MemoryInfo(Handle handle, Memory *out) {
    BOARD(nvmlDeviceGetBAR1MemoryInfo, handle);
    double total, used;
    int code = read_signal(found.gpu, S_bar1_total_bytes, &total);
    if (!code) code = read_signal(found.gpu, S_bar1_used_bytes, &used);
    if (!code) *out = (Memory){total, total - used, used};
    return code;
}

int nvmlDeviceGetConfComputeMemSizeInfo(Handle handle, MemoryConf *out) {
    BOARD(nvmlDeviceGetConfComputeMemSizeInfo, handle);
    double total;
    int code = read_signal(found.gpu, S_memory_total_bytes, &total);
    if (!code) *out = (MemoryConf){0, total / 1024};
    return code;
}
