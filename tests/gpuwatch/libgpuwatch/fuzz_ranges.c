/* Random sequences of ranges and API calls, from several threads and forked children, with an erratic daemon.
 *
 * fuzz_ranges SEQUENCES THREADS SEED prints the number of requests to open a window, and exits with 2 to 4 if the set-up fails.  A
 * crash of a thread or of a child ends the program by a signal.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#include "gpuwatch.h"

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t));

typedef void (*function)(void);
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

static function core[16], core2[16];
static function *core_slots[16], *core2_slots[16];
static _Atomic long windows_count;
static long sequences_count;
static char *long_text;

/* The tables of NVTX: pointers to the slots of functions. */
static int module_table(int module, function ***table, unsigned *count) {
    *table = module == 1 ? core_slots : module == 5 ? core2_slots : NULL;
    *count = 16;
    return *table != NULL;
}
static struct {
    size_t size;
    int (*get)(int, function ***, unsigned *);
} callbacks = {sizeof callbacks, module_table};
static const void *export_table(uint32_t id) { return id == 1 ? &callbacks : NULL; }

static uint32_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* A daemon that answers, and sometimes sends an invalid line, sends nothing, or closes the connection. */
static void *serve(void *listener) {
    uint64_t random = 42;
    char line[1 << 16], answer[256];
    for (;;) {
        int fd = accept((int)(intptr_t)listener, NULL, NULL);
        if (fd < 0) continue;
        size_t length = 0;
        for (ssize_t got; (got = recv(fd, line + length, sizeof line - 1 - length, 0)) > 0;) {
            length += (size_t)got;
            if (line[length - 1] != '\n' && length < sizeof line - 1) continue;
            int is_long = line[length - 1] != '\n'; /* a long line of times, whose end is in the next piece */
            line[length] = 0;
            length = 0;
            if (is_long) continue;
            const char *type = strstr(line, "\"hello\"") ? "welcome" : strstr(line, "\"open\"") ? "opened" : strstr(line, "\"close\"") ? "closed" : "taken";
            if (!strcmp(type, "opened")) windows_count++;
            uint32_t dice = next(&random) % 400;
            if (dice == 0) break;
            if (dice == 1) snprintf(answer, sizeof answer, "{\"type\":\"refused\",\"message\":\"\\u00e9 \\\"no\\\"\"}\n");
            else if (dice == 2) snprintf(answer, sizeof answer, "{\"type\":\"%s\",\"run\":\"%.*s\"}\n", type, 200, long_text);
            else if (dice == 3) snprintf(answer, sizeof answer, "{{]}\"\\\n");
            else if (dice == 4) strcpy(answer, "\x01\n");
            else if (dice == 5 && next(&random) % 8 == 0) continue; /* no answer, so that the library reaches its deadline */
            else snprintf(answer, sizeof answer, "{\"a\":[1,{\"b\":\"]\"}],\"type\":\"%s\",\"run\":\"r%ld\",\"opened_ns\":12}\n", type, (long)windows_count);
            if (send(fd, answer, strlen(answer), MSG_NOSIGNAL) < 0) break;
        }
        close(fd);
    }
    return NULL;
}

static const char *any_text(uint64_t *random) {
    static const char *const texts[] = {"timed", "t", "", "step", "x\"\\\n\t\x01", "\xff\xfe\xc0\x80\xed\xa0\x80", "\xf0\x9f\x98\x80 timed", "timed*", "%s%n", "NCCL:all"};
    uint32_t which = next(random) % 12;
    return which < 10 ? texts[which] : which == 10 ? long_text : "timed";
}

static void fill(attributes *of, uint64_t *random, const void *string) {
    static const wchar_t wide[] = {'t', 'i', 'm', 'e', 'd', 0}, odd[] = {0x1F600, 0xD800, 0x7FFFFFFF, 0x20AC, 0xE9, 0};
    memset(of, 0, sizeof *of);
    of->size = next(random) % 50 ? sizeof *of : 8;
    of->message_type = (int32_t)(next(random) % 5);
    if (of->message_type == 1) of->message = any_text(random);
    else if (of->message_type == 2) of->message = next(random) % 2 ? wide : odd;
    else if (of->message_type == 3) of->message = string;
}

static void run_sequence(uint64_t *random, void *const *domains, void *const *strings) {
    uint64_t ids[4] = {0};
    gw_window window = 0;
    attributes of;
    for (uint32_t left = next(random) % 20; left > 0; left--) {
        void *domain = domains[next(random) % 4];
        fill(&of, random, strings[next(random) % 4]);
        switch (next(random) % 14) {
            case 0: case 1: ((int (*)(const char *))core[9])(any_text(random)); break;
            case 2: ((int (*)(const attributes *))core[8])(next(random) % 20 ? &of : NULL); break;
            case 3: ((int (*)(const wchar_t *))core[10])(next(random) % 2 ? L"timed" : L"\u20ac"); break;
            case 4: case 5: case 6: ((int (*)(void))core[11])(); break;
            case 7: ((int (*)(const void *, const attributes *))core2[4])(domain, &of); break;
            case 8: ((int (*)(const void *))core2[5])(domain); break;
            case 9: ids[next(random) % 4] = ((uint64_t(*)(const char *))core[5])(any_text(random)); break;
            case 10: ((void (*)(uint64_t))core[7])(next(random) % 5 ? ids[next(random) % 4] : next(random)); break;
            case 11: ids[next(random) % 4] = ((uint64_t(*)(const void *, const attributes *))core2[2])(domain, &of); break;
            case 12: ((void (*)(const void *, uint64_t))core2[3])(domain, ids[next(random) % 4]); break;
            default:
                if (next(random) % 10) break;
                if (window == 0) window = gw_begin(any_text(random));
                gw_iteration(next(random) % 8 ? window : next(random));
                gw_declare_text(window, any_text(random), any_text(random));
                gw_declare(window, "call_bytes", (double)next(random));
                if (next(random) % 2) {
                    gw_end(window);
                    gw_end(window);
                    window = 0;
                }
        }
    }
    gw_end(window);
    for (int i = 0; i < 4; i++) ((void (*)(uint64_t))core[7])(ids[i]);
}

static void *run(void *seed) {
    uint64_t random = (uint64_t)(intptr_t)seed;
    void *domains[4] = {NULL}, *strings[4] = {NULL};
    for (int i = 1; i < 4; i++) domains[i] = ((void *(*)(const char *))core2[12])(i == 1 ? "NCCL" : any_text(&random));
    for (int i = 0; i < 4; i++) strings[i] = ((void *(*)(const void *, const char *))core2[10])(domains[i], i == 0 ? "timed" : any_text(&random));
    for (long i = 0; i < sequences_count; i++) {
        run_sequence(&random, domains, strings);
#ifndef NO_FORKS
        if (i % 50000 == 49999 || i == 10) {
            pid_t child = fork();
            if (child == 0) {
                for (int j = 0; j < 100; j++) run_sequence(&random, domains, strings);
                _exit(0);
            }
            int status = 0;
            if (child > 0 && waitpid(child, &status, 0) == child && status != 0) abort();
        }
#endif
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    int threads_count = atoi(arguments[2]);
    long seed = atol(arguments[3]);
    pthread_t threads[64], server;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", getenv("GPUWATCH_SOCKET"));
    unlink(address.sun_path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (threads_count > 64 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) return 3;
    for (int i = 0; i < 16; i++) {
        core_slots[i] = &core[i];
        core2_slots[i] = &core2[i];
    }
    long_text = malloc(65537);
    memset(long_text, 'a', 65536);
    long_text[65536] = 0;
    sequences_count = atol(arguments[1]) / threads_count;
    pthread_create(&server, NULL, serve, (void *)(intptr_t)listener);
    if (!InitializeInjectionNvtx2(export_table) || !InitializeInjectionNvtx2(export_table) || InitializeInjectionNvtx2(NULL)) return 4;
    for (int i = 0; i < threads_count; i++) pthread_create(&threads[i], NULL, run, (void *)(intptr_t)(seed * 1000 + i));
    for (int i = 0; i < threads_count; i++) pthread_join(threads[i], NULL);
    printf("%ld windows\n", (long)windows_count);
    return 0;
}
