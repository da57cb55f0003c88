/* A window around a loop in C, after a warm-up: each pass is an iteration, with its SM clock if the program uses CUDA. */
#include <stdio.h>
#include <time.h>

#include <gpuwatch.h>

static void step(void) { /* your launches */
    struct timespec pause = {0, 5000000};
    nanosleep(&pause, NULL);
}

int main(void) {
    char run[80];
    gw_prepare(); /* before the warm-up, so that no pause separates warm-up and window */
    for (int i = 0; i < 600; i++) step();
    gw_window window = gw_begin("plain C");
    size_t is_there = gw_run_id(window, run, sizeof run);
    for (int i = 0; i < 200; i++) {
        gw_iteration(window);
        step();
    }
    gw_iteration(window);
    gw_end(window);
    if (is_there) printf("gpuwatch show %s\n", run);
    return 0;
}
