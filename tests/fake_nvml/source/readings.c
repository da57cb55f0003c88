/* The current values of a board; each call returns one or a few. */
#include "gate.h"

#define UINT(function, signal) \
    int function(Handle handle, unsigned *out) { \
        BOARD(function, handle); \
        return read_uint(found.gpu, S_##signal, out); \
    }

#define WIDE(function, signal) \
    int function(Handle handle, unsigned long long *out) { \
        BOARD(function, handle); \
        double value; \
        int code = read_signal(found.gpu, S_##signal, &value); \
        if (!code) *out = (unsigned long long)value; \
        return code; \
    }

UINT(nvmlDeviceGetArchitecture, architecture)
UINT(nvmlDeviceGetMemoryBusWidth, memory_bus_bits_count)
UINT(nvmlDeviceGetNumaNodeId, numa_node_count)
UINT(nvmlDeviceGetVirtualizationMode, virtualization_mode)
UINT(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation_max_count)
UINT(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max_count)
UINT(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation_count)
UINT(nvmlDeviceGetCurrPcieLinkWidth, pcie_width_count)
UINT(nvmlDeviceGetPcieReplayCounter, pcie_replay_count)
UINT(nvmlDeviceGetPowerUsage, power_average_mw)
UINT(nvmlDeviceGetEnforcedPowerLimit, power_limit_mw)
UINT(nvmlDeviceGetPowerManagementLimit, power_limit_mw)
UINT(nvmlDeviceGetPowerManagementDefaultLimit, power_limit_default_mw)
UINT(nvmlDeviceGetPersistenceMode, persistence_mode)
UINT(nvmlDeviceGetComputeMode, compute_mode)
UINT(nvmlDeviceGetDisplayMode, display_mode)
UINT(nvmlDeviceGetDisplayActive, display_active)
UINT(nvmlDeviceGetPerformanceState, performance_state)
UINT(nvmlDeviceGetFanSpeed, fan_percent)
WIDE(nvmlDeviceGetCurrentClocksEventReasons, event_reasons_mask)
WIDE(nvmlDeviceGetCurrentClocksThrottleReasons, event_reasons_mask)
WIDE(nvmlDeviceGetSupportedClocksEventReasons, supported_reasons_mask)
WIDE(nvmlDeviceGetSupportedClocksThrottleReasons, supported_reasons_mask)
WIDE(nvmlDeviceGetSupportedEventTypes, event_types_mask)
WIDE(nvmlDeviceGetTotalEnergyConsumption, energy_mj)

static int read_clock(const Gpu *gpu, int kind, int sm, int mem, int video, unsigned *out) {
    switch (kind) {
    case 0: case 1: return read_uint(gpu, sm, out);
    case 2: return read_uint(gpu, mem, out);
    case 3: return read_uint(gpu, video, out);
    default: return INVALID_ARGUMENT;
    }
}

int nvmlDeviceGetClockInfo(Handle handle, int kind, unsigned *out) {
    BOARD(nvmlDeviceGetClockInfo, handle);
    return read_clock(found.gpu, kind, S_sm_clock_mhz, S_mem_clock_mhz, S_video_clock_mhz, out);
}

int nvmlDeviceGetMaxClockInfo(Handle handle, int kind, unsigned *out) {
    BOARD(nvmlDeviceGetMaxClockInfo, handle);
    return read_clock(found.gpu, kind, S_sm_clock_max_mhz, S_mem_clock_max_mhz, S_video_clock_max_mhz, out);
}

int nvmlDeviceGetApplicationsClock(Handle handle, int kind, unsigned *out) {
    BOARD(nvmlDeviceGetApplicationsClock, handle);
    return read_clock(found.gpu, kind, S_application_clock_mhz, S_mem_clock_max_mhz, S_video_clock_max_mhz, out);
}

int nvmlDeviceGetDefaultApplicationsClock(Handle handle, int kind, unsigned *out) {
    BOARD(nvmlDeviceGetDefaultApplicationsClock, handle);
    return read_clock(found.gpu, kind, S_default_application_clock_mhz, S_mem_clock_max_mhz, S_video_clock_max_mhz, out);
}

int nvmlDeviceGetPowerManagementLimitConstraints(Handle handle, unsigned *least, unsigned *most) {
    BOARD(nvmlDeviceGetPowerManagementLimitConstraints, handle);
    int code = read_uint(found.gpu, S_power_limit_min_mw, least);
    return code ? code : read_uint(found.gpu, S_power_limit_max_mw, most);
}

int nvmlDeviceGetTemperature(Handle handle, int sensor, unsigned *out) {
    BOARD(nvmlDeviceGetTemperature, handle);
    return sensor ? INVALID_ARGUMENT : read_uint(found.gpu, S_temperature_c, out);
}

int nvmlDeviceGetTemperatureV(Handle handle, TemperatureV1 *out) {
    BOARD(nvmlDeviceGetTemperatureV, handle);
    if (out->version != VERSION(TemperatureV1, 1)) return VERSION_MISMATCH;
    return out->sensor ? INVALID_ARGUMENT : read_uint(found.gpu, S_temperature_c, (unsigned *)&out->temperature);
}

int nvmlDeviceGetTemperatureThreshold(Handle handle, int kind, unsigned *out) {
    BOARD(nvmlDeviceGetTemperatureThreshold, handle);
    if (kind > 1) return NOT_SUPPORTED;
    return read_uint(found.gpu, kind ? S_temperature_slowdown_c : S_temperature_shutdown_c, out);
}

int nvmlDeviceGetMarginTemperature(Handle handle, MarginV1 *out) {
    BOARD(nvmlDeviceGetMarginTemperature, handle);
    if (out->version != VERSION(MarginV1, 1)) return VERSION_MISMATCH;
    return read_uint(found.gpu, S_temperature_margin_c, (unsigned *)&out->margin);
}

int nvmlDeviceGetUtilizationRates(Handle handle, Utilization *out) {
    BOARD(nvmlDeviceGetUtilizationRates, handle);
    int code = read_uint(found.gpu, S_utilization_percent, &out->gpu);
    return code ? code : read_uint(found.gpu, S_mem_utilization_percent, &out->memory);
}

static int read_coder(const Gpu *gpu, int signal, unsigned *share, unsigned *period_us) {
    *period_us = 167000;
    return read_uint(gpu, signal, share);
}

int nvmlDeviceGetEncoderUtilization(Handle handle, unsigned *share, unsigned *period_us) {
    BOARD(nvmlDeviceGetEncoderUtilization, handle);
    return read_coder(found.gpu, S_encoder_percent, share, period_us);
}

int nvmlDeviceGetDecoderUtilization(Handle handle, unsigned *share, unsigned *period_us) {
    BOARD(nvmlDeviceGetDecoderUtilization, handle);
    return read_coder(found.gpu, S_decoder_percent, share, period_us);
}

int nvmlDeviceGetPcieThroughput(Handle handle, int counter, unsigned *out) {
    BOARD(nvmlDeviceGetPcieThroughput, handle);
    return read_uint(found.gpu, counter ? S_pcie_received_kib : S_pcie_sent_kib, out);
}

int nvmlDeviceGetNvLinkState(Handle handle, unsigned link, unsigned *out) {
    BOARD(nvmlDeviceGetNvLinkState, handle);
    unsigned links, active;
    int code = read_uint(found.gpu, S_nvlink_links_count, &links);
    if (!code) code = read_uint(found.gpu, S_nvlink_active_count, &active);
    if (code) return code;
    if (link >= links) return links ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *out = link < active;
    return SUCCESS;
}

int nvmlDeviceGetEccMode(Handle handle, unsigned *now, unsigned *pending) {
    BOARD(nvmlDeviceGetEccMode, handle);
    int code = read_uint(found.gpu, S_ecc_mode, now);
    *pending = *now;
    return code;
}

int nvmlDeviceGetTotalEccErrors(Handle handle, int kind, int counter, unsigned long long *out) {
    BOARD(nvmlDeviceGetTotalEccErrors, handle);
    (void)counter;
    double value;
    int code = read_signal(found.gpu, kind ? S_ecc_uncorrected_count : S_ecc_corrected_count, &value);
    if (!code) *out = (unsigned long long)value;
    return code;
}

int nvmlDeviceGetRemappedRows(Handle handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    BOARD(nvmlDeviceGetRemappedRows, handle);
    int code = read_uint(found.gpu, S_remapped_corrected_count, corrected);
    if (!code) code = read_uint(found.gpu, S_remapped_uncorrected_count, uncorrected);
    if (!code) code = read_uint(found.gpu, S_remap_pending_count, pending);
    return code ? code : read_uint(found.gpu, S_remap_failed_count, failed);
}

int nvmlDeviceGetViolationStatus(Handle handle, int policy, Violation *out) {
    BOARD(nvmlDeviceGetViolationStatus, handle);
    static const int signals[] = {S_power_violation_ns, S_thermal_violation_ns, S_sync_boost_violation_ns};
    if (policy < 0 || policy > 2) return NOT_SUPPORTED;
    double value;
    int code = read_signal(found.gpu, signals[policy], &value);
    if (!code) *out = (Violation){(unsigned long long)wall_us(), (unsigned long long)value};
    return code;
}
