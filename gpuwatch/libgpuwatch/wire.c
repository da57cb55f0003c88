/* The conversation with the daemon: lines of JSON over a Unix socket, each answered by one line. */
#include "library.h"

#include <locale.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ANSWER_NS 2000000000LL /* limit of a whole exchange, including connecting; a slower daemon counts as gone */
#define FAILED_NS (30000 * GW_MS) /* pause before the next attempt after a failure */
#ifndef SYSTEM_SOCKET
#define SYSTEM_SOCKET "/run/gpuwatch/daemon.sock" /* a test uses another path */
#endif
#define PIECE_BYTES 8192 /* one buffer of the kernel; for each further buffer a send could wait the whole limit again */

static pthread_mutex_t wire_lock = PTHREAD_MUTEX_INITIALIZER;
static int wire_fd = -1;
static struct stat wire_stat; /* detects a program that closed the descriptor and opened another file with its number */
static int64_t failed_until_ns;
static char refusal[512]; /* the reason why the latest attempt used no daemon; empty if none was there */
static char reply_buffer[1 << 16];
static pthread_mutex_t trouble_lock = PTHREAD_MUTEX_INITIALIZER;
static char trouble[512];

int64_t gw_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Keep the first problem, and write it once: to the report of `gpuwatch run`, otherwise to standard error. */
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
    gw_text line = {0};
    gw_add_text(&line, "{\"problem\":", text, sizeof text);
    if (!gw_report("GPUWATCH_NVTX_REPORT", &line)) dprintf(STDERR_FILENO, "gpuwatch: no window: %s\n", text);
}

/* Close a JSON object, and append its line in one write to the file named by a variable; return false if the variable is unset. */
bool gw_report(const char *variable, gw_text *line) {
    const char *path = secure_getenv(variable);
    gw_add(line, "}\n");
    int fd = path == NULL || line->failed ? -1 : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t written = write(fd, line->text, line->length);
        (void)written; /* on a failure the reader still gets the other lines */
        close(fd);
    }
    free(line->text);
    return path != NULL;
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
    size_t needed = out->length + count + 1, capacity = needed * 2;
    if (needed > out->capacity && !out->failed) {
        char *text = realloc(out->text, capacity);
        out->failed = text == NULL;
        if (text != NULL) *out = (gw_text){text, out->length, capacity, false};
    }
    return !out->failed;
}

static locale_t numbers;  /* a locale with JSON's decimal point */

__attribute__((constructor)) static void make_numbers(void) { numbers = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0); }

void gw_add(gw_text *out, const char *format, ...) {
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

/* Add ``before``, then ``text`` in quotes, cut to ``most`` bytes.  The daemon replaces invalid UTF-8. */
void gw_add_text(gw_text *out, const char *before, const char *text, size_t most) {
    size_t length = strnlen(text, most);
    while (text[length] && length > 0 && (text[length] & 0xC0) == 0x80) length--; /* never cut a character */
    gw_add(out, "%s\"", before);
    if (!make_room(out, length * 6 + 1)) return;
    char *at = out->text + out->length;
    for (size_t i = 0; i < length; i++) {
        bool is_plain = (unsigned char)text[i] >= 0x20 && text[i] != '"' && text[i] != '\\';
        at += is_plain ? (*at = text[i], 1) : sprintf(at, "\\u%04x", (unsigned char)text[i]);
    }
    memcpy(at, "\"", 2);
    out->length = (size_t)(at + 1 - out->text);
}

/* Add one column of an array in base64: ``count`` values of ``bytes`` bytes, ``stride`` bytes apart. */
void gw_add_column(gw_text *out, const char *before, const void *column, size_t bytes, size_t stride, size_t count) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t total = bytes * count;
    gw_add(out, "%s\"", before);
    if (!make_room(out, (total + 2) / 3 * 4 + 1)) return;
    char *at = out->text + out->length;
    for (size_t i = 0; i < total; i += 3) {
        unsigned group = 0;
        for (size_t k = i; k < i + 3; k++) group = group << 8 | (k < total ? ((const unsigned char *)column)[k / bytes * stride + k % bytes] : 0);
        for (int k = 0; k < 4; k++) *at++ = i + (size_t)k > total ? '=' : digits[group >> (18 - 6 * k) & 63];
    }
    memcpy(at, "\"", 2);
    out->length = (size_t)(at + 1 - out->text);
}

/* Replies */

/* Read the text of a key, cut to ``size``.  A text cannot contain a key, because quotes inside a text have a backslash. */
static void read_text(const char *line, const char *key, char *out, size_t size) {
    const char *at = strstr(line, key);
    size_t length = 0;
    for (at = at != NULL ? at + strlen(key) : ""; *at && *at != '"' && length + 1 < size; at++) {
        if (*at == '\\' && *++at == 0) break;
        out[length++] = (unsigned char)*at < 0x20 ? ' ' : *at;
    }
    out[length] = 0;
}

/* Read the texts of one reply from a zero-terminated line; return false if the reply has no type. */
static bool parse_reply(const char *line, gw_reply *out) {
    read_text(line, "\"type\":\"", out->type, sizeof out->type);
    read_text(line, "\"run\":\"", out->run, sizeof out->run);
    read_text(line, "\"message\":\"", out->message, sizeof out->message);
    return out->type[0] != 0;
}

/* The socket */

/* Limit the next system call on a socket to the time left; return false on a failure, and if no time is left. */
static bool limit(int fd, int option, int64_t until_ns) {
    int64_t left_us = (until_ns - gw_now_ns()) / 1000;
    struct timeval left = {left_us / 1000000, left_us % 1000000};
    return left_us > 0 && setsockopt(fd, SOL_SOCKET, option, &left, sizeof left) == 0;
}

/* Send a request and read one line; return false on a failure.  The daemon sends only answers, so nothing follows the line. */
static bool converse(int fd, const char *request, size_t size, gw_reply *reply, int64_t until_ns) {
    for (size_t sent = 0, length = 0; length < sizeof reply_buffer - 1 && limit(fd, sent < size ? SO_SNDTIMEO : SO_RCVTIMEO, until_ns);) {
        ssize_t count = sent < size ? send(fd, request + sent, size - sent < PIECE_BYTES ? size - sent : PIECE_BYTES, MSG_NOSIGNAL)
                                    : recv(fd, reply_buffer + length, sizeof reply_buffer - 1 - length, 0);
        if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) return false;
        if (count < 0) continue;
        if (sent < size) sent += (size_t)count;
        else length += (size_t)count;
        reply_buffer[length] = 0;
        if (length > 0 && reply_buffer[length - 1] == '\n') return parse_reply(reply_buffer, reply);
    }
    return false;
}

/* Return true if the descriptor is still the connection: the program may have closed it and reused its number. */
static bool is_connected(void) {
    struct stat found;
    return wire_fd >= 0 && fstat(wire_fd, &found) == 0 && found.st_ino == wire_stat.st_ino && found.st_dev == wire_stat.st_dev;
}

static void hang_up(void) {
    if (is_connected()) close(wire_fd);
    wire_fd = -1;
}

/* Connect to the socket at a path and exchange greetings; return false on a failure.  The daemon must run as this user, as root,
 * or as the owner of the system's socket. */
static bool dial(const char *path, int64_t until_ns) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path[0] == 0 || strlen(path) >= sizeof address.sun_path) return false;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && fd <= 2) { /* the number of a closed standard stream: output to that stream must not reach the daemon */
        int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        close(fd);
        fd = moved;
    }
    if (fd < 0) return false;
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    struct stat owner;
    bool is_there = limit(fd, SO_SNDTIMEO, until_ns) && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    if (is_there && peer.uid != getuid() && peer.uid != 0 &&
        !(!strcmp(path, SYSTEM_SOCKET) && stat(path, &owner) == 0 && owner.st_uid == peer.uid)) {
        snprintf(refusal, sizeof refusal, "%s: expected a daemon of uid %d or root, found uid %d; remove the socket", path, (int)getuid(), (int)peer.uid);
        is_there = false;
    }
    static const char hello[] = "{\"type\":\"hello\",\"protocol\":2,\"version\":\"libgpuwatch\"}\n";
    gw_reply welcome = {0};
    bool is_welcome = is_there && converse(fd, hello, sizeof hello - 1, &welcome, until_ns) && !strcmp(welcome.type, "welcome");
    if (is_there && !is_welcome)
        snprintf(refusal, sizeof refusal, "%s: %s", path, welcome.message[0] ? welcome.message : "expected a daemon's greeting, found none; see: gpuwatch daemon status");
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

static bool connect_daemon(int64_t until_ns) {
    char user[108];
    const char *named = secure_getenv("GPUWATCH_NVTX_SOCKET");
    if (named == NULL) named = secure_getenv("GPUWATCH_SOCKET");
    refusal[0] = 0;
    if (named != NULL && named[0]) return dial(named, until_ns);
    user_socket(user, sizeof user);
    return dial(SYSTEM_SOCKET, until_ns - ANSWER_NS / 2) || dial(user, until_ns);
}

static bool give_up(const char *why) {
    failed_until_ns = gw_now_ns() + FAILED_NS;
    gw_trouble("%s", why);
    return false;
}

static bool exchange(const gw_text *request, const char *expected, gw_reply *reply, bool may_connect, int64_t until_ns) {
    for (;;) { /* the daemon may have exited since the last window */
        bool is_old = is_connected();
        if (!is_old && (!may_connect || gw_now_ns() < failed_until_ns)) return false;
        if (!is_old && !connect_daemon(until_ns)) return give_up(refusal[0] ? refusal : "no daemon answers; start one with: gpuwatch daemon");
        if (expected == NULL) return true;
        if (converse(wire_fd, request->text, request->length, reply, until_ns)) {
            if (!strcmp(reply->type, expected)) return true;
            gw_trouble("the daemon refused: %s", reply->message[0] ? reply->message : reply->type);
            return false;
        }
        hang_up();
        if (gw_now_ns() >= until_ns) return give_up("no answer from the daemon within 2 s; see: gpuwatch daemon status");
        if (!is_old || !may_connect) return give_up("expected an answer from the daemon, found a closed connection; see: gpuwatch daemon status");
    }
}

/* Send one request, free it, and read the answer; return false unless the answer has the expected type.
 * No signal is raised.  Without an expected type, only connect. */
bool gw_exchange(gw_text *request, const char *expected, gw_reply *reply, bool may_connect) {
    memset(reply, 0, sizeof *reply);
    int64_t until_ns = gw_now_ns() + ANSWER_NS;
    struct timespec until = {time(NULL) + ANSWER_NS / 1000000000, 0}; /* a wait on the monotonic clock needs glibc 2.30 */
    bool is_ours = pthread_mutex_timedlock(&wire_lock, &until) == 0; /* another thread may wait for a slow daemon */
    bool is_done = is_ours && !request->failed && exchange(request, expected, reply, may_connect, until_ns);
    if (is_ours) pthread_mutex_unlock(&wire_lock);
    else gw_trouble("expected the daemon's connection to be free within 2 s, found another thread using it; see: gpuwatch daemon status");
    free(request->text);
    return is_done;
}

/* Reset the state in a forked child, because the connection belongs to the parent. */
void gw_wire_forget(void) {
    pthread_mutex_init(&wire_lock, NULL);
    pthread_mutex_init(&trouble_lock, NULL);
    hang_up();
    failed_until_ns = 0;
}
