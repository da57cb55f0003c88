/* The true clock: a kernel with one thread per SM, on the program's stream; the first eight SMs write cycle counter and timer.
 *
 * All calls use the driver that the program has loaded; without a driver or a context, the functions do nothing.
 * Rows are in a ring buffer in device memory.  Rows are read on a stream that waits for no other stream.
 */
#include "library.h"
#include "stamp_ptx.h"


enum { SMS_KEPT = 8, CAPACITY = 1 << 18, CELLS = 2 * SMS_KEPT, READ_AT_ONCE = 4096 };
#define ROW_BYTES (CELLS * sizeof(uint64_t))
enum { MULTIPROCESSOR_COUNT = 16, NON_BLOCKING = 1, MODE_RELAXED = 2, EVENT_DISABLE_TIMING = 2, LEAST_MHZ = 100, MOST_MHZ = 5000 };

typedef void *handle;

/* The driver's functions, by exported name.  They return a CUresult: 0 is success. */
#define DRIVER(_) \
    _(cuCtxGetCurrent, (handle *)) _(cuCtxSetCurrent, (handle)) _(cuCtxPushCurrent_v2, (handle)) _(cuCtxPopCurrent_v2, (handle *)) \
    _(cuCtxGetDevice, (int *)) _(cuCtxSynchronize, (void)) _(cuDeviceGetCount, (int *)) \
    _(cuDevicePrimaryCtxGetState, (int, unsigned *, int *)) _(cuDevicePrimaryCtxRetain, (handle *, int)) \
    _(cuDevicePrimaryCtxRelease_v2, (int)) _(cuDeviceGetAttribute, (int *, int, int)) _(cuDeviceGetUuid, (unsigned char *, int)) \
    _(cuModuleLoadData, (handle *, const void *)) _(cuModuleGetFunction, (handle *, handle, const char *)) \
    _(cuMemAlloc_v2, (uint64_t *, size_t)) _(cuMemsetD8Async, (uint64_t, unsigned char, size_t, handle)) \
    _(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, handle)) _(cuStreamCreate, (handle *, unsigned)) \
    _(cuStreamSynchronize, (handle)) _(cuStreamIsCapturing, (handle, int *)) _(cuThreadExchangeStreamCaptureMode, (int *)) \
    _(cuLaunchKernel, (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **))
#define DECLARE(name, arguments) int(*name) arguments;
static struct {
    DRIVER(DECLARE)
    int (*cuCtxGetId)(handle, unsigned long long *); /* since CUDA 12 */
} cu;

static pthread_mutex_t stamps_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_loaded, has_ended;
static struct {
    handle context, function, stream; /* stream: for reading rows */
    unsigned long long context_id;
    uint64_t base;
    int sms_count, device;
    int64_t next;       /* the number of the next stamp; rows are reused */
    int64_t *host_ns;   /* launch time of each stamp */
    int64_t first_used; /* earlier stamps are overwritten */
    double overhead_s;
    char uuid[48];
    bool is_ready, has_failed, is_primary;
} stamper;

static bool load_driver(void) {
    static _Atomic int64_t next_look_ns; /* a search for the library is slow, and creating a context takes longer than the pause */
    int64_t now_ns = gw_now_ns();
    if (atomic_load(&has_ended)) return false;
    if (atomic_load(&is_loaded)) return true;
    if (now_ns < atomic_load(&next_look_ns)) return false;
    atomic_store(&next_look_ns, now_ns + 20000000);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); /* only if the program has loaded the driver */
    if (library == NULL) return false;
#define LOOK_UP(name, arguments) \
    if ((*(void **)&cu.name = dlsym(library, #name)) == NULL) return false;
    DRIVER(LOOK_UP)
    *(void **)&cu.cuCtxGetId = dlsym(library, "cuCtxGetId");
    atomic_store(&is_loaded, true);
    return true;
}

static unsigned long long context_number(handle context) {
    unsigned long long number = 0;
    if (cu.cuCtxGetId != NULL && cu.cuCtxGetId(context, &number) != 0) number = 0;
    return number;
}

static bool is_primary_active(int device) {
    int is_active = 0;
    unsigned flags = 0;
    return cu.cuDevicePrimaryCtxGetState(device, &flags, &is_active) == 0 && is_active;
}

/* Return this thread's context, or the first active primary context, because a library may not set its context in this thread. */
static handle find_context(void) {
    handle context = NULL;
    if (cu.cuCtxGetCurrent(&context) == 0 && context != NULL) return context;
    int devices_count = 0;
    if (cu.cuDeviceGetCount(&devices_count) != 0) return NULL;
    for (int device = 0; device < devices_count; device++)
        if (is_primary_active(device) && cu.cuDevicePrimaryCtxRetain(&context, device) == 0) {
            cu.cuDevicePrimaryCtxRelease_v2(device); /* the owner still holds a reference */
            return context;
        }
    return NULL;
}

/* Return true if the stamper's context still exists: the driver can reuse the address of a context, but not its number. */
static bool is_alive(void) {
    if (stamper.is_primary ? !is_primary_active(stamper.device) : stamper.context_id == 0) return false;
    return context_number(stamper.context) == stamper.context_id;
}

/* Make the stamper's context current; return false if the context is gone or the thread uses another context. */
static bool enter(bool *is_pushed) {
    handle current = NULL;
    *is_pushed = false;
    if (cu.cuCtxGetCurrent(&current) != 0 || (current != NULL && current != stamper.context) || !is_alive()) return false;
    if (current == NULL) *is_pushed = cu.cuCtxPushCurrent_v2(stamper.context) == 0; /* the library that owns the context did not set it in this thread */
    return current != NULL || *is_pushed;
}

static void leave(bool is_pushed) {
    handle popped;
    if (is_pushed) cu.cuCtxPopCurrent_v2(&popped);
}

static int launch(int64_t number, handle stream) {
    uint64_t row = stamper.base + (uint64_t)(number % CAPACITY) * ROW_BYTES;
    uint32_t kept = SMS_KEPT;
    void *arguments[] = {&row, &kept};
    return cu.cuLaunchKernel(stamper.function, (unsigned)stamper.sms_count, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

/* The earliest and the latest time of a stamp, and the number of SMs with a time. */
typedef struct {
    int64_t first_ns, last_ns;
    int seen_count;
} times;

static times times_of(const uint64_t *row) {
    times found = {INT64_MAX, 0, 0};
    for (int i = 0; i < CELLS; i += 2) {
        if (row[i] == 0) continue;
        found.seen_count++;
        if ((int64_t)row[i] < found.first_ns) found.first_ns = (int64_t)row[i];
        if ((int64_t)row[i] > found.last_ns) found.last_ns = (int64_t)row[i];
    }
    return found;
}

static int by_value(const void *first, const void *second) {
    double a = *(const double *)first, b = *(const double *)second;
    return a < b ? -1 : a > b;
}

/* Return the nanoseconds from the latest cell of one stamp to the earliest cell of another, and the median clock between the
 * stamps.  Return 0 if no SM has cells in both, or if the stamps overlap. */
static int64_t between(const uint64_t *first, const uint64_t *second, double *clock_mhz) {
    double clocks[SMS_KEPT];
    int count = 0;
    for (int i = 0; i < CELLS; i += 2)
        if (first[i] && second[i] > first[i] && second[i + 1] > first[i + 1])
            clocks[count++] = (double)(second[i + 1] - first[i + 1]) * 1e3 / (double)(second[i] - first[i]);
    if (count == 0) return 0;
    qsort(clocks, (size_t)count, sizeof *clocks, by_value);
    *clock_mhz = (clocks[(count - 1) / 2] + clocks[count / 2]) / 2;
    int64_t length_ns = times_of(second).first_ns - times_of(first).last_ns;
    return length_ns > 0 ? length_ns : 0;
}

static bool copy_rows(int64_t first, size_t count, uint64_t *into) {
    while (count > 0) {
        size_t place = (size_t)(first % CAPACITY), piece = CAPACITY - place < count ? CAPACITY - place : count;
        if (cu.cuMemcpyDtoHAsync_v2(into, stamper.base + place * ROW_BYTES, piece * ROW_BYTES, stamper.stream) != 0) return false;
        first += (int64_t)piece;
        into += piece * CELLS;
        count -= piece;
    }
    return cu.cuStreamSynchronize(stamper.stream) == 0;
}

/* Measure the shortest time between two adjacent stamps, on the reading stream. */
static void measure_overhead(void) {
    enum { PAIRS = 8 };
    uint64_t rows[2 * PAIRS * CELLS];
    int64_t least_ns = INT64_MAX, length_ns;
    double clock_mhz;
    for (int64_t i = 0; i < 2 * PAIRS; i++)
        if (launch(i, stamper.stream) != 0) return;
    if (!copy_rows(0, 2 * PAIRS, rows)) return;
    for (int i = 0; i < PAIRS; i++)
        if ((length_ns = between(rows + 2 * i * CELLS, rows + (2 * i + 1) * CELLS, &clock_mhz)) > 0 && length_ns < least_ns) least_ns = length_ns;
    stamper.overhead_s = least_ns < INT64_MAX ? (double)least_ns / 1e9 : 0;
    stamper.next = stamper.first_used = 2 * PAIRS;
}

static bool make_stamper(void) {
    handle module = NULL;
    unsigned char id[16];
    if (cu.cuDeviceGetAttribute(&stamper.sms_count, MULTIPROCESSOR_COUNT, stamper.device) != 0 || stamper.sms_count < 1 ||
        cu.cuDeviceGetUuid(id, stamper.device) != 0)
        return false;
    if (cu.cuModuleLoadData(&module, gw_stamp_ptx) != 0 || cu.cuModuleGetFunction(&stamper.function, module, "gpuwatch_stamp") != 0 ||
        cu.cuStreamCreate(&stamper.stream, NON_BLOCKING) != 0 || cu.cuMemAlloc_v2(&stamper.base, CAPACITY * ROW_BYTES) != 0)
        return false;
    if (stamper.host_ns == NULL) stamper.host_ns = calloc(CAPACITY, sizeof *stamper.host_ns);
    if (stamper.host_ns == NULL || cu.cuMemsetD8Async(stamper.base, 0, CAPACITY * ROW_BYTES, stamper.stream) != 0) return false;
    size_t length = (size_t)sprintf(stamper.uuid, "GPU-");
    for (int i = 0; i < 16; i++)
        length += (size_t)sprintf(stamper.uuid + length, i >= 4 && i <= 10 && i % 2 == 0 ? "-%02x" : "%02x", id[i]);
    measure_overhead();
    return cu.cuStreamSynchronize(stamper.stream) == 0;
}

static void end_at_exit(void) {
    gw_flush();
    pthread_mutex_lock(&stamps_lock);
    atomic_store(&has_ended, true); /* no driver call after this */
    pthread_mutex_unlock(&stamps_lock);
}

/* Load kernel and memory for the context, unless they are loaded; return true if stamps are possible.  Loading waits for no
 * stream of the program. */
bool gw_stamps_prepare(void) {
    if (!load_driver()) return false;
    bool is_pushed = false, is_ready = false;
    pthread_mutex_lock(&stamps_lock);
    handle context = find_context(), current = NULL;
    bool is_known = context != NULL && context == stamper.context && context_number(context) == stamper.context_id;
    if (is_known) {
        is_ready = stamper.is_ready;
    } else if (context != NULL && !stamper.has_failed) {
        static _Atomic bool is_registered;
        /* Exit handlers run in reverse order, so this handler runs before the driver's. */
        if (!atomic_exchange(&is_registered, true)) atexit(end_at_exit);
        int mode = MODE_RELAXED; /* so that the calls do not invalidate a graph capture */
        is_pushed = cu.cuCtxGetCurrent(&current) == 0 && current == NULL && cu.cuCtxPushCurrent_v2(context) == 0;
        bool is_exchanged = cu.cuThreadExchangeStreamCaptureMode(&mode) == 0;
        stamper.context = context;
        stamper.context_id = context_number(context);
        handle primary = NULL;
        stamper.is_primary = cu.cuCtxGetDevice(&stamper.device) == 0 && is_primary_active(stamper.device) &&
                             cu.cuDevicePrimaryCtxRetain(&primary, stamper.device) == 0;
        if (stamper.is_primary) cu.cuDevicePrimaryCtxRelease_v2(stamper.device);
        stamper.is_primary = primary == context;
        stamper.next = stamper.first_used = 0;
        stamper.is_ready = is_ready = make_stamper();
        stamper.has_failed = !is_ready;
        if (is_exchanged) cu.cuThreadExchangeStreamCaptureMode(&mode);
        leave(is_pushed);
    }
    pthread_mutex_unlock(&stamps_lock);
    return is_ready;
}

/* Launch a stamp on a stream; return its number, or GW_NO_STAMP in another context, during a graph capture, or on a failure. */
int64_t gw_stamp(void *stream) {
    if (!atomic_load(&is_loaded) || atomic_load(&has_ended)) return GW_NO_STAMP;
    int64_t number = GW_NO_STAMP;
    int is_capturing = 0;
    bool is_pushed;
    pthread_mutex_lock(&stamps_lock);
    if (stamper.is_ready && enter(&is_pushed)) {
        /* cuStreamIsCapturing fails for the default stream while another blocking stream is being captured. */
        if (cu.cuStreamIsCapturing(stream, &is_capturing) == 0 && !is_capturing) {
            if (stamper.next % (CAPACITY / 2) == 0 && stamper.next > 0) { /* clear the next half of the ring, which may have old rows */
                cu.cuMemsetD8Async(stamper.base + (uint64_t)(stamper.next % CAPACITY) * ROW_BYTES, 0, CAPACITY / 2 * ROW_BYTES, stream);
                stamper.first_used = stamper.next - CAPACITY / 2;
            }
            stamper.host_ns[stamper.next % CAPACITY] = gw_now_ns();
            if (launch(stamper.next, stream) == 0) number = stamper.next++;
        }
        leave(is_pushed);
    }
    pthread_mutex_unlock(&stamps_lock);
    return number;
}

/* Make the stamper's context current in the library's thread; return false if the context is gone. */
static bool enter_beside(void) {
    int mode = MODE_RELAXED, is_active = 0;
    unsigned flags = 0;
    if (!atomic_load(&is_loaded) || atomic_load(&has_ended) || !stamper.is_ready) return false;
    if (cu.cuDevicePrimaryCtxGetState(stamper.device, &flags, &is_active) != 0) return false;
    if (cu.cuCtxSetCurrent(stamper.context) != 0 || context_number(stamper.context) != stamper.context_id) return false;
    cu.cuThreadExchangeStreamCaptureMode(&mode);
    return true;
}

/* Wait in the library's thread until a stamp is written; read its row every 0.5 ms.  Return false without a stamp, after
 * ``wait_ns``, or if the row cannot be read. */
bool gw_stamps_done(int64_t stamp, int64_t wait_ns) {
    if (stamp == GW_NO_STAMP) return false;
    int64_t until_ns = gw_now_ns() + wait_ns;
    struct timespec pause = {0, 500000};
    do {
        uint64_t row[CELLS] = {0};
        pthread_mutex_lock(&stamps_lock);
        bool is_read = enter_beside() && stamp >= stamper.first_used && copy_rows(stamp, 1, row);
        pthread_mutex_unlock(&stamps_lock);
        if (!is_read) return false;
        nanosleep(&pause, NULL);
        if (times_of(row).seen_count > 0) return true; /* the other SMs have written their cells during the pause */
    } while (gw_now_ns() < until_ns);
    return false;
}

/* Describe the rows of a window, and return the host's clock minus the GPU's timer in ns; INT64_MIN if no row was written.
 * A stamp runs at or after its launch, so the largest difference is the best estimate. */
static int64_t describe_rows(const uint64_t *rows, int64_t first, size_t count, gw_stamped *out) {
    int64_t offset = INT64_MIN, spread_ns = 0, seen_count = 0;
    for (size_t i = 0; i < count; i++) {
        times found = times_of(rows + i * CELLS);
        if (found.seen_count == 0) continue;
        int64_t apart_ns = stamper.host_ns[(first + (int64_t)i) % CAPACITY] - found.first_ns;
        if (apart_ns > offset) offset = apart_ns;
        spread_ns += found.last_ns - found.first_ns;
        seen_count += found.seen_count;
    }
    out->spread_s = (double)spread_ns / (double)count / 1e9;
    out->seen_ratio = (double)seen_count / (double)count / (stamper.sms_count < SMS_KEPT ? stamper.sms_count : SMS_KEPT);
    out->overhead_s = stamper.overhead_s;
    out->sms_count = stamper.sms_count;
    memcpy(out->uuid, stamper.uuid, sizeof out->uuid);
    return offset;
}

static size_t read_entries(gw_entry *entries, size_t count, const uint64_t *rows, const gw_entry *window, int64_t offset) {
    size_t kept = 0;
    int64_t first = window->begin_stamp, last = window->end_stamp;
    for (size_t i = 0; i < count; i++) {
        gw_entry each = entries[i];
        double clock_mhz;
        if (each.begin_stamp < first || each.end_stamp < first || each.begin_stamp > last || each.end_stamp > last) continue;
        const uint64_t *begin = rows + (each.begin_stamp - first) * CELLS;
        int64_t length_ns = between(begin, rows + (each.end_stamp - first) * CELLS, &clock_mhz);
        if (length_ns == 0) continue;
        each.begin_ns = times_of(begin).last_ns + offset;
        each.end_ns = each.begin_ns + length_ns;
        each.clock_mhz = clock_mhz > LEAST_MHZ && clock_mhz < MOST_MHZ ? (float)clock_mhz : (float)__builtin_nan("");
        entries[kept++] = each;
    }
    return kept;
}

size_t gw_stamps_read(gw_entry *entries, size_t count, const gw_entry *window, gw_stamped *out) {
    memset(out, 0, sizeof *out);
    int64_t first = window->begin_stamp;
    size_t rows_count = (size_t)(window->end_stamp - first + 1);
    if (first < 0 || window->end_stamp <= first || rows_count > CAPACITY) return count;
    uint64_t *rows = malloc(rows_count * ROW_BYTES);
    bool is_read = rows != NULL;
    for (size_t at = 0; at < rows_count && is_read; at += READ_AT_ONCE) { /* the program's stamps wait for at most one piece */
        size_t piece = rows_count - at < READ_AT_ONCE ? rows_count - at : READ_AT_ONCE;
        pthread_mutex_lock(&stamps_lock);
        is_read = enter_beside() && first >= stamper.first_used && copy_rows(first + (int64_t)at, piece, rows + at * CELLS);
        pthread_mutex_unlock(&stamps_lock);
    }
    gw_stamped found = {0};
    int64_t offset = is_read ? describe_rows(rows, first, rows_count, &found) : INT64_MIN;
    if (offset != INT64_MIN) {
        const uint64_t *end_row = rows + (rows_count - 1) * CELLS;
        /* Some ranges can be in captured graphs or another context; if more than a tenth are, all entries keep the host's times. */
        size_t stamped_count = 0;
        for (size_t i = 0; i < count; i++) stamped_count += entries[i].begin_stamp >= 0 && entries[i].end_stamp >= 0;
        found.has_stamps = stamped_count * 10 >= count * 9;
        found.stamped_s = (double)between(rows, end_row, &found.clock_mhz) / 1e9;
        found.end_ns = times_of(end_row).last_ns + offset;
        found.sync_s = found.end_ns > window->end_ns ? (double)(found.end_ns - window->end_ns) / 1e9 : 0;
        if (found.has_stamps) count = read_entries(entries, count, rows, window, offset);
        *out = found;
    }
    free(rows);
    return count;
}

/* Wait for the current context's GPU work, unless a graph is being captured. */
void gw_synchronize(void) {
    handle current = NULL;
    int is_capturing = 0;
    if (load_driver() && cu.cuCtxGetCurrent(&current) == 0 && current != NULL && cu.cuStreamIsCapturing(NULL, &is_capturing) == 0 && !is_capturing)
        cu.cuCtxSynchronize();
}

/* Reset the state in a forked child, which has no CUDA context. */
void gw_stamps_forget(void) {
    pthread_mutex_init(&stamps_lock, NULL);
    bool had_context = stamper.context != NULL;
    memset(&stamper, 0, sizeof stamper);
    stamper.has_failed = had_context;
}
