/* gpuwatch's windows from C and every language that calls C.
 *
 * A window is an interval of this process that the gpuwatch daemon judges.  No function fails in a way that the program must
 * handle: without a daemon gw_begin returns 0, and every other function accepts 0.  All functions may be called from any thread.
 */
#ifndef GPUWATCH_H
#define GPUWATCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t gw_window; /* 0 is no window */

/* Do once what the first window would do: connect to the daemon, and load the stamp kernel where there is a context.  Call it
 * before a warm-up, so that no pause lies between warm-up and window. */
void gw_prepare(void);

/* Begin a window around this process and its descendants; label is UTF-8, or NULL.
 * It takes up to a millisecond, the first of a process longer: it connects to the daemon and loads the stamp kernel. */
gw_window gw_begin(const char *label);

/* As gw_begin; stream (a cudaStream_t or CUstream, NULL for the default stream) launches the measured work, and must exist until
 * gw_end.  Iterations are then timed on that stream, with the SM clock of each. */
gw_window gw_begin_on(const char *label, void *stream);

/* Mark the end of one iteration and the beginning of the next: call it before the first, and after each. */
void gw_iteration(gw_window window);

/* Declare a fact by its name in annotate/declared.py, such as "call_bytes".  Returns 0, or -1 for a fact that is not kept. */
int gw_declare(gw_window window, const char *name, double value);
int gw_declare_text(gw_window window, const char *name, const char *value);

/* End a window.  Its times are handed over by a thread beside the program. */
void gw_end(gw_window window);

/* Write the run id of a window that is open (`gpuwatch show ID` has its verdict), or the first problem of this process, as text
 * that ends with a zero.  Return its length; 0 where there is none. */
size_t gw_run_id(gw_window window, char *text, size_t size);
size_t gw_problem(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
