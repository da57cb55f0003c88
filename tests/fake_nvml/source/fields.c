/* Numbered fields: one call reads many fields, each with a separate return code. */
#include "gate.h"

static const struct { unsigned id; int signal; unsigned type; } known[] = {
#define FIELD(id, signal, type) {id, S_##signal, type},
#include "fields.def"
#undef FIELD
};

static void fill(const Gpu *gpu, FieldValue *wanted) {
    wanted->code = NOT_SUPPORTED;
    wanted->stamp_us = wanted->latency_us = 0;
    for (unsigned each = 0; each < sizeof(known) / sizeof(known[0]); each++) {
        if (known[each].id != wanted->id) continue;
        int forced = gpu->field_codes[each];
        double value = 0;
        wanted->code = forced > 0 ? forced : read_signal(gpu, known[each].signal, &value);
        if (wanted->code || forced < 0) return; /* some fields return success without a value */
        wanted->stamp_us = wall_us();
        wanted->type = known[each].type;
        wanted->value.ull = 0;
        if (wanted->type == TYPE_UINT) wanted->value.ui = (unsigned)value;
        else wanted->value.ull = (unsigned long long)value;
    }
}

int nvmlDeviceGetFieldValues(Handle handle, int count, FieldValue *values) {
    BOARD(nvmlDeviceGetFieldValues, handle);
    for (int each = 0; each < count; each++) fill(found.gpu, &values[each]);
    return SUCCESS;
}
