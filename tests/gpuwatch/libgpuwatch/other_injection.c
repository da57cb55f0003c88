/* A mock of another tool's injection: it counts the pushes of the default domain, and prints the count at exit. */
#include <stdint.h>
#include <stdio.h>

typedef void (*function)(void);
static int pushes_count, level;

static int push(const char *message) { return (void)message, pushes_count++, level++; }
static int pop(void) { return --level; }

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    const struct {
        size_t size;
        int (*get)(int, function ***, unsigned *);
    } *callbacks = export_table(1);
    function **table;
    unsigned count;
    if (!callbacks->get(1, &table, &count)) return 0;
    *table[9] = (function)push;
    *table[11] = (function)pop;
    return 1;
}

__attribute__((destructor)) static void print_count(void) { printf("other injection: %d pushes\n", pushes_count); }
