/* gpuwatch windows for C and every language that can call C.
 *
 * A window is an interval of this process that the gpuwatch daemon judges.  The program need not handle any error: without a
 * daemon gw_begin returns 0, and every other function accepts 0.  All functions may be called from any thread.
 */
#ifndef GPUWATCH_H
#define GPUWATCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t gw_window; /* 0 means "no window" */

/* Connect to the daemon, and load the stamp kernel if there is a CUDA context; without this call, the first window does both.
 * Call this function before a warm-up, so that there is no pause between warm-up and window. */
void gw_prepare(void);

/* Begin a window around this process and its descendants; label is UTF-8, or NULL.  Return 0 if no window was opened.
 * A call usually takes up to a millisecond; the first call of a process takes longer, unless gw_prepare was called. */
gw_window gw_begin(const char *label);

/* Begin a window as gw_begin does, and time iterations on a stream, with the SM clock of each iteration.  The stream is a
 * cudaStream_t or CUstream (NULL: the default stream), and must exist until gw_end. */
gw_window gw_begin_on(const char *label, void *stream);

/* Mark the end of one iteration and the start of the next: call this function before the first iteration, and after each. */
void gw_iteration(gw_window window);

/* Declare a fact by its name in annotate/declared.py, such as "call_bytes".  Return 0, or -1 if the fact is not stored. */
int gw_declare(gw_window window, const char *name, double value);
int gw_declare_text(gw_window window, const char *name, const char *value);

/* End a window.  A thread of the library sends the times to the daemon. */
void gw_end(gw_window window);

/* Write the run id of an open window (`gpuwatch show ID` prints the verdict), or the first problem of this process, as a
 * zero-terminated text.  Return the length of the full text; 0 if there is no such window or problem. */
size_t gw_run_id(gw_window window, char *text, size_t size);
size_t gw_problem(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
