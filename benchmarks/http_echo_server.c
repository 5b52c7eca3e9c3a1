/*
 * The MCP echo server over Streamable HTTP, for Linux: one thread, and as many connections as are made.
 *
 * `http_echo_server [--events]` listens on a port of 127.0.0.1, which it prints, until its standard input ends. With
 * `--events` it answers with event streams, otherwise with JSON. It has neither sessions nor a stream of its own: GET is
 * refused with 405. Connections are kept alive. A request is read whole before it is answered, and an answer is written
 * in one writev(), which waits for a client that does not read.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "echo.h"

#define INITIAL_CAPACITY ((size_t)1 << 14)
#define MAX_EVENTS 64
#define MAX_PARTS (ANSWER_PARTS + 2)

/* What was received and not handled yet is buffer[0..end). */
typedef struct {
    int socket;
    char *buffer;
    size_t capacity, end;
    bool continued; /* "100 Continue" was sent for the request that is being read. */
} Connection;

/* A request, as far as it was received. */
typedef struct {
    Span method, body;
    size_t size; /* of the request as a whole */
    bool chunked, closes, expects;
} HttpRequest;

typedef enum { WHOLE, PARTIAL, BROKEN } Progress;

static bool with_events;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* --- reading a request over HTTP ----------------------------------------------------------------------------------- */

static bool is_word(Span span, const char *word) {
    return span.size == strlen(word) && strncasecmp(span.at, word, span.size) == 0;
}

/* Takes a line; the span is without its end. False if it is not there as a whole. */
static bool take_line(Cursor *cursor, Span *line) {
    const char *newline = memchr(cursor->at, '\n', (size_t)(cursor->end - cursor->at));
    if (newline == NULL)
        return false;
    *line = (Span){cursor->at, (size_t)(newline - cursor->at)};
    if (line->size > 0 && line->at[line->size - 1] == '\r')
        line->size--;
    cursor->at = newline + 1;
    return true;
}

/* A number that ends at a character that is no digit; false for something else. */
static bool number_of(Span digits, int base, size_t *number) {
    char text[24], *after;
    size_t size = digits.size < sizeof text - 1 ? digits.size : sizeof text - 1;
    memcpy(text, digits.at, size);
    text[size] = '\0';
    *number = strtoull(text, &after, base);
    return after != text;
}

/* Takes the lines after the first one, up to an empty one. */
static Progress take_headers(Cursor *cursor, HttpRequest *request, size_t *length) {
    Span line;
    while (take_line(cursor, &line)) {
        if (line.size == 0)
            return WHOLE;
        const char *colon = memchr(line.at, ':', line.size);
        if (colon == NULL)
            return BROKEN;
        Span name = {line.at, (size_t)(colon - line.at)};
        Span value = {colon + 1, line.size - name.size - 1};
        for (; value.size > 0 && *value.at == ' '; value.size--)
            value.at++;
        if (is_word(name, "content-length") && !number_of(value, 10, length))
            return BROKEN;
        if (is_word(name, "transfer-encoding"))
            request->chunked = is_word(value, "chunked");
        if (is_word(name, "connection"))
            request->closes = is_word(value, "close");
        if (is_word(name, "expect"))
            request->expects = is_word(value, "100-continue");
    }
    return PARTIAL;
}

/* Finds the end of a body in chunks. Nothing is moved before all of it is there: a request is read again from its
 * beginning when more of it has come. */
static Progress find_chunks(Cursor cursor, size_t *size) {
    const char *start = cursor.at;
    Span line;
    size_t chunk = 1;
    while (chunk > 0) {
        if (!take_line(&cursor, &line))
            return PARTIAL;
        if (!number_of(line, 16, &chunk) || chunk > SIZE_MAX / 2)
            return BROKEN;
        if ((size_t)(cursor.end - cursor.at) < chunk + 2)
            return PARTIAL;
        cursor.at += chunk;
        if (!take_line(&cursor, &line) || line.size > 0)
            return BROKEN; /* Trailers are not understood either. */
    }
    *size = (size_t)(cursor.at - start);
    return WHOLE;
}

/* Moves the content of the chunks together, over their sizes. */
static Span join_chunks(char *at, size_t size) {
    Cursor cursor = {at, at + size};
    char *to = at;
    Span line;
    size_t chunk;
    while (take_line(&cursor, &line) && number_of(line, 16, &chunk) && chunk > 0) {
        memmove(to, cursor.at, chunk);
        to += chunk;
        cursor.at += chunk + 2;
    }
    return (Span){at, (size_t)(to - at)};
}

static Progress read_http(Connection *connection, HttpRequest *request) {
    Cursor cursor = {connection->buffer, connection->buffer + connection->end};
    Span line;
    size_t length = 0;
    if (!take_line(&cursor, &line))
        return PARTIAL;
    const char *space = memchr(line.at, ' ', line.size);
    if (space == NULL)
        return BROKEN;
    request->method = (Span){line.at, (size_t)(space - line.at)};
    Progress progress = take_headers(&cursor, request, &length);
    if (progress != WHOLE)
        return progress;
    char *body = connection->buffer + (cursor.at - connection->buffer);
    if (request->chunked) {
        progress = find_chunks(cursor, &length);
        if (progress != WHOLE)
            return progress;
        request->body = join_chunks(body, length);
    } else if ((size_t)(cursor.end - cursor.at) < length) {
        return PARTIAL;
    } else {
        request->body = (Span){body, length};
    }
    request->size = (size_t)(body - connection->buffer) + length;
    return WHOLE;
}

/* --- answering over HTTP ------------------------------------------------------------------------------------------- */

/* False if the client is gone. */
static bool write_all(int socket, struct iovec *parts, int count) {
    while (count > 0) {
        ssize_t written = writev(socket, parts, count);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return false;
        }
        while (count > 0 && (size_t)written >= parts->iov_len) {
            written -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + written;
            parts->iov_len -= (size_t)written;
        }
    }
    return true;
}

static bool write_text(int socket, const char *text) {
    struct iovec part = {(void *)text, strlen(text)};
    return write_all(socket, &part, 1);
}

static bool write_answer(int socket, const Answer *answer) {
    struct iovec vector[MAX_PARTS];
    size_t size = 0;
    for (int index = 0; index < ANSWER_PARTS; index++) {
        vector[index + 1] = (struct iovec){(void *)answer->parts[index].at, answer->parts[index].size};
        size += answer->parts[index].size;
    }
    char head[256];
    const char *before = "event: message\r\ndata: ", *after = "\r\n\r\n", *tail = with_events ? "\r\n\r\n\r\n0\r\n\r\n" : "";
    int written = with_events
                      ? snprintf(head, sizeof head,
                                 "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
                                 "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%s",
                                 strlen(before) + size + strlen(after), before)
                      : snprintf(head, sizeof head,
                                 "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", size);
    vector[0] = (struct iovec){head, (size_t)written};
    vector[MAX_PARTS - 1] = (struct iovec){(void *)tail, strlen(tail)};
    return write_all(socket, vector, MAX_PARTS);
}

static bool respond(int socket, const HttpRequest *request) {
    if (equals(request->method, "GET"))
        return write_text(socket, "HTTP/1.1 405 Method Not Allowed\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n");
    if (!equals(request->method, "POST"))
        return write_text(socket, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    Answer answer;
    if (!find_answer(request->body, &answer))
        return write_text(socket, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    return write_answer(socket, &answer);
}

/* --- connections --------------------------------------------------------------------------------------------------- */

/* Handles the requests that are there as a whole; false if the connection is over. */
static bool handle_requests(Connection *connection) {
    while (connection->end > 0) {
        HttpRequest request = {0};
        Progress progress = read_http(connection, &request);
        if (progress == BROKEN) {
            write_text(connection->socket, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return false;
        }
        if (progress == PARTIAL) {
            bool wanted = request.expects && !connection->continued;
            connection->continued = connection->continued || wanted;
            return !wanted || write_text(connection->socket, "HTTP/1.1 100 Continue\r\n\r\n");
        }
        connection->continued = false;
        if (!respond(connection->socket, &request) || request.closes)
            return false;
        connection->end -= request.size;
        memmove(connection->buffer, connection->buffer + request.size, connection->end);
    }
    return true;
}

/* False if the connection is over. */
static bool receive(Connection *connection) {
    if (connection->end == connection->capacity) {
        connection->capacity = connection->capacity == 0 ? INITIAL_CAPACITY : connection->capacity * 2;
        connection->buffer = realloc(connection->buffer, connection->capacity);
        if (connection->buffer == NULL)
            fail("realloc");
    }
    char *to = connection->buffer + connection->end;
    ssize_t received = recv(connection->socket, to, connection->capacity - connection->end, MSG_DONTWAIT);
    if (received < 0)
        return errno == EAGAIN || errno == EINTR;
    connection->end += (size_t)received;
    return received > 0 && handle_requests(connection);
}

static void drop(Connection *connection) {
    close(connection->socket); /* which takes it out of epoll, too */
    free(connection->buffer);
    free(connection);
}

static void watch(int poll, int descriptor, void *data) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &event) < 0)
        fail("epoll_ctl");
}

static void accept_connection(int poll, int listener) {
    int accepted = accept(listener, NULL, NULL), on = 1;
    if (accepted < 0)
        return; /* The client has given up, or there are too many. */
    setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    Connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        fail("calloc");
    connection->socket = accepted;
    watch(poll, accepted, connection);
}

static int listen_on_any_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, SOMAXCONN) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) < 0)
        fail("listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN); /* A client may leave before it has its answer. */
    with_events = count > 1 && strcmp(arguments[1], "--events") == 0;
    int listener = listen_on_any_port(), poll = epoll_create1(0), input = STDIN_FILENO;
    if (poll < 0)
        fail("epoll_create1");
    watch(poll, listener, &listener);
    watch(poll, input, &input);
    struct epoll_event events[MAX_EVENTS];
    for (;;) {
        int ready = epoll_wait(poll, events, MAX_EVENTS, -1);
        for (int index = 0; index < ready; index++) {
            void *source = events[index].data.ptr;
            char ignored[64];
            if (source == &listener)
                accept_connection(poll, listener);
            else if (source == &input && read(input, ignored, sizeof ignored) <= 0)
                return 0;
            else if (source != &input && !receive(source))
                drop(source);
        }
    }
}
