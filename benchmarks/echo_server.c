/*
 * An MCP echo server over stdio whose own time is next to nothing, so that a benchmark of a client measures the client.
 *
 * `echo_server SECONDS` takes so long to start: it does not read before. With `--unmarked` after that, its tool does not
 * say that it is safe to repeat.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "echo.h"

#define INITIAL_CAPACITY ((size_t)1 << 16)

static void write_all(struct iovec *parts, int count) {
    while (count > 0) {
        ssize_t written = writev(STDOUT_FILENO, parts, count);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            _exit(errno == EPIPE ? 0 : 1); /* The client has closed the pipe. */
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

static void handle_line(Span line) {
    Answer answer;
    if (!find_answer(line, &answer))
        return;
    struct iovec vector[ANSWER_PARTS + 1];
    for (int index = 0; index < ANSWER_PARTS; index++)
        vector[index] = (struct iovec){(void *)answer.parts[index].at, answer.parts[index].size};
    vector[ANSWER_PARTS] = (struct iovec){(void *)"\n", 1};
    write_all(vector, ANSWER_PARTS + 1);
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

static void sleep_for(double seconds) {
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        continue;
}

int main(int count, char **arguments) {
    if (count > 1)
        sleep_for(atof(arguments[1]));
    is_unmarked = count > 2 && strcmp(arguments[2], "--unmarked") == 0;
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
