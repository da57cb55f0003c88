/* The driver's own records of the last seconds: power, utilisation and clocks. */
#define _GNU_SOURCE
#include "gate.h"

#include <time.h>

static int signal_of(int kind) {
    switch (kind) {
    case 0: return S_power_mw;
    case 1: return S_utilization_percent;
    case 2: return S_mem_utilization_percent;
    case 5: return S_sm_clock_mhz;
    case 6: return S_mem_clock_mhz;
    default: return -1;
    }
}

int nvmlDeviceGetSamples(
    Handle handle, int kind, unsigned long long since_us, unsigned *type, unsigned *count, Sample *out) {
    BOARD(nvmlDeviceGetSamples, handle);
    int signal = signal_of(kind);
    if (signal < 0) return NOT_SUPPORTED;
    int64_t stamped_ns = clock_ns(scene->stamps_boot ? CLOCK_BOOTTIME : CLOCK_REALTIME), monotonic_ns = now_ns();
    int64_t period_ns = scene->power_period_ns, newest_ns = stamped_ns / period_ns * period_ns;
    int64_t oldest_ns = newest_ns - (scene->power_samples_count - 1) * period_ns;
    /* A record starts when the scene is created, as a real one when the driver is loaded. */
    int64_t begin_ns = scene->epoch_ns + (stamped_ns - monotonic_ns);
    unsigned number = 0;
    if (found.gpu->signals[signal].code) return found.gpu->signals[signal].code;
    *type = TYPE_UINT;
    for (int64_t stamp_ns = oldest_ns; stamp_ns <= newest_ns; stamp_ns += period_ns) {
        if (stamp_ns < begin_ns || (unsigned long long)stamp_ns / 1000 <= since_us) continue;
        if (out && number < *count) {
            double value = at(found.gpu, signal, stamp_ns - (stamped_ns - monotonic_ns));
            out[number] = (Sample){(unsigned long long)stamp_ns / 1000, {.ull = (unsigned)value}};
        }
        number++;
    }
    if (!number) return NOT_FOUND;
    if (out) *count = number < *count ? number : *count;
    else *count = scene->power_samples_count; /* a query of the size returns the maximum */
    return SUCCESS;
}
