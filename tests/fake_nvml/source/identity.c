/* The list of GPUs, their identities, and their MIG instances. */
#include "gate.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static int listed(unsigned index) { /* the board at this index of the list; -1: none */
    for (int gpu = 0; gpu < (int)scene->gpus_count; gpu++)
        if (!scene->gpus[gpu].absent && index-- == 0) return gpu;
    return -1;
}

static int given(int function, int gpu, int slot, Handle *out) {
    int code = enter(function, gpu);
    if (code) return code;
    if (gpu < 0) return NOT_FOUND;
    *out = handle_of(gpu, slot);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *out) {
    int code = enter(F_nvmlDeviceGetCount_v2, -1);
    if (code) return code;
    for (*out = 0; listed(*out) >= 0;) ++*out;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *out) {
    int gpu = scene ? listed(index) : -1;
    int code = given(F_nvmlDeviceGetHandleByIndex_v2, gpu, -1, out);
    return code == NOT_FOUND && gpu < 0 ? INVALID_ARGUMENT : code;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Handle *out) {
    int found = -1, slot = -1;
    for (int gpu = 0; scene && gpu < (int)scene->gpus_count; gpu++) {
        const Gpu *board = &scene->gpus[gpu];
        if (board->absent) continue;
        if (!strcmp(board->uuid, uuid)) found = gpu;
        for (int each = 0; each < INSTANCES; each++)
            if (board->instances[each].present && !strcmp(board->instances[each].uuid, uuid)) found = gpu, slot = each;
    }
    return given(F_nvmlDeviceGetHandleByUUID, found, slot, out);
}

static void bus_id(const Gpu *board, char *out, unsigned size) {
    snprintf(out, size, "%08X:%02X:%02X.0", board->domain, board->bus, board->device);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *wanted, Handle *out) {
    int found = -1;
    char known[32];
    for (int gpu = 0; scene && gpu < (int)scene->gpus_count; gpu++) {
        bus_id(&scene->gpus[gpu], known, sizeof(known));
        /* Programs write the domain with four digits or eight. */
        if (!scene->gpus[gpu].absent && (!strcasecmp(known, wanted) || !strcasecmp(known + 4, wanted))) found = gpu;
    }
    return given(F_nvmlDeviceGetHandleByPciBusId_v2, found, -1, out);
}

int nvmlDeviceGetIndex(Handle handle, unsigned *out) {
    ANY(nvmlDeviceGetIndex, handle);
    if (found.instance) return *out = found.slot, SUCCESS;
    *out = 0;
    for (int gpu = 0; gpu < found.index; gpu++) *out += !scene->gpus[gpu].absent;
    return SUCCESS;
}

int nvmlDeviceGetUUID(Handle handle, char *out, unsigned size) {
    ANY(nvmlDeviceGetUUID, handle);
    return text(out, size, found.instance ? found.instance->uuid : found.gpu->uuid);
}

int nvmlDeviceGetName(Handle handle, char *out, unsigned size) {
    ANY(nvmlDeviceGetName, handle);
    return text(out, size, found.instance ? found.instance->name : found.gpu->name);
}

int nvmlDeviceGetSerial(Handle handle, char *out, unsigned size) {
    BOARD(nvmlDeviceGetSerial, handle);
    return text(out, size, found.gpu->serial);
}

int nvmlDeviceGetVbiosVersion(Handle handle, char *out, unsigned size) {
    BOARD(nvmlDeviceGetVbiosVersion, handle);
    return text(out, size, found.gpu->vbios);
}

int nvmlDeviceGetPciInfo_v3(Handle handle, PciInfo *out) {
    BOARD(nvmlDeviceGetPciInfo_v3, handle);
    *out = (PciInfo){.domain = found.gpu->domain, .bus = found.gpu->bus, .device = found.gpu->device, .ids = found.gpu->pci_ids};
    bus_id(found.gpu, out->bus_id, sizeof(out->bus_id));
    snprintf(out->legacy, sizeof(out->legacy), "%s", out->bus_id + 4);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Handle handle, int *major, int *minor) {
    ANY(nvmlDeviceGetCudaComputeCapability, handle);
    int code = read_uint(found.gpu, S_compute_capability_major, (unsigned *)major);
    return code ? code : read_uint(found.gpu, S_compute_capability_minor, (unsigned *)minor);
}

int nvmlDeviceGetNumGpuCores(Handle handle, unsigned *out) {
    ANY(nvmlDeviceGetNumGpuCores, handle);
    if (found.instance) return *out = found.instance->cores_count, SUCCESS;
    return read_uint(found.gpu, S_cuda_cores_count, out);
}

/* MIG */

int nvmlDeviceGetMigMode(Handle handle, unsigned *now, unsigned *pending) {
    BOARD(nvmlDeviceGetMigMode, handle);
    int code = read_uint(found.gpu, S_mig_mode, now);
    *pending = *now;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(Handle handle, unsigned *out) {
    BOARD(nvmlDeviceGetMaxMigDeviceCount, handle);
    *out = INSTANCES;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Handle handle, unsigned slot, Handle *out) {
    BOARD(nvmlDeviceGetMigDeviceHandleByIndex, handle);
    if (slot >= INSTANCES || !found.gpu->instances[slot].present) return NOT_FOUND;
    *out = handle_of(found.index, (int)slot);
    return SUCCESS;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle handle, Handle *out) {
    ANY(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle);
    if (!found.instance) return INVALID_ARGUMENT;
    *out = handle_of(found.index, -1);
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(Handle handle, unsigned *out) {
    ANY(nvmlDeviceIsMigDeviceHandle, handle);
    *out = found.instance != NULL;
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Handle handle, unsigned *out) {
    ANY(nvmlDeviceGetGpuInstanceId, handle);
    if (!found.instance) return NOT_SUPPORTED;
    *out = found.instance->instance_id;
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(Handle handle, unsigned *out) {
    ANY(nvmlDeviceGetComputeInstanceId, handle);
    if (!found.instance) return NOT_SUPPORTED;
    *out = found.instance->compute_id;
    return SUCCESS;
}
