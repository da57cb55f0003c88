/* The binary interface of libnvidia-ml: return codes, and the structures that programs pass. */
#ifndef ABI_H
#define ABI_H
#include <stdint.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, VERSION_MISMATCH = 25,
};

enum { TYPE_DOUBLE = 0, TYPE_UINT = 1, TYPE_ULONG = 2, TYPE_ULONGLONG = 3 };

/* The first member of a versioned structure: its size, and its version number in the top byte. */
#define VERSION(type, number) ((unsigned)(sizeof(type) | (number) << 24))

typedef void *Handle;

typedef union { double d; unsigned ui; unsigned long long ull; } Value;

typedef struct { char legacy[16]; unsigned domain, bus, device, ids, subsystem; char bus_id[32]; } PciInfo;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned long long protected_kib, unprotected_kib; } MemoryConf;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned version, sensor; int temperature; } TemperatureV1;
typedef struct { unsigned version; int margin; } MarginV1;
typedef struct { unsigned long long reference_us, violation_ns; } Violation;
typedef struct {
    unsigned id, scope; long long stamp_us, latency_us; unsigned type; int code; Value value;
} FieldValue;

typedef struct { unsigned pid; unsigned long long memory; } ProcessV1;
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } ProcessV2; /* v3 has the same layout */
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; unsigned long long guarded; } ProcessDetail;
typedef struct { unsigned version, mode, count; ProcessDetail *entries; } ProcessDetails;
typedef struct { unsigned pid; unsigned long long stamp_us; unsigned sm, mem, enc, dec; } ProcessShare;
typedef struct { unsigned long long stamp_us; Value value; } Sample;

typedef struct { Handle device; unsigned long long kind, value; unsigned instance, compute; } EventData;
typedef struct { Handle device; unsigned long long kind, value; } EventDataV1;

typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { unsigned id; int code; double value; char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; Handle first, second; GpmMetric metrics[]; } GpmRequest;
#endif
