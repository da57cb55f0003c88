/* The compiled loop: it reads the rows of one GPU at their deadlines and keeps the answers as the driver wrote them.

After a pause the CPU caches no longer hold the Python interpreter, and a pass in Python is slow (docs/decisions/0053).
This loop is small enough to stay fast; Python decodes the answers later, many passes at once.

The loop does not depend on NVML: compiled_loop.py supplies the functions, the arguments, and the initial content of the
answers' memory, in the structures below.  The loop allocates nothing and holds no lock. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const uint32_t gpuwatch_compiled_loop_layout = 2; /* version of these structures, as in compiled_loop.py */

typedef struct { /* one call: f(handle, answer), or f(handle, number, answer) */
    void *function, *handle;
    uint32_t has_number, number, offset, pad; /* offset: of the answer in the row's memory */
} Question;

typedef struct {
    const Question *questions;
    const uint8_t *blank; /* initial content of the answers' memory: versions and field ids */
    uint32_t questions_count, bytes;
} Row;

typedef struct {
    int64_t due_ns, begin_ns, end_ns;
    int64_t missed_count;
    int64_t is_pulse;
} Pass;

typedef struct {
    Row row, pulse;
    uint64_t ends; /* bits of the codes that end a row */
    Pass *passes;
    int32_t *codes;   /* of every pass, then of the last pulse; codes_count each */
    uint8_t *answers; /* of every pass, then of the last pulse; answers_bytes each */
    uint32_t passes_count, codes_count, answers_bytes, has_last_pulse;
    int32_t wake_fd, pad2;
    int64_t asking_since_ns; /* 0 outside of calls; other threads read this field */
} Loop;

typedef int (*Plain)(void *handle, void *answer);
typedef int (*Numbered)(void *handle, uint32_t number, void *answer);

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/* Wait until ``due_ns``; return 1 if woken earlier. */
static int woken(int wake_fd, int64_t due_ns) {
    int64_t left_ns;
    while ((left_ns = due_ns - now_ns()) > 0) {
        struct pollfd wake = {wake_fd, POLLIN, 0};
        struct timespec left = {left_ns / 1000000000, left_ns % 1000000000};
        if (ppoll(&wake, 1, &left, NULL) > 0) {
            uint64_t rung;
            return read(wake_fd, &rung, sizeof rung) != 0; /* the read only resets the eventfd */
        }
    }
    return 0;
}

/* Make the calls of a row; stop and return 0 after a code in ``ends``, otherwise return 1. */
static int ask(const Row *row, uint64_t ends, int32_t *codes, uint8_t *answers) {
    memcpy(answers, row->blank, row->bytes);
    for (uint32_t i = 0; i < row->questions_count; i++) {
        const Question *question = &row->questions[i];
        void *answer = answers + question->offset;
        codes[i] = question->has_number ? ((Numbered)question->function)(question->handle, question->number, answer)
                                        : ((Plain)question->function)(question->handle, answer);
        if (codes[i] >= 0 && codes[i] < 64 && (ends >> codes[i] & 1)) {
            for (uint32_t rest = i + 1; rest < row->questions_count; rest++) codes[rest] = codes[i];
            return 0;
        }
    }
    return 1;
}

/* Compare a pulse with the last pulse, and store the pulse as the last one; return 1 if both were equal, otherwise 0. */
static int is_repeated(Loop *loop, uint32_t pass) {
    int32_t *codes = loop->codes + (uint64_t)pass * loop->codes_count;
    int32_t *last_codes = loop->codes + (uint64_t)loop->passes_count * loop->codes_count;
    uint8_t *answers = loop->answers + (uint64_t)pass * loop->answers_bytes;
    uint8_t *last_answers = loop->answers + (uint64_t)loop->passes_count * loop->answers_bytes;
    size_t codes_bytes = loop->pulse.questions_count * sizeof *codes;
    int repeats = loop->has_last_pulse && !memcmp(codes, last_codes, codes_bytes) &&
                  !memcmp(answers, last_answers, loop->pulse.bytes);
    memcpy(last_codes, codes, codes_bytes);
    memcpy(last_answers, answers, loop->pulse.bytes);
    loop->has_last_pulse = 1;
    return repeats;
}

/* Read a pulse in addition to a row, so that a changed pulse never waits for the pass after the next.
   Keep the pulse and return 1 if it differs from the last one, otherwise return 0. */
static int has_changed_pulse(Loop *loop, uint32_t *count) {
    if (!loop->pulse.questions_count || *count == loop->passes_count) return 0;
    int64_t begin_ns = now_ns();
    __atomic_store_n(&loop->asking_since_ns, begin_ns, __ATOMIC_RELEASE);
    ask(&loop->pulse, loop->ends, loop->codes + (uint64_t)*count * loop->codes_count,
        loop->answers + (uint64_t)*count * loop->answers_bytes);
    __atomic_store_n(&loop->asking_since_ns, 0, __ATOMIC_RELEASE);
    if (is_repeated(loop, *count)) return 0;
    loop->passes[(*count)++] = (Pass){begin_ns, begin_ns, now_ns(), 0, 1};
    return 1;
}

/* Make passes from ``due_ns`` to ``until_ns``, ``period_ns`` apart.  Always make the first pass, unless woken.
   A pass reads the whole row if the last row, at ``row_at_ns``, is at least ``row_after_ns`` old, otherwise the pulse.
   If ``is_resting``, discard unchanged pulses, return with the first changed pulse, and count only rows against ``until_ns``.
   Return the number of kept passes. */
uint32_t gpuwatch_compiled_loop(Loop *loop, int64_t due_ns, int64_t period_ns, int64_t until_ns, int64_t row_at_ns,
                                int64_t row_after_ns, int64_t is_resting) {
    uint32_t count = 0;
    while (count < loop->passes_count) {
        if (woken(loop->wake_fd, due_ns)) break;
        int64_t begin_ns = now_ns();
        int64_t missed_count = (begin_ns - due_ns) / period_ns; /* count the missed deadlines, never queue them */
        due_ns += missed_count * period_ns;
        int is_pulse = loop->pulse.questions_count && begin_ns - row_at_ns < row_after_ns;
        if (!is_pulse) row_at_ns = begin_ns;
        __atomic_store_n(&loop->asking_since_ns, begin_ns, __ATOMIC_RELEASE);
        int goes_on = ask(is_pulse ? &loop->pulse : &loop->row, loop->ends, loop->codes + (uint64_t)count * loop->codes_count,
                          loop->answers + (uint64_t)count * loop->answers_bytes);
        __atomic_store_n(&loop->asking_since_ns, 0, __ATOMIC_RELEASE);
        if (is_resting && is_pulse && goes_on && is_repeated(loop, count)) {
            due_ns += period_ns;
            continue;
        }
        loop->passes[count++] = (Pass){due_ns, begin_ns, now_ns(), missed_count, is_pulse};
        due_ns += period_ns;
        if (!goes_on || due_ns > until_ns || (is_resting && (is_pulse || has_changed_pulse(loop, &count)))) break;
    }
    return count;
}
