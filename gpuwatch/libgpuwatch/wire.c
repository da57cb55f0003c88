/* The conversation with the daemon: lines of JSON over a Unix socket, each answered by one line. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "library.h"

#define ANSWER_NS 2000000000LL  /* a daemon that is silent for longer is treated as gone */
#define START_NS 15000000000LL  /* a cold start reads its modules from a slow disk */
#define FAILED_NS (30000 * GW_MS) /* how long a daemon that failed is not tried again */
#define SYSTEM_SOCKET "/run/gpuwatch/daemon.sock"
#define PROTOCOL 2

extern char **environ;

static pthread_mutex_t wire_lock = PTHREAD_MUTEX_INITIALIZER;
static int wire_fd = -1;
static struct stat wire_stat; /* a program that closes every descriptor may have another file at this number */
static int64_t failed_until_ns;
static char refusal[512]; /* why the last daemon that was tried does not serve */
static char *reply_buffer;
static pthread_mutex_t trouble_lock = PTHREAD_MUTEX_INITIALIZER;
static char trouble[512];

int64_t gw_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Keep the first problem, and tell it once: in the report of `gpuwatch run`, else on standard error. */
void gw_trouble(const char *format, ...) {
    char text[sizeof trouble];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&trouble_lock);
    bool is_first = !trouble[0];
    if (is_first) memcpy(trouble, text, sizeof trouble);
    pthread_mutex_unlock(&trouble_lock);
    if (!is_first) return;
    const char *report = secure_getenv("GPUWATCH_NVTX_REPORT");
    if (report != NULL) {
        gw_text line = {0};
        gw_add(&line, "{\"problem\":\"");
        gw_add_json(&line, text, sizeof text);
        gw_add(&line, "\"}\n");
        gw_write_line(report, &line);
        free(line.text);
    } else {
        dprintf(STDERR_FILENO, "gpuwatch: no window: %s\n", text);
    }
}

GW_EXPORT size_t gw_problem(char *text, size_t size) {
    pthread_mutex_lock(&trouble_lock);
    size_t length = strlen(trouble);
    if (text != NULL && size > 0) snprintf(text, size, "%s", trouble);
    pthread_mutex_unlock(&trouble_lock);
    return length;
}

/* Text */

static bool make_room(gw_text *out, size_t count) {
    if (out->failed) return false;
    if (out->length + count + 1 > out->capacity) {
        size_t capacity = (out->length + count + 1) * 2;
        char *text = realloc(out->text, capacity);
        out->failed = text == NULL;
        if (out->failed) return false;
        out->text = text;
        out->capacity = capacity;
    }
    return true;
}

static pthread_once_t numbers_once = PTHREAD_ONCE_INIT;
static locale_t numbers;  /* JSON's decimal point, whatever the program's locale has */

static void make_numbers(void) {
    numbers = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
}

static void append(gw_text *out, const void *bytes, size_t count) {
    if (!make_room(out, count)) return;
    memcpy(out->text + out->length, bytes, count);
    out->length += count;
    out->text[out->length] = 0;
}

void gw_add(gw_text *out, const char *format, ...) {
    pthread_once(&numbers_once, make_numbers);
    locale_t programs = numbers != (locale_t)0 ? uselocale(numbers) : (locale_t)0;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length >= 0 && make_room(out, (size_t)length)) out->length += (size_t)vsnprintf(out->text + out->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    if (programs != (locale_t)0) uselocale(programs);
}

/* Return the length of the UTF-8 character at text, or 0: overlong forms, surrogates and numbers beyond Unicode are none. */
static size_t character_bytes(const unsigned char *text) {
    unsigned first = text[0], second = first ? text[1] : 0;
    if (first < 0x80) return 1;
    size_t count = first >= 0xC2 && first < 0xE0 ? 2 : (first & 0xF0) == 0xE0 ? 3 : first >= 0xF0 && first < 0xF5 ? 4 : 0;
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
        (first == 0xF4 && second > 0x8F))
        return 0;
    for (size_t i = 1; i < count; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    return count;
}

/* Add text as it stands between the quotes of JSON; what is no UTF-8 becomes U+FFFD. */
void gw_add_json(gw_text *out, const char *utf8, size_t most_characters) {
    const unsigned char *at = (const unsigned char *)utf8;
    for (size_t i = 0; i < most_characters && *at && !out->failed; i++) {
        size_t bytes = character_bytes(at);
        if (bytes == 0)
            append(out, "\\ufffd", 6);
        else if (bytes == 1 && (*at < 0x20 || *at == '"' || *at == '\\' || *at == 0x7F))
            gw_add(out, "\\u%04x", *at);
        else
            append(out, at, bytes);
        at += bytes ? bytes : 1;
    }
}

void gw_add_base64(gw_text *out, const void *bytes, size_t count) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = bytes;
    if (!make_room(out, (count + 2) / 3 * 4)) return;
    char *at = out->text + out->length;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        unsigned group = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) | (left > 2 ? in[i + 2] : 0);
        *at++ = digits[group >> 18];
        *at++ = digits[group >> 12 & 63];
        *at++ = left > 1 ? digits[group >> 6 & 63] : '=';
        *at++ = left > 2 ? digits[group & 63] : '=';
    }
    *at = 0;
    out->length = (size_t)(at - out->text);
}

/* Replies */

/* Read the text of a key, shortened to its room: a quote inside of another text has a backslash before it, so no text looks like a key. */
static void read_text(const char *line, const char *key, char *out, size_t size) {
    const char *at = strstr(line, key);
    size_t length = 0;
    for (at = at != NULL ? at + strlen(key) : ""; *at && *at != '"' && length + 1 < size; at++) {
        if (*at == '\\' && *++at == 0) break;
        out[length++] = (unsigned char)*at < 0x20 ? ' ' : *at;
    }
    out[length] = 0;
}

/* Read the texts of one reply; false where it has no type.  The line ends with a zero. */
bool gw_parse_reply(const char *line, gw_reply *out) {
    read_text(line, "\"type\":\"", out->type, sizeof out->type);
    read_text(line, "\"run\":\"", out->run, sizeof out->run);
    read_text(line, "\"message\":\"", out->message, sizeof out->message);
    return out->type[0] != 0;
}

/* The socket */

static bool wait_for(int fd, short events, int64_t until_ns) {
    for (;;) {
        int64_t left_ns = until_ns - gw_now_ns();
        if (left_ns <= 0) return false;
        struct pollfd waited = {fd, events, 0};
        int found = poll(&waited, 1, (int)(left_ns / 1000000 + 1));
        if (found > 0) return true;
        if (found < 0 && errno != EINTR) return false;
    }
}

/* Send a request and read one line.  The daemon says nothing unasked, so that what follows a line is no daemon's. */
static bool converse(int fd, const gw_text *request, gw_reply *reply, int64_t until_ns) {
    if (reply_buffer == NULL && (reply_buffer = malloc(GW_REPLY_BYTES + 1)) == NULL) return false;
    for (size_t sent = 0, length = 0; length < GW_REPLY_BYTES;) {
        bool is_sending = sent < request->length;
        ssize_t count = is_sending ? send(fd, request->text + sent, request->length - sent, MSG_NOSIGNAL | MSG_DONTWAIT)
                                   : recv(fd, reply_buffer + length, GW_REPLY_BYTES - length, MSG_DONTWAIT);
        if (count > 0 && is_sending) {
            sent += (size_t)count;
        } else if (count > 0) {
            length += (size_t)count;
            reply_buffer[length] = 0;
            if (reply_buffer[length - 1] == '\n') return gw_parse_reply(reply_buffer, reply);
        } else if (count == 0 || (errno != EINTR && errno != EAGAIN) || !wait_for(fd, is_sending ? POLLOUT : POLLIN, until_ns)) {
            return false;
        }
    }
    return false;
}

static void hang_up(void) {
    struct stat found;
    if (wire_fd >= 0 && fstat(wire_fd, &found) == 0 && found.st_ino == wire_stat.st_ino && found.st_dev == wire_stat.st_dev)
        close(wire_fd);
    wire_fd = -1;
}

/* Connect to the socket at a path and greet its daemon: ours, root's, or that of the owner of the system's socket. */
static bool dial(const char *path, int64_t until_ns) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path[0] == 0 || strlen(path) >= sizeof address.sun_path) return false;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && fd <= 2) { /* a closed standard stream: what a library prints there must not reach the daemon */
        int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        close(fd);
        fd = moved;
    }
    if (fd < 0) return false;
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    struct stat owner;
    bool is_there = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    if (is_there && peer.uid != getuid() && peer.uid != 0 &&
        !(!strcmp(path, SYSTEM_SOCKET) && stat(path, &owner) == 0 && owner.st_uid == peer.uid)) {
        snprintf(refusal, sizeof refusal, "%s: expected a daemon of uid %d or root, found uid %d", path, (int)getuid(), (int)peer.uid);
        is_there = false;
    }
    gw_text hello = {0};
    gw_reply welcome = {0};
    gw_add(&hello, "{\"type\":\"hello\",\"protocol\":%d,\"version\":\"libgpuwatch\"}\n", PROTOCOL);
    bool is_welcome = is_there && !hello.failed && converse(fd, &hello, &welcome, until_ns) && !strcmp(welcome.type, "welcome");
    if (is_there && !is_welcome)
        snprintf(refusal, sizeof refusal, "%s: %s", path, welcome.message[0] ? welcome.message : "expected a greeting, found none in time");
    free(hello.text);
    if (!is_welcome || fstat(fd, &wire_stat) != 0) {
        close(fd);
        return false;
    }
    wire_fd = fd;
    return true;
}

static void user_socket(char *path, size_t size) {
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR"), *temporary = secure_getenv("TMPDIR");
    struct stat found;
    if (runtime != NULL && runtime[0] == '/' && stat(runtime, &found) == 0 && found.st_uid == getuid() &&
        snprintf(path, size, "%s/gpuwatch/daemon.sock", runtime) < 108)
        return;
    if (temporary == NULL || temporary[0] != '/' ||
        snprintf(path, size, "%s/gpuwatch-%d/daemon.sock", temporary, (int)getuid()) >= 108)
        snprintf(path, size, "/tmp/gpuwatch-%d/daemon.sock", (int)getuid());
}

/* Start the user's daemon by its command; it leaves this process before the command ends. */
static bool start_daemon(int64_t until_ns) {
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    sigset_t none, all;
    pid_t pid = -1;
    char *arguments[] = {"gpuwatch", "daemon", "--on-demand", NULL};
    size_t count = 0, kept = 0;
    while (environ[count] != NULL) count++;
    char **environment = calloc(count + 1, sizeof *environment);
    if (environment == NULL) return false;
    for (size_t i = 0; i < count; i++) /* injections and device masks of the program must not reach the daemon */
        if (strncmp(environ[i], "LD_PRELOAD=", 11) && strncmp(environ[i], "LD_AUDIT=", 9) && strstr(environ[i], "_INJECTION64_PATH=") == NULL &&
            strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", 21))
            environment[kept++] = environ[i];
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawn_file_actions_init(&files);
    for (int fd = 0; fd < 3; fd++) posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    DIR *ours = opendir("/proc/self/fd");
    for (struct dirent *each; ours != NULL && (each = readdir(ours)) != NULL;)
        if (atoi(each->d_name) > 2) posix_spawn_file_actions_addclose(&files, atoi(each->d_name));
    if (ours != NULL) closedir(ours);
    int failure = posix_spawnp(&pid, arguments[0], &files, &attributes, arguments, environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    free(environment);
    if (failure) {
        gw_trouble("no daemon answers, and the command gpuwatch is not on PATH (%s); start one with: gpuwatch daemon", strerror(failure));
        return false;
    }
    int status = 0;
    struct timespec pause = {0, 5000000};
    while (waitpid(pid, &status, WNOHANG) == 0 && gw_now_ns() < until_ns) nanosleep(&pause, NULL);
    return true;
}

static bool connect_daemon(bool may_start) {
    char user[108];
    const char *named = secure_getenv("GPUWATCH_NVTX_SOCKET");
    if (named == NULL) named = secure_getenv("GPUWATCH_SOCKET");
    bool is_named = named != NULL && named[0];
    int64_t now_ns = gw_now_ns();
    user_socket(user, sizeof user);
    if (!is_named && dial(SYSTEM_SOCKET, now_ns + ANSWER_NS)) return true;
    if (dial(is_named ? named : user, gw_now_ns() + ANSWER_NS)) return true;
    if (!may_start || secure_getenv("GPUWATCH_NVTX_REPORT") != NULL) return false; /* `gpuwatch run` had one: it is gone */
    return start_daemon(now_ns + START_NS) && dial(is_named ? named : user, gw_now_ns() + ANSWER_NS);
}

/* Send one request and read its answer; false where the daemon refuses, is silent, or goes away.  No signal is raised. */
bool gw_exchange(const gw_text *request, const char *expected, gw_reply *reply, bool may_start) {
    bool done = false;
    memset(reply, 0, sizeof *reply);
    if (request->failed) return false;
    pthread_mutex_lock(&wire_lock);
    struct stat found;
    if (wire_fd >= 0 && (fstat(wire_fd, &found) != 0 || found.st_ino != wire_stat.st_ino || found.st_dev != wire_stat.st_dev)) wire_fd = -1;
    for (int attempt = 0; attempt < 2 && !done; attempt++) { /* a daemon may have left since the last window */
        bool is_old = wire_fd >= 0;
        if (!is_old && (!may_start || gw_now_ns() < failed_until_ns)) break;
        if (!is_old && !connect_daemon(may_start)) {
            failed_until_ns = gw_now_ns() + FAILED_NS;
            gw_trouble("%s", refusal[0] ? refusal : "no daemon answers; start one with: gpuwatch daemon");
            break;
        }
        int64_t until_ns = gw_now_ns() + ANSWER_NS;
        if (converse(wire_fd, request, reply, until_ns)) {
            done = !strcmp(reply->type, expected);
            if (!done) gw_trouble("the daemon refused: %s", reply->message[0] ? reply->message : reply->type);
            break;
        }
        bool is_silent = gw_now_ns() >= until_ns;
        hang_up();
        if (is_silent || !is_old || !may_start) {
            failed_until_ns = gw_now_ns() + FAILED_NS;
            gw_trouble(is_silent ? "the daemon gave no answer within 2 s" : "the daemon went away");
            break;
        }
    }
    pthread_mutex_unlock(&wire_lock);
    return done;
}

/* In a forked child: the connection is the parent's. */
void gw_wire_forget(void) {
    pthread_mutex_init(&wire_lock, NULL);
    pthread_mutex_init(&trouble_lock, NULL);
    hang_up();
    failed_until_ns = 0;
    reply_buffer = NULL;
}
