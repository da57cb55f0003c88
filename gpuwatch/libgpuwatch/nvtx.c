/* NVTX ranges as windows: NVTX loads this library where NVTX_INJECTION64_PATH names it, and calls it for every range.
 *
 * The declarations follow the binary interface of NVTX 3.  Another injection (GPUWATCH_NVTX_NEXT) is called for every call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "library.h"

enum { PATTERNS_COUNT = 16, DOMAINS_COUNT = 64, NESTED_COUNT = 64, STARTED_COUNT = 256, LABELS_COUNT = 4096, BUCKETS_COUNT = 1024, TEXT_BYTES = 1024 };
enum { MODULE_CORE = 1, MODULE_CORE2 = 5, TABLE_CALLBACKS = 1, MESSAGE_ASCII = 1, MESSAGE_UNICODE = 2, MESSAGE_REGISTERED = 3 };
enum { START_EX = 4, START_A, START_W, END, PUSH_EX, PUSH_A, PUSH_W, POP };                                     /* of CORE */
enum { D_START_EX = 2, D_END, D_PUSH_EX, D_POP, D_STRING_A = 10, D_STRING_W, D_CREATE_A, D_CREATE_W, D_DESTROY }; /* of CORE2 */

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
typedef struct {
    unsigned epoch;
    int32_t depths[DOMAINS_COUNT];
    int count;
    gw_range ranges[NESTED_COUNT];
} stacks;

static gw_label no_label;
static domain default_domain = {.name = ""};
static const char *patterns[PATTERNS_COUNT];
static int patterns_count;
static _Atomic int domains_count = 1;
static pthread_mutex_t labels_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(gw_label *) buckets[BUCKETS_COUNT];
static int labels_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_active;
static __thread stacks *mine;
static pthread_key_t mine_key;
static gw_range started[STARTED_COUNT];
static _Atomic int started_count;
static uint64_t started_ids;

/* The functions of the next injection, and what its handles stand for. */
static struct {
    function core[16], core2[16];
    bool is_there;
    pthread_mutex_t lock;
    struct {
        const void *handle;
        void *ours;
    } * handles;
    size_t count, capacity;
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

/* Return the handle for the program: the next injection's, where it has one, by which ours is found again. */
static void *handle_of(void *ours, const void *theirs) {
    if (!next.is_there || theirs == NULL) theirs = ours;
    if (!next.is_there) return ours;
    pthread_mutex_lock(&next.lock);
    if (next.count == next.capacity) {
        void *larger = realloc(next.handles, (next.capacity * 2 + 64) * sizeof *next.handles);
        if (larger != NULL) {
            next.handles = larger;
            next.capacity = next.capacity * 2 + 64;
        }
    }
    if (next.count < next.capacity) {
        next.handles[next.count].handle = theirs;
        next.handles[next.count++].ours = ours;
    }
    pthread_mutex_unlock(&next.lock);
    return (void *)theirs;
}

/* In a forked child another thread of the parent may have had the locks. */
void gw_nvtx_forget(void) {
    pthread_mutex_init(&labels_lock, NULL);
    pthread_mutex_init(&next.lock, NULL);
    memset(started, 0, sizeof started);
    atomic_store(&started_count, 0);
}

/* Labels */

/* Return whether the whole text fits a pattern, in which * stands for any characters and ? for one byte. */
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

/* A pattern is for the message alone, or, where it has a colon after the domain's name, for the rest of it. */
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
    _Atomic(gw_label *) *bucket = &buckets[hash % BUCKETS_COUNT];
    for (int tried = 0; tried < 2; tried++) {
        for (gw_label *each = atomic_load(bucket); each != NULL; each = each->next)
            if (each->hash == hash && !strcmp(each->message, message) && !strcmp(each->domain, in->name)) {
                if (tried) pthread_mutex_unlock(&labels_lock);
                return each;
            }
        if (!tried) pthread_mutex_lock(&labels_lock);
    }
    gw_label *made = labels_count < LABELS_COUNT ? calloc(1, sizeof *made) : NULL;
    if (made != NULL && (made->message = strdup(message)) != NULL) {
        made->domain = in->name;
        made->hash = hash;
        made->next = atomic_load(bucket);
        atomic_store(bucket, made);
        labels_count++;
    }
    pthread_mutex_unlock(&labels_lock);
    return made != NULL && made->message != NULL ? made : NULL;
}

/* Return the label of a message that a pattern fits, else NULL. */
static gw_label *label_of(const domain *in, const char *message) {
    if (in == NULL || message == NULL) return NULL;
    bool is_wanted = gw_lists_only;
    for (int i = 0; i < in->patterns_count && !is_wanted; i++) {
        const char *pattern = in->patterns[i];
        is_wanted = (*pattern == *message || *pattern == '*' || *pattern == '?') && fits(pattern, message);
    }
    return is_wanted ? find_label(in, message) : NULL;
}

/* Write wide characters as UTF-8; what is no character becomes U+FFFD. */
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

/* Ranges of a thread, one stack a domain */

static void free_mine(void *ended) {
    mine = NULL; /* what still comes while the thread ends has stacks of its own */
    free(ended);
}

static stacks *my_stacks(void) {
    if (mine == NULL) {
        mine = calloc(1, sizeof *mine);
        if (mine == NULL) return NULL;
        mine->epoch = atomic_load(&gw_epoch);
        pthread_setspecific(mine_key, mine);
    } else if (__builtin_expect(mine->epoch != atomic_load_explicit(&gw_epoch, memory_order_relaxed), 0)) {
        mine->epoch = atomic_load(&gw_epoch); /* a forked child: its parent ends these ranges */
        mine->count = 0;
    }
    return mine;
}

static int push(const domain *in, gw_label *label) {
    stacks *own = my_stacks();
    if (own == NULL || in == NULL) return -2;
    int depth = own->depths[in->index]++;
    if (label != NULL && own->count < NESTED_COUNT) {
        gw_range *range = &own->ranges[own->count];
        range->key = (uint64_t)in->index << 32 | (uint32_t)depth;
        gw_range_begin(range, label);
        own->count++;
    }
    return depth;
}

static int pop(const domain *in) {
    stacks *own = my_stacks();
    if (own == NULL || in == NULL || own->depths[in->index] <= 0) return -1;
    int depth = --own->depths[in->index];
    uint64_t key = (uint64_t)in->index << 32 | (uint32_t)depth;
    for (int i = own->count; i-- > 0;)
        if (own->ranges[i].key == key) {
            gw_range range = own->ranges[i];
            memmove(&own->ranges[i], &own->ranges[i + 1], (size_t)(--own->count - i) * sizeof range);
            gw_range_end(&range);
            break;
        }
    return depth;
}

/* Ranges of the process, which may end in another thread than they began in */

static uint64_t start(gw_label *label, uint64_t theirs) {
    if (label == NULL) return theirs;
    gw_range range = {0};
    gw_range_begin(&range, label);
    gw_lock();
    range.key = theirs != 0 ? theirs : ++started_ids << 32;
    uint64_t id = range.key;
    int place = 0;
    while (place < STARTED_COUNT && started[place].label != NULL) place++;
    if (place < STARTED_COUNT) {
        started[place] = range;
        atomic_fetch_add(&started_count, 1);
    }
    gw_unlock();
    if (place == STARTED_COUNT) gw_range_end(&range); /* too many at once: it ends here */
    return id;
}

static void end(uint64_t id) {
    gw_range range = {0};
    if (id == 0 || atomic_load(&started_count) == 0) return;
    gw_lock();
    for (int i = 0; i < STARTED_COUNT && range.label == NULL; i++)
        if (started[i].label != NULL && started[i].key == id) {
            range = started[i];
            started[i].label = NULL;
            atomic_fetch_sub(&started_count, 1);
        }
    gw_unlock();
    if (range.label != NULL) gw_range_end(&range);
}

/* The functions that NVTX calls; each calls the next injection's */

#define NEXT(module, id, type) ((type)(next.module[id]))
static int push_ex(const attributes *of) {
    int level = push(&default_domain, label_of_attributes(&default_domain, of));
    return NEXT(core, PUSH_EX, void *) ? NEXT(core, PUSH_EX, int (*)(const attributes *))(of) : level;
}
static int push_a(const char *message) {
    int level = push(&default_domain, label_of(&default_domain, message));
    return NEXT(core, PUSH_A, void *) ? NEXT(core, PUSH_A, int (*)(const char *))(message) : level;
}
static int push_w(const wchar_t *message) {
    int level = push(&default_domain, label_of_wide(&default_domain, message));
    return NEXT(core, PUSH_W, void *) ? NEXT(core, PUSH_W, int (*)(const wchar_t *))(message) : level;
}
static int pop_one(void) {
    int theirs = NEXT(core, POP, void *) ? NEXT(core, POP, int (*)(void))() : 0, level = pop(&default_domain);
    return NEXT(core, POP, void *) ? theirs : level;
}
static uint64_t start_ex(const attributes *of) {
    uint64_t id = NEXT(core, START_EX, void *) ? NEXT(core, START_EX, uint64_t(*)(const attributes *))(of) : 0;
    return start(label_of_attributes(&default_domain, of), id);
}
static uint64_t start_a(const char *message) {
    uint64_t id = NEXT(core, START_A, void *) ? NEXT(core, START_A, uint64_t(*)(const char *))(message) : 0;
    return start(label_of(&default_domain, message), id);
}
static uint64_t start_w(const wchar_t *message) {
    uint64_t id = NEXT(core, START_W, void *) ? NEXT(core, START_W, uint64_t(*)(const wchar_t *))(message) : 0;
    return start(label_of_wide(&default_domain, message), id);
}
static void end_one(uint64_t id) {
    end(id);
    if (NEXT(core, END, void *)) NEXT(core, END, void (*)(uint64_t))(id);
}
static const domain *domain_of(const void *handle) { return handle == NULL ? &default_domain : ours_of(handle); }
static int domain_push(const void *in, const attributes *of) {
    const domain *found = domain_of(in);
    int level = push(found, label_of_attributes(found, of));
    return NEXT(core2, D_PUSH_EX, void *) ? NEXT(core2, D_PUSH_EX, int (*)(const void *, const attributes *))(in, of) : level;
}
static int domain_pop(const void *in) {
    int theirs = NEXT(core2, D_POP, void *) ? NEXT(core2, D_POP, int (*)(const void *))(in) : 0, level = pop(domain_of(in));
    return NEXT(core2, D_POP, void *) ? theirs : level;
}
static uint64_t domain_start(const void *in, const attributes *of) {
    uint64_t id = NEXT(core2, D_START_EX, void *) ? NEXT(core2, D_START_EX, uint64_t(*)(const void *, const attributes *))(in, of) : 0;
    return start(label_of_attributes(domain_of(in), of), id);
}
static void domain_end(const void *in, uint64_t id) {
    end(id);
    if (NEXT(core2, D_END, void *)) NEXT(core2, D_END, void (*)(const void *, uint64_t))(in, id);
}

static void *make_domain(const char *name, const void *theirs) {
    static domain *made[DOMAINS_COUNT];
    domain *found = NULL;
    pthread_mutex_lock(&labels_lock);
    int count = atomic_load(&domains_count);
    for (int i = 1; i < count && found == NULL; i++)
        if (name != NULL && !strcmp(made[i]->name, name)) found = made[i];
    if (found == NULL && name != NULL && count < DOMAINS_COUNT && (found = calloc(1, sizeof *found)) != NULL) {
        found->index = count;
        found->name = strdup(name);
        if (found->name == NULL) found->name = "";
        prepare_domain(found);
        made[count] = found;
        atomic_store(&domains_count, count + 1);
    }
    pthread_mutex_unlock(&labels_lock);
    return handle_of(found, theirs);
}
static void *create_a(const char *name) {
    return make_domain(name, NEXT(core2, D_CREATE_A, void *) ? NEXT(core2, D_CREATE_A, void *(*)(const char *))(name) : NULL);
}
static void *create_w(const wchar_t *name) {
    char text[TEXT_BYTES];
    return make_domain(narrow(name, text), NEXT(core2, D_CREATE_W, void *) ? NEXT(core2, D_CREATE_W, void *(*)(const wchar_t *))(name) : NULL);
}
/* A registered string is its label, or the one of all that no pattern fits. */
static void *make_string(gw_label *label, const void *theirs) { return handle_of(label != NULL ? label : &no_label, theirs); }
static void *string_a(const void *in, const char *text) {
    return make_string(label_of(domain_of(in), text),
                       NEXT(core2, D_STRING_A, void *) ? NEXT(core2, D_STRING_A, void *(*)(const void *, const char *))(in, text) : NULL);
}
static void *string_w(const void *in, const wchar_t *text) {
    return make_string(label_of_wide(domain_of(in), text),
                       NEXT(core2, D_STRING_W, void *) ? NEXT(core2, D_STRING_W, void *(*)(const void *, const wchar_t *))(in, text) : NULL);
}

static const struct {
    int module, id;
    function call;
} hooks[] = {
    {MODULE_CORE, PUSH_EX, (function)push_ex}, {MODULE_CORE, PUSH_A, (function)push_a}, {MODULE_CORE, PUSH_W, (function)push_w},
    {MODULE_CORE, POP, (function)pop_one}, {MODULE_CORE, START_EX, (function)start_ex}, {MODULE_CORE, START_A, (function)start_a},
    {MODULE_CORE, START_W, (function)start_w}, {MODULE_CORE, END, (function)end_one}, {MODULE_CORE2, D_PUSH_EX, (function)domain_push},
    {MODULE_CORE2, D_POP, (function)domain_pop}, {MODULE_CORE2, D_START_EX, (function)domain_start},
    {MODULE_CORE2, D_END, (function)domain_end}, {MODULE_CORE2, D_CREATE_A, (function)create_a},
    {MODULE_CORE2, D_CREATE_W, (function)create_w}, {MODULE_CORE2, D_STRING_A, (function)string_a},
    {MODULE_CORE2, D_STRING_W, (function)string_w},
};

/* The list of ranges, which `gpuwatch run --nvtx-list` prints */

static void write_list(void) {
    const char *path = secure_getenv("GPUWATCH_NVTX_LIST");
    if (path == NULL) return;
    gw_lock();
    for (int i = 0; i < BUCKETS_COUNT; i++)
        for (gw_label *each = atomic_load(&buckets[i]); each != NULL; each = each->next) {
            gw_text line = {0};
            if (each->count == 0) continue;
            gw_add(&line, "{\"domain\":\"");
            gw_add_json(&line, each->domain, 256);
            gw_add(&line, "\",\"message\":\"");
            gw_add_json(&line, each->message, 256);
            gw_add(&line, "\",\"count\":%lld,\"total_ns\":%lld,\"least_ns\":%lld,\"most_ns\":%lld}\n", (long long)each->count,
                   (long long)each->total_ns, (long long)each->least_ns, (long long)each->most_ns);
            gw_write_line(path, &line);
            free(line.text);
            each->count = each->total_ns = 0;
        }
    gw_unlock();
}

__attribute__((destructor)) static void list_at_exit(void) {
    if (gw_lists_only) write_list();
}

/* Initialisation */

static void read_environment(void) {
    const char *wanted = secure_getenv("GPUWATCH_NVTX");
    char *text = wanted != NULL ? strdup(wanted) : NULL, *rest = text;
    gw_lists_only = secure_getenv("GPUWATCH_NVTX_LIST") != NULL;
    gw_is_sync = secure_getenv("GPUWATCH_NVTX_SYNC") != NULL;
    for (char *each; rest != NULL && (each = strsep(&rest, "\n")) != NULL;) /* the patterns keep the text */
        if (*each && patterns_count < PATTERNS_COUNT) patterns[patterns_count++] = each;
    is_active = (patterns_count > 0 || gw_lists_only) && pthread_key_create(&mine_key, free_mine) == 0;
    prepare_domain(&default_domain);
    gw_windows_start();
}

/* Let the next injection take its functions, and keep them. */
static void call_next(const void *(*export_table)(uint32_t), const callbacks *table) {
    static const int modules[] = {MODULE_CORE, MODULE_CORE2};
    function **slots[2] = {0}, before[2][16] = {{0}};
    const char *path = secure_getenv("GPUWATCH_NVTX_NEXT");
    void *library = path != NULL && path[0] ? dlopen(path, RTLD_LAZY) : NULL;
    int (*initialize)(const void *(*)(uint32_t)) = NULL;
    if (library != NULL) *(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
    if (initialize == NULL) {
        if (path != NULL && path[0]) gw_trouble("%s: expected an injection for NVTX, found none", path);
        return;
    }
    for (int i = 0; i < 2; i++) {
        unsigned count = 0;
        if (!table->module_table(modules[i], &slots[i], &count)) slots[i] = NULL;
        for (unsigned id = 0; slots[i] != NULL && id < count && id < 16; id++) before[i][id] = slots[i][id] ? *slots[i][id] : NULL;
    }
    if (!initialize(export_table)) return;
    for (int i = 0; i < 2; i++)
        for (int id = 0; slots[i] != NULL && id < 16; id++)
            if (slots[i][id] && *slots[i][id] != before[i][id]) (i ? next.core2 : next.core)[id] = *slots[i][id];
    next.is_there = true;
}

/* NVTX calls this once for each program and library that contains its headers. */
GW_EXPORT int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    pthread_once(&once, read_environment);
    const callbacks *table = export_table != NULL ? export_table(TABLE_CALLBACKS) : NULL;
    if (table == NULL || table->size < sizeof *table || table->module_table == NULL) return 0;
    call_next(export_table, table);
    if (!is_active) return next.is_there;
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
        function **slots = NULL;
        unsigned count = 0;
        if (table->module_table(hooks[i].module, &slots, &count) && slots != NULL && (unsigned)hooks[i].id < count && slots[hooks[i].id])
            *slots[hooks[i].id] = hooks[i].call;
    }
    return 1;
}
