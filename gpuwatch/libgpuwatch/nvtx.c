/* NVTX ranges as windows: NVTX loads the library named by NVTX_INJECTION64_PATH, and calls it for every range.
 *
 * The declarations follow the binary interface of NVTX 3.
 */
#include "library.h"

#include <wchar.h>

enum { PATTERNS_COUNT = 16, DOMAINS_COUNT = 256, NESTED_COUNT = 64, RANGES_COUNT = 1024, LABELS_COUNT = 4096, BUCKETS_COUNT = 1024, TEXT_BYTES = 1024 };
enum { CORE = 1, CORE2 = 5, TABLE_CALLBACKS = 1, MESSAGE_ASCII = 1, MESSAGE_UNICODE = 2, MESSAGE_REGISTERED = 3 };
enum { START_EX = 4, START_A, START_W, END, PUSH_EX, PUSH_A, PUSH_W, POP };                                  /* of CORE */
enum { D_START_EX = 2, D_END, D_PUSH_EX, D_POP, D_STRING_A = 10, D_STRING_W, D_CREATE_A, D_CREATE_W };       /* of CORE2 */

typedef void (*function)(void);
typedef struct {
    size_t size;
    int (*module_table)(int module, function ***table, unsigned *count);
} callbacks;
typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
} attributes;

typedef struct {
    int index;
    char *name;
    const char *patterns[2 * PATTERNS_COUNT]; /* for the messages of this domain */
    int patterns_count;
} domain;
static gw_label no_label;
static domain default_domain = {.name = ""}, other_domains = {.index = -1, .name = ""};
static const char *patterns[PATTERNS_COUNT];
static int patterns_count;
static int domains_count = 1;
static pthread_mutex_t labels_lock = PTHREAD_MUTEX_INITIALIZER;
static gw_label *buckets[BUCKETS_COUNT];
static int labels_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The open ranges, unordered; a program may end a started range in another thread. */
static gw_range ranges[RANGES_COUNT];
static int ranges_count;
static _Atomic uint64_t started_count;
static __thread struct {
    int32_t depth;
    uint64_t matched; /* a bit for each depth whose range has a label */
} nestings[DOMAINS_COUNT];

/* The handles of the next injection, and the corresponding domains and labels. */
static struct {
    bool is_there;
    pthread_mutex_t lock;
    struct {
        const void *handle;
        void *ours;
    } handles[DOMAINS_COUNT + LABELS_COUNT];
    size_t count;
} next = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *ours_of(const void *handle) {
    if (!next.is_there) return (void *)handle;
    void *found = NULL;
    pthread_mutex_lock(&next.lock);
    for (size_t i = next.count; i-- > 0 && found == NULL;)
        if (next.handles[i].handle == handle) found = next.handles[i].ours;
    pthread_mutex_unlock(&next.lock);
    return found;
}

/* Return the handle for the program: the next injection's handle, stored for ``ours_of``, or ``ours`` without one. */
static void *handle_of(void *ours, const void *theirs) {
    if (!next.is_there) return ours;
    if (theirs == NULL) theirs = ours;
    pthread_mutex_lock(&next.lock);
    if (ours != &no_label && ours != &other_domains && next.count < DOMAINS_COUNT + LABELS_COUNT) {
        next.handles[next.count].handle = theirs;
        next.handles[next.count++].ours = ours;
    }
    pthread_mutex_unlock(&next.lock);
    return (void *)theirs;
}

/* Reset locks and ranges in a forked child: another thread of the parent may have held the locks. */
void gw_nvtx_forget(void) {
    pthread_mutex_init(&labels_lock, NULL);
    pthread_mutex_init(&next.lock, NULL);
    ranges_count = 0; /* the parent ends them */
}

/* Labels */

/* Return true if the whole text matches a pattern; * matches any characters and ? one byte. */
static bool fits(const char *pattern, const char *text) {
    const char *star = NULL, *again = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            again = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

/* Add the patterns for a domain's messages: every pattern, and the MESSAGE of each DOMAIN:MESSAGE with a matching domain. */
static void prepare_domain(domain *each) {
    size_t length = strlen(each->name);
    for (int i = 0; i < patterns_count; i++) {
        each->patterns[each->patterns_count++] = patterns[i];
        const char *colon = strchr(patterns[i], ':');
        char *name = length > 0 && colon != NULL ? strndup(patterns[i], (size_t)(colon - patterns[i])) : NULL;
        if (name != NULL && fits(name, each->name)) each->patterns[each->patterns_count++] = colon + 1;
        free(name);
    }
}

static gw_label *find_label(const domain *in, const char *message) {
    uint64_t hash = 14695981039346656037u ^ (uint64_t)in->index;
    for (const char *at = message; *at; at++) hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    gw_label **bucket = &buckets[hash % BUCKETS_COUNT], *found;
    pthread_mutex_lock(&labels_lock);
    for (found = *bucket; found != NULL; found = found->next)
        if (found->hash == hash && !strcmp(found->message, message) && !strcmp(found->domain, in->name)) break;
    if (found == NULL && labels_count < LABELS_COUNT && (found = calloc(1, sizeof *found)) != NULL) {
        *found = (gw_label){.next = *bucket, .hash = hash, .domain = in->name, .message = strdup(message)};
        if (found->message == NULL) found->message = ""; /* no memory */
        *bucket = found;
        labels_count++;
    }
    pthread_mutex_unlock(&labels_lock);
    return found;
}

/* Return the label of a message that matches a pattern, or of any message for a list; NULL for others and without room. */
static gw_label *label_of(const domain *in, const char *message) {
    if (in->index < 0 || message == NULL) return NULL;
    bool is_wanted = gw_lists_only;
    for (int i = 0; i < in->patterns_count && !is_wanted; i++) {
        const char *pattern = in->patterns[i];
        is_wanted = (*pattern == *message || *pattern == '*' || *pattern == '?') && fits(pattern, message);
    }
    return is_wanted ? find_label(in, message) : NULL;
}

/* Convert wide characters to UTF-8, with U+FFFD for an invalid character; return ``out``, or NULL for NULL. */
static const char *narrow(const wchar_t *wide, char *out) {
    size_t length = 0;
    if (wide == NULL) return NULL;
    for (; *wide && length + 4 < TEXT_BYTES; wide++) {
        uint32_t point = (uint32_t)*wide;
        if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) point = 0xFFFD;
        int more = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
        out[length++] = (char)(more == 0 ? point : (~(0xFFu >> (more + 1)) & 0xFF) | point >> (6 * more));
        while (more-- > 0) out[length++] = (char)(0x80 | (point >> (6 * more) & 63));
    }
    out[length] = 0;
    return out;
}

static gw_label *label_of_wide(const domain *in, const wchar_t *message) {
    char text[TEXT_BYTES];
    return label_of(in, narrow(message, text));
}

static gw_label *label_of_attributes(const domain *in, const attributes *of) {
    if (of == NULL || of->size < sizeof *of || of->message == NULL) return label_of(in, "");
    if (of->message_type == MESSAGE_ASCII) return label_of(in, of->message);
    if (of->message_type == MESSAGE_UNICODE) return label_of_wide(in, of->message);
    if (of->message_type != MESSAGE_REGISTERED) return label_of(in, "");
    gw_label *found = ours_of(of->message);
    return found != &no_label ? found : NULL;
}

/* Ranges */

/* Return a range by the address of its thread's nesting and its depth, or by NULL and its id; the caller holds the lock. */
static gw_range *find_range(const void *nesting, uint64_t key) {
    for (int i = 0; i < ranges_count; i++)
        if (ranges[i].key == key && ranges[i].nesting == nesting) return &ranges[i];
    return NULL;
}

static void end_range(const void *nesting, uint64_t key) {
    gw_range ended = {0};
    if (nesting == NULL && key == 0) return; /* started without a label */
    gw_lock();
    gw_range *place = find_range(nesting, key);
    if (place != NULL) {
        ended = *place;
        *place = ranges[--ranges_count];
    }
    gw_unlock();
    if (ended.label != NULL) gw_range_end(&ended);
}

/* Begin a range.  First end an open range with the same key, left by an ended thread whose memory this thread reuses. */
static void begin_range(gw_label *label, const void *nesting, uint64_t key) {
    gw_range begun = {.nesting = nesting, .key = key};
    end_range(nesting, key);
    gw_range_begin(&begun, label);
    gw_lock();
    bool is_kept = ranges_count < RANGES_COUNT;
    if (is_kept) ranges[ranges_count++] = begun;
    gw_unlock();
    if (!is_kept) gw_range_end(&begun);
}

static int push(const domain *in, gw_label *label) {
    if (in->index < 0) return -2;
    int depth = nestings[in->index].depth++;
    if (label != NULL && depth < NESTED_COUNT) {
        nestings[in->index].matched |= UINT64_C(1) << depth;
        begin_range(label, &nestings[in->index], (uint64_t)depth);
    }
    return depth;
}

static int pop(const domain *in) {
    if (in->index < 0 || nestings[in->index].depth <= 0) return -1;
    int depth = --nestings[in->index].depth;
    if (depth < NESTED_COUNT && nestings[in->index].matched >> depth & 1) {
        nestings[in->index].matched &= ~(UINT64_C(1) << depth);
        end_range(&nestings[in->index], (uint64_t)depth);
    }
    return depth;
}

static uint64_t start(gw_label *label, uint64_t theirs) {
    if (label == NULL) return theirs;
    uint64_t id = theirs != 0 ? theirs : (atomic_fetch_add(&started_count, 1) + 1) << 32;
    begin_range(label, NULL, id);
    return id;
}

static void *make_domain(const char *name, const void *theirs) {
    static domain *made[DOMAINS_COUNT];
    domain *found = NULL;
    pthread_mutex_lock(&labels_lock);
    for (int i = 1; i < domains_count && found == NULL; i++)
        if (name != NULL && !strcmp(made[i]->name, name)) found = made[i];
    if (found == NULL && name != NULL && domains_count < DOMAINS_COUNT && (found = calloc(1, sizeof *found)) != NULL) {
        found->index = domains_count;
        found->name = strdup(name);
        if (found->name == NULL) found->name = "";
        prepare_domain(found);
        made[domains_count++] = found;
    }
    pthread_mutex_unlock(&labels_lock);
    if (found == NULL && name != NULL)
        gw_trouble("expected at most %d NVTX domains, found more: ranges of %s and later domains are ignored; use fewer domains", DOMAINS_COUNT - 1, name);
    return handle_of(found != NULL ? found : &other_domains, theirs);
}

static const domain *domain_of(const void *handle) {
    const domain *found = handle == NULL ? &default_domain : ours_of(handle);
    return found != NULL ? found : &other_domains;
}

/* Return the handle of a registered string: of its label, or of ``no_label`` without a label. */
static void *make_string(gw_label *label, const void *theirs) { return handle_of(label != NULL ? label : &no_label, theirs); }

/* The functions that NVTX calls.  Each first calls the next injection's function, if any.  NVTX ignores the result of END. */

static int level(bool has_next, int theirs, int ours) { return has_next ? theirs : ours; }
#define IN(in) domain_of(in)
#define HOOKS(_) \
    _(CORE, PUSH_EX, int, (const attributes *of), (of), level(has_next, given, push(IN(NULL), label_of_attributes(IN(NULL), of)))) \
    _(CORE, PUSH_A, int, (const char *text), (text), level(has_next, given, push(IN(NULL), label_of(IN(NULL), text)))) \
    _(CORE, PUSH_W, int, (const wchar_t *text), (text), level(has_next, given, push(IN(NULL), label_of_wide(IN(NULL), text)))) \
    _(CORE, POP, int, (void), (), level(has_next, given, pop(IN(NULL)))) \
    _(CORE, START_EX, uint64_t, (const attributes *of), (of), start(label_of_attributes(IN(NULL), of), given)) \
    _(CORE, START_A, uint64_t, (const char *text), (text), start(label_of(IN(NULL), text), given)) \
    _(CORE, START_W, uint64_t, (const wchar_t *text), (text), start(label_of_wide(IN(NULL), text), given)) \
    _(CORE, END, int, (uint64_t id), (id), (end_range(NULL, id), given)) \
    _(CORE2, D_PUSH_EX, int, (const void *in, const attributes *of), (in, of), level(has_next, given, push(IN(in), label_of_attributes(IN(in), of)))) \
    _(CORE2, D_POP, int, (const void *in), (in), level(has_next, given, pop(IN(in)))) \
    _(CORE2, D_START_EX, uint64_t, (const void *in, const attributes *of), (in, of), start(label_of_attributes(IN(in), of), given)) \
    _(CORE2, D_END, int, (const void *in, uint64_t id), (in, id), (end_range(NULL, id), given)) \
    _(CORE2, D_CREATE_A, void *, (const char *name), (name), make_domain(name, given)) \
    _(CORE2, D_CREATE_W, void *, (const wchar_t *name), (name), make_domain(narrow(name, (char[TEXT_BYTES]){0}), given)) \
    _(CORE2, D_STRING_A, void *, (const void *in, const char *text), (in, text), make_string(label_of(IN(in), text), given)) \
    _(CORE2, D_STRING_W, void *, (const void *in, const wchar_t *text), (in, text), make_string(label_of_wide(IN(in), text), given))

#define NUMBER(module, id, ...) HOOK_##id,
enum { HOOKS(NUMBER) HOOKS_COUNT };
static function nexts[HOOKS_COUNT];
#define DEFINE(module, id, type, parameters, arguments, result) \
    static type hook_##id parameters { \
        bool has_next = nexts[HOOK_##id] != NULL; \
        type given = has_next ? ((type(*) parameters)nexts[HOOK_##id])arguments : 0; \
        return result; \
    }
HOOKS(DEFINE)
#define ROW(module, id, ...) {module, id, (function)hook_##id},
static const struct {
    int module;
    unsigned id;
    function call;
} hooks[] = {HOOKS(ROW)};

/* Return the address at which NVTX stores the function of a hook, or NULL. */
static function *place_of(const callbacks *table, int hook) {
    function **places = NULL;
    unsigned count = 0;
    bool is_there = table->module_table(hooks[hook].module, &places, &count) && places != NULL && hooks[hook].id < count;
    return is_there ? places[hooks[hook].id] : NULL;
}

/* The list of ranges, which `gpuwatch run --nvtx-list` prints */

__attribute__((destructor)) static void write_list(void) {
    if (!gw_lists_only) return;
    gw_lock();
    for (int i = 0; i < BUCKETS_COUNT; i++)
        for (gw_label *each = buckets[i]; each != NULL; each = each->next) {
            gw_text line = {0};
            if (each->count == 0) continue;
            gw_add_text(&line, "{\"domain\":", each->domain, GW_LABEL_BYTES);
            gw_add_text(&line, ",\"message\":", each->message, GW_LABEL_BYTES);
            gw_add(&line, ",\"count\":%lld,\"total_ns\":%lld,\"least_ns\":%lld,\"most_ns\":%lld", (long long)each->count,
                   (long long)each->total_ns, (long long)each->least_ns, (long long)each->most_ns);
            gw_report("GPUWATCH_NVTX_LIST", &line);
            each->count = each->total_ns = 0;
        }
    gw_unlock();
}

/* Initialisation */

static void read_environment(void) {
    const char *wanted = secure_getenv("GPUWATCH_NVTX");
    char *text = wanted != NULL ? strdup(wanted) : NULL, *rest = text;
    gw_lists_only = secure_getenv("GPUWATCH_NVTX_LIST") != NULL;
    gw_is_sync = secure_getenv("GPUWATCH_NVTX_SYNC") != NULL;
    for (char *each; rest != NULL && (each = strsep(&rest, "\n")) != NULL;) /* ``patterns`` points into the text, which is never freed */
        if (*each && patterns_count < PATTERNS_COUNT) patterns[patterns_count++] = each;
    prepare_domain(&default_domain);
}

/* Initialise the next injection, and store the functions that it registers. */
static void call_next(const void *(*export_table)(uint32_t), const callbacks *table) {
    function before[HOOKS_COUNT], *place;
    const char *path = secure_getenv("GPUWATCH_NVTX_NEXT");
    void *library = path != NULL && path[0] ? dlopen(path, RTLD_LAZY) : NULL;
    int (*initialize)(const void *(*)(uint32_t)) = NULL;
    if (library != NULL) *(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
    if (initialize == NULL) {
        if (path != NULL && path[0]) gw_trouble("%s: expected a library with an NVTX injection, found none; correct NVTX_INJECTION64_PATH", path);
        return;
    }
    for (int i = 0; i < HOOKS_COUNT; i++) before[i] = (place = place_of(table, i)) != NULL ? *place : NULL;
    if (!initialize(export_table)) return;
    for (int i = 0; i < HOOKS_COUNT; i++)
        if ((place = place_of(table, i)) != NULL && *place != before[i]) nexts[i] = *place;
    next.is_there = true;
}

/* NVTX calls this once for each program and library that contains its headers. */
GW_EXPORT int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    pthread_once(&once, read_environment);
    const callbacks *table = export_table != NULL ? export_table(TABLE_CALLBACKS) : NULL;
    if (table == NULL || table->size < sizeof *table || table->module_table == NULL) return 0;
    call_next(export_table, table);
    bool is_active = patterns_count > 0 || gw_lists_only;
    for (int i = 0; i < HOOKS_COUNT && is_active; i++) {
        function *place = place_of(table, i);
        if (place != NULL) *place = hooks[i].call;
    }
    return is_active || next.is_there;
}
