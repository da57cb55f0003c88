/* The windows of this process: the program's threads open and end them, and the library's thread sends them to the daemon. */
#include "library.h"

#include <math.h>
#include <sys/syscall.h>

enum { WINDOWS_COUNT = 64, ENTRIES_COUNT = 130000, ENTRIES_AT_ONCE = 20000, FACTS_BYTES = 8192 };
#define LONG_NS (200 * GW_MS) /* a range of this length ends its window; also the least time between two windows of a label */
#define LEAST_NS (50 * GW_MS) /* a single range shorter than this is not a window */
#define PAUSE_NS (60 * GW_MS) /* most distance of ranges in one series; the daemon accepts an end up to 100 ms ago */
#define STAMPS_NS 10000000000LL

typedef enum { FREE, OPENING, OPEN, ENDED, FINISHING } state;
typedef struct {
    state state;
    bool is_outer;  /* the window of `gpuwatch run` around this process, which this process does not end */
    bool is_series; /* a series of short ranges of one label */
    bool is_lone;   /* a series of one range, too short for a window */
    gw_window id;
    char run[GW_RUN_BYTES];
    gw_label *own, *timed; /* the label that opened the window, and the label whose ranges are its iterations */
    gw_entry edge;
    gw_entry *entries;
    size_t count, left_out_count, other_count;
    gw_label *other; /* the latest label with ranges inside the window that are not its iterations */
    int inside_count; /* open ranges of the label ``timed`` */
    int64_t mark_ns, mark_stamp, told_ns;
    void *stream;
    gw_text facts, label; /* as JSON */
} window;

bool gw_lists_only, gw_is_sync;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* on the monotonic clock */
static window windows[WINDOWS_COUNT];
static uint64_t windows_begun;
static bool has_finisher;
static _Atomic bool is_ending;

void gw_lock(void) { pthread_mutex_lock(&lock); }
void gw_unlock(void) { pthread_mutex_unlock(&lock); }

static void make_condition(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Reset the state in a forked child: connection and windows belong to the parent.  Their memory is not freed. */
static void forget_all(void) {
    pthread_mutex_init(&lock, NULL);
    make_condition();
    memset(windows, 0, sizeof windows);
    has_finisher = false;
    atomic_store(&is_ending, false);
    gw_wire_forget();
    gw_stamps_forget();
    gw_nvtx_forget();
}

__attribute__((constructor)) static void start(void) {
    make_condition();
    pthread_atfork(NULL, NULL, forget_all);
}

static struct timespec time_at(int64_t ns) { return (struct timespec){ns / 1000000000, ns % 1000000000}; }

static window *find(gw_window id) {
    window *found = &windows[id % WINDOWS_COUNT];
    return id != 0 && found->id == id && found->state == OPEN ? found : NULL;
}

/* Return the latest open window, except the outer one, or NULL. */
static window *innermost(void) {
    window *found = NULL;
    for (int i = 0; i < WINDOWS_COUNT; i++)
        if (windows[i].state == OPEN && !windows[i].is_outer && (found == NULL || windows[i].id > found->id)) found = &windows[i];
    return found;
}

static window *reserve(void) {
    for (int tried = 0; tried < WINDOWS_COUNT; tried++) {
        uint64_t id = ++windows_begun;
        window *found = &windows[id % WINDOWS_COUNT];
        if (id % WINDOWS_COUNT == 0 || found->state != FREE) continue; /* place 0 stays free, because the id 0 means "no window" */
        memset(found, 0, sizeof *found);
        found->id = id;
        found->state = OPENING;
        found->edge.begin_stamp = found->edge.end_stamp = found->mark_stamp = GW_NO_STAMP;
        return found;
    }
    return NULL;
}

static void release(window *each) {
    free(each->entries);
    free(each->facts.text);
    free(each->label.text);
    memset(each, 0, sizeof *each);
}

static void add_entry(window *into, int64_t begin_ns, int64_t end_ns, int64_t begin_stamp, int64_t end_stamp) {
    if (into->entries == NULL) into->entries = malloc(ENTRIES_COUNT * sizeof *into->entries); /* the kernel allocates only written pages */
    if (into->entries != NULL && into->count < ENTRIES_COUNT)
        into->entries[into->count++] = (gw_entry){begin_ns, end_ns, begin_stamp, end_stamp, 0, 0};
    else into->left_out_count++;
}

/* Sending, in the library's thread */

static int by_begin(const void *first, const void *second) {
    int64_t a = ((const gw_entry *)first)->begin_ns, b = ((const gw_entry *)second)->begin_ns;
    return a < b ? -1 : a > b;
}

static bool send_times(window *of, size_t count, bool has_clocks) {
    bool is_taken = true;
    for (size_t first = 0; first < count && is_taken; first += ENTRIES_AT_ONCE) {
        gw_entry *each = of->entries + first;
        size_t piece = count - first < ENTRIES_AT_ONCE ? count - first : ENTRIES_AT_ONCE;
        gw_text line = {0};
        gw_reply reply;
        for (size_t i = 0; i < piece; i++) each[i].took_s = (double)(each[i].end_ns - each[i].begin_ns) / 1e9;
        gw_add(&line, "{\"type\":\"times\",\"run\":\"%s\"", of->run);
        gw_add_column(&line, ",\"at_ns\":", &each->begin_ns, sizeof each->begin_ns, sizeof *each, piece);
        gw_add_column(&line, ",\"took_s\":", &each->took_s, sizeof each->took_s, sizeof *each, piece);
        if (has_clocks) gw_add_column(&line, ",\"sm_clock_mhz\":", &each->clock_mhz, sizeof each->clock_mhz, sizeof *each, piece);
        gw_add(&line, "}\n");
        is_taken = gw_exchange(&line, "taken", &reply, false);
    }
    return is_taken;
}

static void add_stamped_facts(gw_text *facts, const gw_stamped *stamped) {
    if (stamped->clock_mhz > 0) gw_add(facts, ",\"true_clock_mhz\":%.3f,\"stamped_s\":%.9f", stamped->clock_mhz, stamped->stamped_s);
    if (stamped->stamped_s > 0)
        gw_add(facts, ",\"sync_s\":%.9f,\"stamp_spread_s\":%.9f,\"stamp_seen_ratio\":%.6f", stamped->sync_s, stamped->spread_s, stamped->seen_ratio);
    if (stamped->has_stamps) gw_add(facts, ",\"timer_overhead_s\":%.9f", stamped->overhead_s);
    if (stamped->sms_count > 0) gw_add(facts, ",\"sm_count\":%d,\"cuda_uuids\":\"%s\"", stamped->sms_count, stamped->uuid);
}

/* Add a label's name; the daemon accepts 256 characters. */
static void add_name(gw_text *out, const char *before, const gw_label *label) {
    char name[GW_LABEL_BYTES + 1];
    snprintf(name, sizeof name, "%.*s%s%s", GW_LABEL_BYTES / 2 - 1, label->domain, label->domain[0] ? ":" : "", label->message);
    gw_add_text(out, before, name, GW_LABEL_BYTES);
}

static void report(const window *each, const char *timer, size_t count, bool is_closed) {
    gw_text line = {0};
    gw_add(&line, "{\"run\":\"%s\",\"label\":%s,\"iterations\":%zu,\"left_out\":%zu,\"timer\":\"%s\"", each->run,
           each->label.text ? each->label.text : "\"\"", count, each->left_out_count, timer);
    if (each->other != NULL) {
        gw_add(&line, ",\"other_count\":%zu", each->other_count);
        add_name(&line, ",\"other\":", each->other);
    }
    gw_add(&line, ",\"is_lone\":%d,\"is_outer\":%d,\"is_closed\":%d", each->is_lone, each->is_outer, is_closed);
    gw_report("GPUWATCH_NVTX_REPORT", &line);
}

/* Send the end or the close of a window with its facts (without their first comma); return true if the daemon accepts it. */
static bool tell_end(const window *each, const char *type, const char *expected, const char *facts) {
    gw_text line = {0};
    gw_reply reply;
    gw_add(&line, "{\"type\":\"%s\",\"run\":\"%s\",\"begin_ns\":%lld,\"end_ns\":%lld", type, each->run, (long long)each->edge.begin_ns,
           (long long)each->edge.end_ns);
    gw_add(&line, facts != NULL ? ",\"told\":{%s}}\n" : "}\n", facts);
    return gw_exchange(&line, expected, &reply, false);
}

/* Read the stamps of an ended window, and send times and facts.  The caller owns the window.
 * The window ends when the GPU has done the work launched before its end, like a synchronised window. */
static void finish(window *each) {
    gw_stamped stamped = {0};
    size_t count = each->count;
    bool is_stamped = count > 0 && each->entries[count - 1].end_stamp >= 0;
    if (each->edge.begin_stamp < 0 && count > 0) each->edge.begin_stamp = each->entries[0].begin_stamp; /* the context was created later */
    if (gw_stamps_done(each->edge.end_stamp, atomic_load(&is_ending) ? STAMPS_NS / 10 : STAMPS_NS))
        count = gw_stamps_read(each->entries, count, &each->edge, &stamped);
    if (stamped.end_ns > each->edge.end_ns) each->edge.end_ns = stamped.end_ns;
    if (!each->is_outer) tell_end(each, "end", "taken", NULL);
    if (count < 2) count = 0;                                    /* the time of a single range is the length of the window */
    if (is_stamped && stamped.end_ns == 0) count = 0;            /* the host's times may be launch times */
    if (count > 0 && !stamped.has_stamps) qsort(each->entries, count, sizeof *each->entries, by_begin);
    const char *timer = stamped.has_stamps ? "stamps" : "host";
    bool is_taken = send_times(each, count, stamped.has_stamps);
    if (count > 0) gw_add(&each->facts, ",\"timer\":\"%s\"", timer);
    add_stamped_facts(&each->facts, &stamped);
    const char *facts = each->facts.text && !each->facts.failed ? each->facts.text + 1 : "";
    if (!each->is_outer) is_taken = tell_end(each, "close", "closed", facts) && is_taken;
    if (!each->is_outer || count > 0) report(each, timer, count, is_taken);
}

static void end_series(window *each) {
    const gw_entry *last = each->count > 0 ? &each->entries[each->count - 1] : &each->edge;
    each->edge.end_ns = each->told_ns;
    each->edge.end_stamp = last->end_stamp;
    each->is_lone = each->count == 1 && last->end_ns - last->begin_ns < LEAST_NS;
    if (each->is_lone) each->own->is_lone = true;
    each->state = ENDED;
}

/* End the series that have paused, and return an ended window to send, or NULL.  *due_ns: next time to check, 0 for never. */
static window *next_ended(int64_t *due_ns) {
    window *found = NULL;
    *due_ns = 0;
    for (int i = 0; i < WINDOWS_COUNT; i++) {
        window *each = &windows[i];
        if (each->state == OPEN && each->is_series) {
            int64_t now_ns = gw_now_ns(), at_ns = each->inside_count > 0 ? now_ns + PAUSE_NS : is_ending ? 0 : each->told_ns + PAUSE_NS;
            if (now_ns >= at_ns) end_series(each);
            else if (*due_ns == 0 || at_ns < *due_ns) *due_ns = at_ns;
        }
        if (each->state == OPEN && each->is_outer && is_ending) each->state = ENDED;
        if (each->state == ENDED && (found == NULL || each->id < found->id)) found = each;
    }
    return found;
}

static void *finish_windows(void *unused) {
    (void)unused;
    gw_lock();
    for (;;) {
        int64_t due_ns;
        window *each = next_ended(&due_ns);
        if (each != NULL) {
            each->state = FINISHING;
            gw_unlock();
            finish(each);
            gw_lock();
            release(each);
            pthread_cond_broadcast(&changed);
        } else if (due_ns != 0) {
            struct timespec until = time_at(due_ns);
            pthread_cond_timedwait(&changed, &lock, &until);
        } else {
            pthread_cond_wait(&changed, &lock);
        }
    }
    return NULL;
}

/* Wake or start the library's thread; the caller holds the lock. */
static void wake_finisher(void) {
    if (!has_finisher) {
        sigset_t all, before;
        pthread_t thread;
        sigfillset(&all); /* the program's threads handle signals */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        has_finisher = pthread_create(&thread, NULL, finish_windows, NULL) == 0;
        if (has_finisher) pthread_detach(thread);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_cond_broadcast(&changed);
}

static bool is_anything_left(void) {
    for (int i = 0; i < WINDOWS_COUNT; i++)
        if (windows[i].state >= ENDED || (windows[i].state == OPEN && ((windows[i].is_series && !windows[i].inside_count) || windows[i].is_outer)))
            return true;
    return false;
}

void gw_flush(void) {
    struct timespec until = {time(NULL) + 2, 0};
    if (pthread_mutex_timedlock(&lock, &until) != 0) return; /* the thread that holds the lock called exit() */
    is_ending = true;
    if (is_anything_left()) wake_finisher();
    until = time_at(gw_now_ns() + 5000000000);
    while (has_finisher && is_anything_left() && pthread_cond_timedwait(&changed, &lock, &until) == 0) continue;
    is_ending = false;
    gw_unlock();
}

__attribute__((destructor)) static void flush_at_exit(void) { gw_flush(); }

/* Opening */

/* Open a reserved window; return its id, or 0 on a failure. */
static gw_window open_reserved(window *each, const char *label) {
    gw_text line = {0};
    gw_reply reply;
    const char *parent = secure_getenv("GPUWATCH_PARENT"), *more = secure_getenv("GPUWATCH_NVTX_OPEN");
    pid_t thread = (pid_t)syscall(SYS_gettid);
    gw_stamps_prepare();
    if (each->own != NULL) add_name(&each->label, "", each->own);
    else if (label != NULL) gw_add_text(&each->label, "", label, GW_LABEL_BYTES);
    gw_add(&line, "{\"type\":\"open\",\"thread\":%d", thread == getpid() ? 0 : (int)thread);
    if (each->label.text != NULL) gw_add(&line, ",\"label\":%s", each->label.text);
    if (parent != NULL && parent[0]) gw_add_text(&line, ",\"parent\":", parent, GW_RUN_BYTES - 8);
    if (more != NULL && each->own != NULL) gw_add(&line, ",%s", more); /* the policy given to `gpuwatch run` */
    gw_add(&line, "}\n");
    bool is_open = gw_exchange(&line, "opened", &reply, true) && reply.run[0] && strpbrk(reply.run, "\"\\") == NULL;
    if (gw_is_sync && is_open) gw_synchronize();
    int64_t stamp = is_open ? gw_stamp(each->stream) : GW_NO_STAMP;
    gw_lock();
    gw_window id = is_open ? each->id : 0;
    if (is_open) {
        memcpy(each->run, reply.run, sizeof each->run);
        each->edge.begin_stamp = stamp;
        each->edge.begin_ns = gw_now_ns();
        each->state = OPEN;
    }
    if (!is_open) release(each);
    gw_unlock();
    return id;
}

/* Ranges */

/* Return the window of `gpuwatch run`, for ranges outside all other windows; only the first of several processes gets it.  The
 * caller holds the lock. */
static window *find_outer(void) {
    static gw_window id;
    static bool is_tried;
    const char *parent = secure_getenv("GPUWATCH_PARENT"), *path = secure_getenv("GPUWATCH_NVTX_REPORT");
    char claimed[4096];
    if (is_tried || parent == NULL || path == NULL || strlen(parent) >= GW_RUN_BYTES) return find(id);
    is_tried = true;
    if (strpbrk(parent, "\"\\") != NULL || snprintf(claimed, sizeof claimed, "%s.claimed", path) >= (int)sizeof claimed) return NULL;
    int fd = open(claimed, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return NULL;
    close(fd);
    window *outer = reserve();
    if (outer == NULL) return NULL;
    id = outer->id;
    outer->is_outer = true;
    strcpy(outer->run, parent);
    outer->edge.begin_ns = gw_now_ns();
    outer->state = OPEN;
    return outer;
}

/* Return a place for the window of this range, or NULL if the range opens no window.  The caller holds the lock. */
static window *window_for(gw_label *label, window *around, int64_t now_ns) {
    if (!(label->is_long || (around == NULL && !label->is_lone))) return NULL;
    if (label->window_begin_ns != 0 && now_ns - label->window_begin_ns < LONG_NS) return NULL;
    for (int i = 0; i < WINDOWS_COUNT; i++)
        if (windows[i].own == label && (windows[i].state == OPENING || windows[i].state == OPEN)) return NULL;
    window *each = reserve();
    if (each == NULL) return NULL;
    each->own = label;
    label->window_begin_ns = now_ns;
    return each;
}

void gw_range_begin(gw_range *range, gw_label *label) {
    *range = (gw_range){.label = label, .stamp = GW_NO_STAMP, .nesting = range->nesting, .key = range->key, .begin_ns = gw_now_ns()};
    if (gw_lists_only) return;
    bool has_room = false;
    gw_lock();
    window *around = innermost(), *opened = window_for(label, around, range->begin_ns);
    if (opened == NULL) {
        window *into = around != NULL ? around : find_outer();
        if (into != NULL && (into->timed == NULL || into->timed == label)) {
            into->timed = label;
            into->inside_count++;
            range->within = into->id;
            has_room = into->count < ENTRIES_COUNT;
        } else if (into != NULL) {
            into->other = label;
            into->other_count++;
        }
    }
    gw_unlock();
    if (opened != NULL) {
        range->opened = open_reserved(opened, NULL);
        gw_lock();
        window *found = find(range->opened);
        if (found != NULL) {
            range->stamp = found->edge.begin_stamp;
            range->begin_ns = found->edge.begin_ns;
        }
        gw_unlock();
    } else if (range->within != 0) {
        if (gw_is_sync) gw_synchronize();
        if (has_room && gw_stamps_prepare()) range->stamp = gw_stamp(NULL);
        range->begin_ns = gw_now_ns();
    }
}

/* Add an ended range to the window of which it is an iteration; the caller holds the lock. */
static void end_iteration(const gw_range *range, window *within, int64_t end_ns, int64_t stamp) {
    if (within->timed != range->label) { /* the window has become a series of another label */
        within->other = range->label;
        within->other_count++;
        return;
    }
    within->inside_count--;
    if (within->is_outer) { /* stamps are read from the first range to the last */
        if (within->edge.begin_stamp < 0) within->edge.begin_stamp = range->stamp;
        if (stamp >= 0) within->edge.end_stamp = stamp;
        within->edge.end_ns = end_ns;
    }
    add_entry(within, range->begin_ns, end_ns, range->stamp, stamp);
    within->told_ns = end_ns;
    if (end_ns - range->begin_ns >= LONG_NS) range->label->is_long = true;
}

void gw_range_end(gw_range *range) {
    gw_label *label = range->label;
    if (gw_is_sync && (range->opened || range->within)) gw_synchronize();
    int64_t end_ns = gw_now_ns(), took_ns = end_ns - range->begin_ns;
    int64_t stamp = range->stamp >= 0 && !gw_lists_only ? gw_stamp(NULL) : GW_NO_STAMP;
    gw_lock();
    if (gw_lists_only) {
        label->count++;
        label->total_ns += took_ns;
        if (label->count == 1 || took_ns < label->least_ns) label->least_ns = took_ns;
        if (took_ns > label->most_ns) label->most_ns = took_ns;
    }
    window *opened = find(range->opened), *within = find(range->within);
    if (within != NULL) end_iteration(range, within, end_ns, stamp);
    if (opened != NULL && took_ns >= LONG_NS) {
        label->is_long = true;
        opened->edge.end_ns = end_ns;
        opened->edge.end_stamp = stamp;
        opened->state = ENDED;
    } else if (opened != NULL) { /* the range may be the first of a series */
        if (opened->timed != label) {
            opened->other = opened->timed;
            opened->other_count += opened->count + opened->left_out_count;
            opened->count = opened->left_out_count = 0;
            opened->inside_count = 0;
        }
        opened->timed = label;
        opened->is_series = true;
        add_entry(opened, range->begin_ns, end_ns, range->stamp, stamp);
        opened->told_ns = end_ns;
    }
    if (opened != NULL) wake_finisher();
    gw_unlock();
}

/* The API */

GW_EXPORT gw_window gw_begin_on(const char *label, void *stream) {
    if (gw_lists_only) return 0;
    gw_lock();
    window *each = reserve();
    if (each != NULL) each->stream = stream;
    gw_unlock();
    if (each == NULL) gw_trouble("expected at most %d open windows per process, found more; end some with gw_end", WINDOWS_COUNT - 1);
    return each != NULL ? open_reserved(each, label) : 0;
}

GW_EXPORT void gw_prepare(void) {
    gw_text nothing = {0};
    gw_reply reply;
    gw_stamps_prepare();
    gw_exchange(&nothing, NULL, &reply, true);
}

GW_EXPORT gw_window gw_begin(const char *label) { return gw_begin_on(label, NULL); }

GW_EXPORT void gw_iteration(gw_window id) {
    if (id == 0) return;
    if (gw_is_sync) gw_synchronize();
    int64_t end_ns = gw_now_ns();
    gw_lock();
    window *each = find(id);
    if (each != NULL) {
        int64_t stamp = each->count < ENTRIES_COUNT ? gw_stamp(each->stream) : GW_NO_STAMP;
        if (each->mark_ns != 0) add_entry(each, each->mark_ns, end_ns, each->mark_stamp, stamp);
        each->mark_stamp = stamp;
        each->mark_ns = gw_now_ns();
    }
    gw_unlock();
}

static int declare(gw_window id, const char *name, const char *text, double value) {
    bool is_kept = false;
    if (name == NULL || !name[0] || strlen(name) > 64 || (text == NULL && !isfinite(value))) return -1;
    gw_lock();
    window *each = find(id);
    if (each != NULL && each->facts.length + strlen(name) * 6 + (text ? strlen(text) * 6 : 32) < FACTS_BYTES) {
        gw_add_text(&each->facts, ",", name, 64);
        if (text == NULL) gw_add(&each->facts, ":%.17g", value);
        else gw_add_text(&each->facts, ":", text, FACTS_BYTES);
        is_kept = !each->facts.failed;
    }
    gw_unlock();
    return is_kept ? 0 : -1;
}

GW_EXPORT int gw_declare(gw_window id, const char *name, double value) { return declare(id, name, NULL, value); }

GW_EXPORT int gw_declare_text(gw_window id, const char *name, const char *value) {
    return value == NULL ? -1 : declare(id, name, value, 0);
}

GW_EXPORT void gw_end(gw_window id) {
    if (id == 0) return;
    if (gw_is_sync) gw_synchronize();
    gw_lock();
    window *each = find(id);
    if (each != NULL && !each->is_outer) {
        each->edge.end_ns = gw_now_ns();
        each->edge.end_stamp = gw_stamp(each->stream);
        each->state = ENDED;
        wake_finisher();
    }
    gw_unlock();
}

GW_EXPORT size_t gw_run_id(gw_window id, char *text, size_t size) {
    gw_lock();
    window *each = find(id);
    size_t length = each != NULL ? strlen(each->run) : 0;
    if (text != NULL && size > 0) snprintf(text, size, "%s", each != NULL ? each->run : "");
    gw_unlock();
    return length;
}
