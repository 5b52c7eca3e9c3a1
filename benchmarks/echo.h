/*
 * What an MCP server with the one tool `echo` answers to a message. Both echo servers, over stdio and over HTTP, have it.
 *
 * It answers initialize, ping, tools/list and tools/call, and ignores notifications. Each message is walked once; the id
 * and the text are copied as the bytes that they are in the request, and an answer is a list of parts, so that it can
 * leave in one writev() without being put together first.
 */

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

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

/* Takes any value; numbers and words are not checked, because benchmarks send valid ones. */
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

#define ANSWER_PARTS 6

typedef struct {
    Span parts[ANSWER_PARTS];
} Answer;

/* The answer to `id` whose result or error is the three parts one after the other. */
static Answer answer_of(Span id, Span first, Span second, Span third) {
    return (Answer){{literal("{\"jsonrpc\":\"2.0\",\"id\":"), id, first, second, third, literal("}")}};
}

static Answer fixed_answer(Span id, const char *body) {
    return answer_of(id, literal(body), literal(""), literal(""));
}

static Answer tool_answer(const Request *request) {
    if (!equals(request->tool, "\"echo\""))
        return fixed_answer(request->id, ",\"error\":{\"code\":-32602,\"message\":\"the only tool is echo\"}");
    if (request->text.at == NULL || *request->text.at != '"')
        return fixed_answer(request->id, ",\"error\":{\"code\":-32602,\"message\":\"text must be a string\"}");
    return answer_of(request->id, literal(",\"result\":{\"content\":[{\"type\":\"text\",\"text\":"), request->text,
                     literal("}],\"isError\":false}"));
}

/* Whether the tool is not marked as safe to repeat. */
static bool is_unmarked;

/* Whether `message` has an answer, which its parts point into. */
static bool find_answer(Span message, Answer *answer) {
    Request request = {0};
    if (!read_request(message, &request)) {
        *answer = fixed_answer(literal("null"), ",\"error\":{\"code\":-32700,\"message\":\"parse error\"}");
        return true;
    }
    /* Notifications have no id, answers to requests that were never sent have no method. */
    if (request.id.at == NULL || request.method.at == NULL)
        return false;
    if (equals(request.method, "\"tools/call\""))
        *answer = tool_answer(&request);
    else if (equals(request.method, "\"ping\""))
        *answer = fixed_answer(request.id, ",\"result\":{}");
    else if (equals(request.method, "\"initialize\""))
        *answer =
            answer_of(request.id, literal(",\"result\":{\"protocolVersion\":"),
                      request.protocol_version.at == NULL ? literal("\"2025-11-25\"") : request.protocol_version,
                      literal(",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"c-echo\",\"version\":\"1\"}}"));
    else if (equals(request.method, "\"tools/list\""))
        *answer = answer_of(request.id,
                            literal(",\"result\":{\"tools\":[{\"name\":\"echo\",\"description\":\"Return the text.\","
                                    "\"inputSchema\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}},"
                                    "\"required\":[\"text\"]},\"annotations\":{\"readOnlyHint\":"),
                            literal(is_unmarked ? "false" : "true"), literal("}}]}"));
    else
        *answer = fixed_answer(request.id, ",\"error\":{\"code\":-32601,\"message\":\"unknown method\"}");
    return true;
}
