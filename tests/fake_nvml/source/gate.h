/* The gate of every call, which counts the call, uses CPU time, and hangs, fails or continues; handles; and values. */
#ifndef GATE_H
#define GATE_H
#include "abi.h"
#include "scene.h"

enum {
#define FUNCTION(name, kind) F_##name,
#include "functions.def"
#undef FUNCTION
};

enum {
#define SIGNAL(name, value) S_##name,
#include "signals.def"
#undef SIGNAL
};

/* The object of a handle: a board, or one of its MIG instances. */
typedef struct { int index, slot; Gpu *gpu; Instance *instance; } Found;

extern Scene *scene;

int attach(int function);
int detach(void);
int enter(int function, int gpu);
int enter_with(int function, Handle handle, Found *found);

Handle handle_of(int gpu, int slot);

int64_t clock_ns(int clock);
int64_t now_ns(void);
int64_t wall_us(void);
void nap(int64_t ns);
double at(const Gpu *gpu, int signal, int64_t when_ns);
int read_signal(const Gpu *gpu, int signal, double *value);
int read_uint(const Gpu *gpu, int signal, unsigned *out);
int text(char *out, unsigned size, const char *from);

/* The first line of a function that takes a board's handle: sets `found` to the board, or returns an error code. */
#define BOARD(function, handle) \
    Found found; \
    do { \
        int code_ = enter_with(F_##function, handle, &found); \
        if (code_) return code_; \
        if (found.instance) return NOT_SUPPORTED; \
    } while (0)

/* The same for functions that accept a MIG instance, too. */
#define ANY(function, handle) \
    Found found; \
    do { \
        int code_ = enter_with(F_##function, handle, &found); \
        if (code_) return code_; \
    } while (0)
#endif
