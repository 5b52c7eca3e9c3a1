/*
 * An MCP echo server over stdio whose own time is next to nothing, so that a benchmark of a client measures the client.
 *
 * It answers initialize, ping, tools/list and tools/call of its one tool, `echo`, and ignores notifications. Each line
 * is walked once; the id and the text are copied as the bytes that they are in the request, and each answer leaves in
 * one writev() without being put together first.
 */

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define INITIAL_CAPACITY ((size_t)1 << 16)
#define MAX_DEPTH 64

/* A part of the input buffer; `at` is NULL where the request had no such part. */
typedef struct {
    const char *at;
    size_t size;
} Span;

/* What an answer depends on. */
typedef struct {
    Span id, method, protocol_version, tool, text;
} Request;

/* Where in a request an object stands: decides which of its keys matter. */
typedef enum { TOP, PARAMS, ARGUMENTS, ELSEWHERE } Place;

typedef struct {
    const char *at, *end;
} Cursor;

static Span literal(const char *text) {
    return (Span){text, strlen(text)};
}

static bool equals(Span span, const char *text) {
    return span.at != NULL && span.size == strlen(text) && memcmp(span.at, text, span.size) == 0;
}

/* --- reading a request ------------------------------------------------------------------------------------------- */

static void skip_space(Cursor *cursor) {
    while (cursor->at < cursor->end && strchr(" \t\r\n", *cursor->at) != NULL && *cursor->at != '\0')
        cursor->at++;
}

static bool take(Cursor *cursor, char expected) {
    skip_space(cursor);
    if (cursor->at == cursor->end || *cursor->at != expected)
        return false;
    cursor->at++;
    return true;
}

/* Takes a string; the span includes the quotes. */
static bool take_string(Cursor *cursor, Span *string) {
    const char *start = cursor->at, *search = start + 1;
    for (;;) {
        const char *quote = search < cursor->end ? memchr(search, '"', (size_t)(cursor->end - search)) : NULL;
        if (quote == NULL)
            return false;
        /* Backslashes come in pairs, unless the last one belongs to the quote. */
        const char *before = quote;
        while (before[-1] == '\\')
            before--;
        if ((quote - before) % 2 == 0) {
            cursor->at = quote + 1;
            *string = (Span){start, (size_t)(cursor->at - start)};
            return true;
        }
        search = quote + 1;
    }
}

static bool take_value(Cursor *cursor, Place place, Request *request, Span *value, int depth);

/* Where the value of a key is an object that matters, and where a value that matters is kept. */
static Place place_of_value(Place place, Span key) {
    if (place == TOP && equals(key, "\"params\""))
        return PARAMS;
    if (place == PARAMS && equals(key, "\"arguments\""))
        return ARGUMENTS;
    return ELSEWHERE;
}

static Span *slot_of_value(Place place, Span key, Request *request) {
    if (place == TOP)
        return equals(key, "\"id\"") ? &request->id : equals(key, "\"method\"") ? &request->method : NULL;
    if (place == PARAMS)
        return equals(key, "\"name\"")              ? &request->tool
               : equals(key, "\"protocolVersion\"") ? &request->protocol_version
                                                    : NULL;
    return place == ARGUMENTS && equals(key, "\"text\"") ? &request->text : NULL;
}

static bool take_object(Cursor *cursor, Place place, Request *request, int depth) {
    cursor->at++;
    if (take(cursor, '}'))
        return true;
    do {
        Span key, value;
        skip_space(cursor);
        if (cursor->at == cursor->end || *cursor->at != '"' || !take_string(cursor, &key) || !take(cursor, ':'))
            return false;
        if (!take_value(cursor, place_of_value(place, key), request, &value, depth + 1))
            return false;
        Span *slot = slot_of_value(place, key, request);
        if (slot != NULL)
            *slot = value;
    } while (take(cursor, ','));
    return take(cursor, '}');
}

static bool take_array(Cursor *cursor, Request *request, int depth) {
    cursor->at++;
    if (take(cursor, ']'))
        return true;
    do {
        Span value;
        if (!take_value(cursor, ELSEWHERE, request, &value, depth + 1))
            return false;
    } while (take(cursor, ','));
    return take(cursor, ']');
}

/* Takes any value; numbers and words are not checked, as whoever measures sends valid ones. */
static bool take_value(Cursor *cursor, Place place, Request *request, Span *value, int depth) {
    skip_space(cursor);
    if (cursor->at == cursor->end || depth > MAX_DEPTH)
        return false;
    const char *start = cursor->at;
    bool taken = true;
    if (*start == '"')
        return take_string(cursor, value);
    if (*start == '{')
        taken = take_object(cursor, place, request, depth);
    else if (*start == '[')
        taken = take_array(cursor, request, depth);
    else
        while (cursor->at < cursor->end && memchr(",]} \t\r\n", *cursor->at, 7) == NULL)
            cursor->at++;
    *value = (Span){start, (size_t)(cursor->at - start)};
    return taken && value->size > 0;
}

static bool read_request(Span line, Request *request) {
    Cursor cursor = {line.at, line.at + line.size};
    skip_space(&cursor);
    if (cursor.at == cursor.end || *cursor.at != '{' || !take_object(&cursor, TOP, request, 0))
        return false;
    skip_space(&cursor);
    return cursor.at == cursor.end;
}

/* --- answering --------------------------------------------------------------------------------------------------- */

static void write_all(struct iovec *parts, int count) {
    while (count > 0) {
        ssize_t written = writev(STDOUT_FILENO, parts, count);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            _exit(errno == EPIPE ? 0 : 1); /* nobody reads: nobody to tell */
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
}

/* Writes the answer to `id` whose result or error is the three parts one after the other. */
static void answer(Span id, Span first, Span second, Span third) {
    Span parts[] = {literal("{\"jsonrpc\":\"2.0\",\"id\":"), id, first, second, third, literal("}\n")};
    struct iovec vector[6];
    for (int index = 0; index < 6; index++)
        vector[index] = (struct iovec){(void *)parts[index].at, parts[index].size};
    write_all(vector, 6);
}

static void answer_fixed(Span id, const char *body) {
    answer(id, literal(body), literal(""), literal(""));
}

static void call_tool(const Request *request) {
    if (!equals(request->tool, "\"echo\""))
        answer_fixed(request->id, ",\"error\":{\"code\":-32602,\"message\":\"the only tool is echo\"}");
    else if (request->text.at == NULL || *request->text.at != '"')
        answer_fixed(request->id, ",\"error\":{\"code\":-32602,\"message\":\"text must be a string\"}");
    else
        answer(request->id, literal(",\"result\":{\"content\":[{\"type\":\"text\",\"text\":"), request->text,
               literal("}],\"isError\":false}"));
}

static void handle_line(Span line) {
    Request request = {0};
    if (!read_request(line, &request)) {
        answer_fixed(literal("null"), ",\"error\":{\"code\":-32700,\"message\":\"parse error\"}");
        return;
    }
    /* Notifications have no id, answers to requests that were never sent have no method. */
    if (request.id.at == NULL || request.method.at == NULL)
        return;
    if (equals(request.method, "\"tools/call\""))
        call_tool(&request);
    else if (equals(request.method, "\"ping\""))
        answer_fixed(request.id, ",\"result\":{}");
    else if (equals(request.method, "\"initialize\""))
        answer(request.id, literal(",\"result\":{\"protocolVersion\":"),
               request.protocol_version.at == NULL ? literal("\"2025-11-25\"") : request.protocol_version,
               literal(",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"c-echo\",\"version\":\"1\"}}"));
    else if (equals(request.method, "\"tools/list\""))
        answer_fixed(request.id, ",\"result\":{\"tools\":[{\"name\":\"echo\",\"description\":\"Return the text.\","
                                 "\"inputSchema\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}},"
                                 "\"required\":[\"text\"]},\"annotations\":{\"readOnlyHint\":true}}]}");
    else
        answer_fixed(request.id, ",\"error\":{\"code\":-32601,\"message\":\"unknown method\"}");
}

/* --- reading lines ----------------------------------------------------------------------------------------------- */

/* Input that was read but not handled yet is buffer[start..end); buffer[start..searched) has no newline. */
static char *buffer;
static size_t capacity, start, searched, end;

static void make_room(void) {
    if (start > 0) {
        memmove(buffer, buffer + start, end - start);
        searched -= start;
        end -= start;
        start = 0;
    }
    if (end == capacity) {
        capacity = capacity == 0 ? INITIAL_CAPACITY : capacity * 2;
        buffer = realloc(buffer, capacity);
        if (buffer == NULL) {
            fputs("echo_server: out of memory\n", stderr);
            exit(1);
        }
    }
}

static void handle_lines(void) {
    const char *newline;
    while (searched < end && (newline = memchr(buffer + searched, '\n', end - searched)) != NULL) {
        Span line = {buffer + start, (size_t)(newline - (buffer + start))};
        if (line.size > 0)
            handle_line(line);
        start = searched = (size_t)(newline + 1 - buffer);
    }
    searched = end;
    if (start == end)
        start = searched = end = 0;
}

int main(void) {
    for (;;) {
        if (end == capacity)
            make_room();
        ssize_t received = read(STDIN_FILENO, buffer + end, capacity - end);
        if (received < 0 && errno == EINTR)
            continue;
        if (received <= 0)
            return received == 0 ? 0 : 1;
        end += (size_t)received;
        handle_lines();
    }
}
