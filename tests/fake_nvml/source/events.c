/* Events: a set receives the events after its creation, of the kinds registered for it. */
#include "gate.h"

#include <stdlib.h>

typedef struct { uint64_t seen; uint64_t kinds[GPUS]; } Set;

int nvmlEventSetCreate(Handle *out) {
    int code = enter(F_nvmlEventSetCreate, -1);
    if (code) return code;
    Set *set = calloc(1, sizeof(*set));
    set->seen = __atomic_load_n(&scene->events_count, __ATOMIC_ACQUIRE);
    *out = set;
    return SUCCESS;
}

int nvmlEventSetFree(Handle set) {
    if (scene) __atomic_add_fetch(&scene->calls[F_nvmlEventSetFree].calls_count, 1, __ATOMIC_RELAXED);
    free(set);
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(Handle handle, unsigned long long kinds, Handle set) {
    BOARD(nvmlDeviceRegisterEvents, handle);
    if (kinds & ~(unsigned long long)at(found.gpu, S_event_types_mask, now_ns())) return NOT_SUPPORTED;
    ((Set *)set)->kinds[found.index] |= kinds;
    return SUCCESS;
}

static int wait_for(int function, Set *set, EventData *out, unsigned timeout_ms) {
    int64_t end_ns = now_ns() + timeout_ms * 1000000ll;
    for (int code = enter(function, -1);; nap(100000000)) {
        if (!code) code = scene->driver_code; /* the driver may be unloaded during the wait */
        if (code) return code;
        uint64_t last = __atomic_load_n(&scene->events_count, __ATOMIC_ACQUIRE);
        if (set->seen + EVENTS < last) set->seen = last - EVENTS; /* the oldest were overwritten */
        while (set->seen < last) {
            const Event *event = &scene->events[set->seen++ % EVENTS];
            if (!(set->kinds[event->gpu] & event->kind)) continue;
            *out = (EventData){handle_of((int)event->gpu, -1), event->kind, event->value, ~0u, ~0u};
            return SUCCESS;
        }
        if (now_ns() >= end_ns) return TIMEOUT;
    }
}

int nvmlEventSetWait_v2(Handle set, EventData *out, unsigned timeout_ms) {
    return wait_for(F_nvmlEventSetWait_v2, set, out, timeout_ms);
}

int nvmlEventSetWait(Handle set, EventDataV1 *out, unsigned timeout_ms) {
    EventData whole;
    int code = wait_for(F_nvmlEventSetWait, set, &whole, timeout_ms);
    if (!code) *out = (EventDataV1){whole.device, whole.kind, whole.value};
    return code;
}
