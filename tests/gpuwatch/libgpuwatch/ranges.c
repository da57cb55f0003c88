/* A program with NVTX ranges; the argument selects the mode. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void rest(int milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t at_ns = until.tv_sec * 1000000000LL + until.tv_nsec + milliseconds * 1000000LL;
    until.tv_sec = at_ns / 1000000000;
    until.tv_nsec = at_ns % 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) continue;
}

static void series(const char *name, int count, int milliseconds) {
    for (int i = 0; i < count; i++) {
        nvtxRangePushA(name);
        rest(milliseconds);
        nvtxRangePop();
    }
}

static void *push_and_end(void *id) {
    nvtxRangeEnd((nvtxRangeId_t)(uintptr_t)id);
    return NULL;
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    if (!strcmp(mode, "all")) { /* a warm-up, a long range with short ranges inside, a series, and a range that another thread ends */
        nvtxDomainHandle_t domain = nvtxDomainCreateA("NCCL");
        nvtxStringHandle_t name = nvtxDomainRegisterStringA(domain, "all\"reduce");
        nvtxEventAttributes_t of = {0};
        of.version = NVTX_VERSION;
        of.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        of.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
        of.message.registered = name;
        nvtxRangePushA("warmup");
        rest(30);
        nvtxRangePop();
        nvtxRangePushA("timed");
        series("step", 60, 5);
        nvtxRangePop();
        rest(150);
        for (int i = 0; i < 30; i++) {
            nvtxDomainRangePushEx(domain, &of);
            rest(2);
            nvtxDomainRangePop(domain);
        }
        rest(150);
        pthread_t thread;
        nvtxRangeId_t id = nvtxRangeStartW(L"gr\u00fc\u00dfe");
        rest(250);
        pthread_create(&thread, NULL, push_and_end, (void *)(uintptr_t)id);
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "nested")) { /* short ranges of one label, each with two of another label inside; then two ranges that overlap */
        for (int i = 0; i < 20; i++) {
            nvtxRangePushA("outer");
            series("inner", 2, 4);
            nvtxRangeId_t beyond = i == 0 ? nvtxRangeStartA("inner") : 0; /* ends after the range that opened the window */
            nvtxRangePop();
            if (i == 0) nvtxRangeEnd(beyond);
        }
        rest(150);
        nvtxRangeId_t first = nvtxRangeStartA("overlap"), last = nvtxRangeStartA("overlap");
        rest(10);
        nvtxRangeEnd(first);
        rest(100);
        nvtxRangeEnd(last);
    } else if (!strcmp(mode, "wait")) { /* a range until the end of the input, then a series of three ranges */
        nvtxRangePushA("timed");
        puts("inside");
        fflush(stdout);
        while (getchar() != EOF) continue;
        nvtxRangePop();
        series("timed", 3, 1);
        puts("out");
    } else if (!strcmp(mode, "domains")) { /* a range in each of 300 domains */
        nvtxEventAttributes_t of = {0};
        of.version = NVTX_VERSION;
        of.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
        of.messageType = NVTX_MESSAGE_TYPE_ASCII;
        of.message.ascii = "one";
        for (int i = 0; i < 300; i++) {
            char name[16];
            snprintf(name, sizeof name, "d%d", i);
            nvtxDomainHandle_t domain = nvtxDomainCreateA(name);
            nvtxDomainRangePushEx(domain, &of);
            nvtxDomainRangePop(domain);
        }
    } else if (!strcmp(mode, "fork")) { /* a forked child tries to end its parent's range, and pushes another range */
        nvtxRangePushA("timed");
        if (fork() == 0) {
            nvtxRangePop();
            nvtxRangePushA("of the child timed");
            rest(250);
            nvtxRangePop();
            exit(0);
        }
        int status = 1;
        wait(&status);
        rest(250);
        nvtxRangePop();
        return status;
    } else { /* the cost of unmatched ranges: print the nanoseconds of CPU time per push and pop, for each round */
        enum { ROUNDS = 21, PAIRS = 200000 };
        double took_ns[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            struct timespec before, after;
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
            for (int i = 0; i < PAIRS; i++) {
                nvtxRangePushA("no pattern fits");
                nvtxRangePop();
            }
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
            took_ns[round] = ((double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec)) / PAIRS;
            printf("%.2f\n", took_ns[round]);
        }
    }
    return 0;
}
