/* Declarations shared by the library's files; the library exports none of them. */
#ifndef GPUWATCH_LIBRARY_H
#define GPUWATCH_LIBRARY_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpuwatch.h"

#ifndef GW_MS
#define GW_MS 1000000LL /* nanoseconds; tests use a smaller value to shorten waits */
#endif
#define GW_EXPORT __attribute__((visibility("default")))
#define GW_RUN_BYTES 72     /* a run id of at most 64 characters */
#define GW_LABEL_BYTES 256

int64_t gw_now_ns(void);

/* wire.c: the process's connection to the daemon.  gw_exchange returns within 2 s, also without an answer. */
typedef struct {
    char type[24], run[GW_RUN_BYTES], message[256];
} gw_reply;
typedef struct {
    char *text;
    size_t length, capacity;
    bool failed; /* out of memory: the text is incomplete and not sent */
} gw_text;
void gw_add(gw_text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gw_add_text(gw_text *out, const char *before, const char *text, size_t most);
void gw_add_column(gw_text *out, const char *before, const void *column, size_t bytes, size_t stride, size_t count);
bool gw_report(const char *variable, gw_text *line);
bool gw_exchange(gw_text *request, const char *expected, gw_reply *reply, bool may_connect);
void gw_wire_forget(void);
void gw_trouble(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* windows.c: the windows of this process, and the choice of ranges that become windows. */
typedef struct gw_label gw_label;
struct gw_label { /* ranges of one domain and message; never freed, because programs keep pointers */
    gw_label *next;
    uint64_t hash;
    char *domain, *message;
    bool is_long, is_lone;   /* a range was long enough for a window; a range was too short for a window and alone */
    int64_t window_begin_ns; /* start of the label's latest window */
    int64_t count, total_ns, least_ns, most_ns;
};
typedef struct {
    gw_label *label;
    gw_window opened, within; /* the window that this range opened, and the window that has this range as an iteration */
    int64_t begin_ns, stamp;
    const void *nesting; /* the thread's nesting, with the depth as key; NULL for a started range, with the id as key */
    uint64_t key;
} gw_range;
void gw_range_begin(gw_range *range, gw_label *label);
void gw_range_end(gw_range *range);
void gw_lock(void);
void gw_unlock(void);
void gw_flush(void);                   /* end and send all windows that can end, at the end of the process */
extern bool gw_lists_only, gw_is_sync; /* set once, before the first range */
void gw_nvtx_forget(void);

/* stamps.c: the true clock through the driver API; without a CUDA context every function does nothing. */
typedef struct {
    int64_t begin_ns, end_ns, begin_stamp, end_stamp;
    double took_s;
    float clock_mhz; /* NaN if the stamps gave no clock */
} gw_entry;
typedef struct {
    bool has_stamps;                                /* the times are from the GPU */
    int64_t end_ns; /* end of the GPU's work on the host's clock; 0 if no stamp could be read */
    double clock_mhz, stamped_s, sync_s, spread_s, seen_ratio, overhead_s;
    int sms_count;
    char uuid[48];
} gw_stamped;
#define GW_NO_STAMP (-1)
bool gw_stamps_prepare(void);
int64_t gw_stamp(void *stream);
bool gw_stamps_done(int64_t stamp, int64_t wait_ns);
/* Replace the host's times of entries with stamps at both ends by the GPU's, and set the clocks; return the number of entries
 * left.  If at least nine tenths have stamps, entries without usable stamps are dropped; otherwise all host times stay. */
size_t gw_stamps_read(gw_entry *entries, size_t count, const gw_entry *window, gw_stamped *out);
void gw_synchronize(void);
void gw_stamps_forget(void);
#endif
