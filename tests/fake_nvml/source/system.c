/* Initialisation, shutdown, versions and error texts. */
#include "gate.h"

int nvmlInit_v2(void) { return attach(F_nvmlInit_v2); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return attach(F_nvmlInitWithFlags); }
int nvmlShutdown(void) { return detach(); }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    int code = enter(F_nvmlSystemGetDriverVersion, -1);
    return code ? code : text(out, size, scene->driver_version);
}

int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    int code = enter(F_nvmlSystemGetNVMLVersion, -1);
    return code ? code : text(out, size, scene->nvml_version);
}

int nvmlSystemGetCudaDriverVersion(int *out) {
    int code = enter(F_nvmlSystemGetCudaDriverVersion, -1);
    if (!code) *out = scene->cuda_version;
    return code;
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    int code = enter(F_nvmlSystemGetCudaDriverVersion_v2, -1);
    if (!code) *out = scene->cuda_version;
    return code;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "The operation was successful";
    case UNINITIALIZED: return "The library was not initialised";
    case INVALID_ARGUMENT: return "An argument is not valid";
    case NOT_SUPPORTED: return "This GPU does not support the call";
    case NO_PERMISSION: return "This user has no permission";
    case NOT_FOUND: return "The object was not found";
    case INSUFFICIENT_SIZE: return "The buffer is too small";
    case DRIVER_NOT_LOADED: return "The driver is not loaded";
    case TIMEOUT: return "The time limit has passed";
    case GPU_IS_LOST: return "The GPU is lost";
    case VERSION_MISMATCH: return "The structure has another version";
    default: return "An unknown error occurred";
    }
}
