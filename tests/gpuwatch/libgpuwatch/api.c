/* Windows of the C API.  Without an argument, the program opens one window with 60 iterations.  With COUNT [PAUSE_MS], it opens one
 * untimed window and COUNT timed ones, with a pause after each (40 ms by default).  For each timed window it prints the
 * microseconds of gw_begin and of gw_end. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "gpuwatch.h"

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void rest(long milliseconds) {
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

int main(int count, char **arguments) {
    dlopen("libcuda.so.1", RTLD_NOW); /* as the CUDA runtime does */
    if (count > 1) {
        for (int i = atoi(arguments[1]); i >= 0; i--) {
            double before = now_s();
            gw_window window = gw_begin("short");
            double opened = now_s();
            rest(2);
            double ending = now_s();
            gw_end(window);
            double ended = now_s();
            if (window && i < atoi(arguments[1])) printf("%.1f %.1f\n", (opened - before) * 1e6, (ended - ending) * 1e6); /* not the first */
            rest(count > 2 ? atoi(arguments[2]) : 40);
        }
        return 0;
    }
    char id[80] = "", problem[512] = "";
    gw_prepare();
    gw_window window = gw_begin("w\xc3\xa4rme \"1\"\xff");
    gw_run_id(window, id, sizeof id);
    for (int i = 0; i < 60; i++) {
        gw_iteration(window);
        rest(5);
    }
    gw_iteration(window);
    int kept = gw_declare(window, "call_bytes", 1e6) == 0 && gw_declare_text(window, "dtype", "bf\"16") == 0;
    int refused = gw_declare(window, "call_bytes", 1e308 * 10) && gw_declare_text(window + 64, "dtype", "x") && gw_declare_text(0, NULL, NULL);
    gw_end(window);
    gw_end(window);
    gw_iteration(window);
    gw_problem(problem, sizeof problem);
    printf("%s|%d|%d|%s\n", id, kept, refused, problem);
    return 0;
}
