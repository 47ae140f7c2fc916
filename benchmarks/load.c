/* Open-loop load: requests sent at the times of a schedule, however the service keeps up.
 *
 *     load PORT CONNECTIONS GRACE_S SCHEDULE ANSWERS
 *
 * SCHEDULE holds, for each request, the time to send it in nanoseconds from the start (int64), the
 * number of its bytes (uint32) and the bytes. Requests go to 127.0.0.1 over connections that are
 * kept; one that finds all of them busy waits, and that counts as lag of the generator. ANSWERS
 * gets, for each request, the times it was due, sent and answered (int64, nanoseconds; -1: never),
 * the status (int32; 0: none), the number of bytes of the body (uint32) and the bytes. GRACE_S
 * after the last request it ends, whatever is outstanding. Both files are in this machine's byte
 * order. Give it a core of its own; it runs before all else there where the system lets it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_BYTES = 1 << 16, MAX_EVENTS = 256, AWAKE_NS = 500000, LONGEST_NS = 10000000 };

typedef struct {
    int64_t due, sent, answered;
    int32_t status;
    uint32_t length, body_length;
    const char *bytes;
    char *body;
} Request;

typedef struct {
    int socket;
    Request *request;
    char *buffer;
    size_t size, used;
} Connection;

static void fail(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, errno ? strerror(errno) : "not as it must be");
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail(path);
    *size = (size_t)ftell(file);
    rewind(file);
    char *content = malloc(*size + 1);
    if (!content || fread(content, 1, *size, file) != *size)
        fail(path);
    fclose(file);
    return content;
}

static Request *read_schedule(const char *path, size_t *count)
{
    size_t size, place = 0, room = 1024;
    char *content = read_file(path, &size);
    Request *requests = malloc(room * sizeof *requests);
    for (*count = 0; place < size; ++*count) {
        if (*count == room && !(requests = realloc(requests, (room *= 2) * sizeof *requests)))
            fail("memory");
        Request *request = &requests[*count];
        *request = (Request){.sent = -1, .answered = -1};
        if (place + 12 > size)
            fail(path);
        memcpy(&request->due, content + place, 8);
        memcpy(&request->length, content + place + 8, 4);
        request->bytes = content + place + 12;
        place += 12 + request->length;
        if (place > size)
            fail(path);
    }
    return requests;
}

static void connect_to(Connection *connection, int port, int poll)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    connection->socket = fd;
    connection->buffer = malloc(connection->size = FIRST_BYTES);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (!connection->buffer || epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event))
        fail("epoll");
}

/* True once the answer is whole; then it is kept. */
static int is_answered(Connection *connection, int64_t now)
{
    connection->buffer[connection->used] = 0;
    char *end = strstr(connection->buffer, "\r\n\r\n");
    if (!end)
        return 0;
    char *length = strcasestr(connection->buffer, "\r\ncontent-length:");
    if (!length || length > end)
        fail("an answer without content-length");
    size_t head = (size_t)(end + 4 - connection->buffer);
    size_t body = strtoul(length + 17, NULL, 10);
    if (connection->used < head + body)
        return 0;
    Request *request = connection->request;
    if (!request || connection->used > head + body)
        fail("more than one answer");
    request->answered = now;
    request->status = atoi(connection->buffer + 9);
    request->body_length = (uint32_t)body;
    if (!(request->body = malloc(body + 1)))
        fail("memory");
    memcpy(request->body, connection->buffer + head, body);
    connection->request = NULL;
    connection->used = 0;
    return 1;
}

/* 1 once the answer is whole, 0 while it is not, -1 where the connection was closed. */
static int receive(Connection *connection, int64_t start)
{
    for (;;) {
        if (connection->used + 1 >= connection->size) {
            connection->buffer = realloc(connection->buffer, connection->size *= 2);
            if (!connection->buffer)
                fail("memory");
        }
        size_t room = connection->size - connection->used - 1;
        ssize_t got = recv(connection->socket, connection->buffer + connection->used, room, 0);
        if (got < 0 && errno == EAGAIN)
            return 0;
        if (got <= 0) {
            close(connection->socket);
            return -1;
        }
        connection->used += (size_t)got;
        if (is_answered(connection, now_ns() - start))
            return 1;
    }
}

static void write_answers(const char *path, const Request *requests, size_t count)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        fail(path);
    for (const Request *one = requests; one < requests + count; ++one) {
        int64_t times[3] = {one->due, one->sent, one->answered};
        fwrite(times, sizeof times, 1, file);
        fwrite(&one->status, 4, 1, file);
        fwrite(&one->body_length, 4, 1, file);
        if (one->body_length)
            fwrite(one->body, 1, one->body_length, file);
    }
    if (fclose(file))
        fail(path);
}

/* Wait for answers until shortly before the next request is due, then without sleeping. */
static int wait_ready(int poll, struct epoll_event *events, int64_t until_ns)
{
    int64_t wait = until_ns - AWAKE_NS;
    wait = wait < 0 ? 0 : wait > LONGEST_NS ? LONGEST_NS : wait;
    struct timespec timeout = {.tv_nsec = wait};
    return epoll_pwait2(poll, events, MAX_EVENTS, &timeout, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: load PORT CONNECTIONS GRACE_S SCHEDULE ANSWERS\n");
        return 2;
    }
    int num_connections = atoi(argv[2]), num_free = 0, poll = epoll_create1(0);
    int64_t grace = atoll(argv[3]) * 1000000000;
    size_t count, next = 0, num_over = 0;
    Request *requests = read_schedule(argv[4], &count);
    Connection *connections = calloc((size_t)num_connections, sizeof *connections);
    Connection **idle = calloc((size_t)num_connections, sizeof *idle);
    for (int i = 0; i < num_connections; ++i) {
        connect_to(&connections[i], atoi(argv[1]), poll);
        idle[num_free++] = &connections[i];
    }
    struct sched_param priority = {.sched_priority = 50};
    sched_setscheduler(0, SCHED_FIFO, &priority); /* where it may not: lag shows what came of it */
    int64_t last = count ? requests[count - 1].due : 0;
    int64_t start = now_ns() + 100000000;
    struct epoll_event events[MAX_EVENTS];
    for (int64_t now = 0; num_over < count && now < last + grace; now = now_ns() - start) {
        while (next < count && requests[next].due <= now && num_free) {
            Connection *connection = idle[--num_free];
            Request *request = connection->request = &requests[next++];
            /* Bodies are smaller than the buffer of a socket. */
            ssize_t sent = send(connection->socket, request->bytes, request->length, MSG_NOSIGNAL);
            if (sent >= 0 && sent != (ssize_t)request->length)
                fail("send");
            request->sent = now = now_ns() - start; /* a closed connection is found below */
        }
        int64_t next_due = next < count && num_free ? requests[next].due : INT64_MAX;
        int num_ready = wait_ready(poll, events, next_due - now);
        for (int i = 0; i < num_ready; ++i) {
            Connection *connection = events[i].data.ptr;
            int outcome = receive(connection, start);
            num_over += outcome == 1 || (outcome < 0 && connection->request);
            if (outcome == 1)
                idle[num_free++] = connection;
        }
    }
    write_answers(argv[5], requests, count);
    return 0;
}
