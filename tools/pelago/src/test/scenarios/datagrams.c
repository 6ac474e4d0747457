// What Linux promises of UDP, of IPv6 sockets that speak IPv4, of ports that are shared, and of what
// was closed, asked by a program. Each check prints "FAILED NAME" with what was found if it does not
// hold.
#define ONLY_FAILURES
#include "checks.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int ready(int descriptor, int events, int wait_ms) {
    struct pollfd one = { .fd = descriptor, .events = events };
    return poll(&one, 1, wait_ms) < 0 ? -1 : one.revents;
}

static struct sockaddr_in at(int port) {
    return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
}
static int port_of(int descriptor) {
    struct sockaddr_in own;
    socklen_t bytes = sizeof own;
    return getsockname(descriptor, (void *)&own, &bytes) ? -1 : ntohs(own.sin_port);
}
static int bound(int kind, int port) {
    int made = socket(AF_INET, kind, 0);
    struct sockaddr_in own = at(port);
    return bind(made, (void *)&own, sizeof own) ? -1 : made;
}
static int option(int descriptor, int level, int name) {
    int value = -1;
    socklen_t bytes = sizeof value;
    return getsockopt(descriptor, level, name, &value, &bytes) ? -1 : value;
}
static int set(int descriptor, int level, int name, int value) {
    return setsockopt(descriptor, level, name, &value, sizeof value);
}

static void messages(void) {
    char bytes[70000];
    struct sockaddr_in from, to;
    socklen_t length = sizeof from;
    int one = bound(SOCK_DGRAM, 0), two = bound(SOCK_DGRAM, 0);
    GIVES("kind", SOCK_DGRAM, option(one, SOL_SOCKET, SO_TYPE));
    GIVES("protocol", IPPROTO_UDP, option(one, SOL_SOCKET, SO_PROTOCOL));
    GIVES("family", AF_INET, option(one, SOL_SOCKET, SO_DOMAIN));
    check("ports differ", port_of(one) > 0 && port_of(two) > 0 && port_of(one) != port_of(two), port_of(one));
    FAILS("no destination", EDESTADDRREQ, send(one, "x", 1, 0));
    FAILS("a bound port is taken", EADDRINUSE, ({ int other = socket(AF_INET, SOCK_DGRAM, 0); struct sockaddr_in own = at(port_of(one)); int result = bind(other, (void *)&own, sizeof own); int error = errno; close(other); errno = error; result; }));
    GIVES("nothing to read, room to write", POLLOUT, ready(one, POLLIN | POLLOUT, 0));
    FAILS("nothing is there", EAGAIN, recv(one, bytes, sizeof bytes, MSG_DONTWAIT));
    to = at(port_of(two));
    GIVES("sendto", 5, sendto(one, "first", 5, 0, (void *)&to, sizeof to));
    GIVES("sendto again", 6, sendto(one, "second", 6, 0, (void *)&to, sizeof to));
    GIVES("an empty one", 0, sendto(one, "", 0, 0, (void *)&to, sizeof to));
    GIVES("it is there", POLLIN, ready(two, POLLIN, 1000));
    int available = -1;
    GIVES("FIONREAD", 0, ioctl(two, FIONREAD, &available));
    check("the first one's length", available == 5, available);
    GIVES("a look", 5, recv(two, bytes, sizeof bytes, MSG_PEEK));
    GIVES("recvfrom cuts", 3, recvfrom(two, bytes, 3, 0, (void *)&from, &length));
    check("it is the first", !memcmp(bytes, "fir", 3), 0);
    check("its source", length == sizeof from && from.sin_family == AF_INET && ntohs(from.sin_port) == port_of(one) && from.sin_addr.s_addr == htonl(INADDR_LOOPBACK), ntohs(from.sin_port));
    GIVES("MSG_TRUNC tells the length", 6, recv(two, bytes, 2, MSG_TRUNC));
    GIVES("the empty one", 0, recv(two, bytes, sizeof bytes, 0));
    FAILS("no more", EAGAIN, recv(two, bytes, sizeof bytes, MSG_DONTWAIT));
    memset(bytes, 7, sizeof bytes);
    GIVES("a large one", 60000, sendto(one, bytes, 60000, 0, (void *)&to, sizeof to));
    GIVES("a large one comes whole", 60000, recv(two, bytes, sizeof bytes, 0));
    FAILS("one too large", EMSGSIZE, sendto(one, bytes, 65508, 0, (void *)&to, sizeof to));
    FAILS("no such shutdown", ENOTCONN, shutdown(one, SHUT_RD));
    FAILS("listen", EOPNOTSUPP, listen(one, 1));
    FAILS("accept", EOPNOTSUPP, accept(one, 0, 0));
    to.sin_port = 0;
    FAILS("to port 0", EINVAL, sendto(one, "x", 1, 0, (void *)&to, sizeof to));
    close(one), close(two);
}

static void connected(void) {
    char bytes[100];
    struct sockaddr_in to, peer;
    socklen_t length = sizeof peer;
    int server = bound(SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), other = bound(SOCK_DGRAM, 0);
    to = at(port_of(server));
    GIVES("connect", 0, connect(client, (void *)&to, sizeof to));
    check("it has a port", port_of(client) > 0, port_of(client));
    GIVES("getpeername", 0, getpeername(client, (void *)&peer, &length));
    check("the peer", peer.sin_port == to.sin_port, ntohs(peer.sin_port));
    GIVES("send", 3, send(client, "abc", 3, 0));
    GIVES("write", 3, write(client, "def", 3));
    struct iovec parts[2] = { { "gh", 2 }, { "ij", 2 } };
    GIVES("writev is one", 4, writev(client, parts, 2));
    GIVES("read", 3, read(server, bytes, sizeof bytes));
    GIVES("read again", 3, read(server, bytes, sizeof bytes));
    GIVES("read of two parts", 4, read(server, bytes, sizeof bytes));
    check("both parts", !memcmp(bytes, "ghij", 4), 0);
    to = at(port_of(client));
    GIVES("a stranger sends", 1, sendto(other, "x", 1, 0, (void *)&to, sizeof to));
    FAILS("a stranger is not heard", EAGAIN, recv(client, bytes, sizeof bytes, 0));
    GIVES("the peer sends", 2, sendto(server, "yz", 2, 0, (void *)&to, sizeof to));
    struct iovec into[2] = { { bytes, 1 }, { bytes + 50, 10 } };
    struct msghdr header = { .msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = into, .msg_iovlen = 2 };
    GIVES("recvmsg into two", 2, recvmsg(client, &header, 0));
    check("both pieces and the source", bytes[0] == 'y' && bytes[50] == 'z' && header.msg_namelen == sizeof peer && ntohs(peer.sin_port) == port_of(server), header.msg_namelen);
    check("nothing is cut", header.msg_flags == 0, header.msg_flags);
    struct sockaddr none = { .sa_family = AF_UNSPEC };
    GIVES("disconnect", 0, connect(client, &none, sizeof none));
    FAILS("no peer", ENOTCONN, getpeername(client, (void *)&peer, &length));
    to = at(port_of(server));
    GIVES("connect again", 0, connect(client, (void *)&to, sizeof to));
    close(server);
    GIVES("to nobody", 1, send(client, "x", 1, 0));
    GIVES("nobody is told of", POLLERR, ready(client, POLLIN, 1000));
    GIVES("SO_ERROR", ECONNREFUSED, option(client, SOL_SOCKET, SO_ERROR));
    GIVES("SO_ERROR is told once", 0, option(client, SOL_SOCKET, SO_ERROR));
    GIVES("to nobody again", 1, send(client, "x", 1, 0));
    FAILS("recv tells it", ECONNREFUSED, recv(client, bytes, sizeof bytes, 0));
    GIVES("shutdown", 0, shutdown(client, SHUT_WR));
    FAILS("no more is sent", EPIPE, send(client, "x", 1, MSG_NOSIGNAL));
    close(client), close(other);
}

static void waiting(void) {
    char bytes[100];
    int server = bound(SOCK_DGRAM, 0);
    struct sockaddr_in to = at(port_of(server));
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        int own = socket(AF_INET, SOCK_DGRAM, 0);
        for (int index = 0; index < 100; index++) sendto(own, &index, sizeof index, 0, (void *)&to, sizeof to);
        _exit(0);
    }
    int right = 0;
    for (int index = 0; index < 100; index++) {
        int got = -1;
        if (recv(server, &got, sizeof got, 0) == sizeof got && got == index) right++;
    }
    check("a hundred, in order, waited for", right == 100, right);
    waitpid(child, 0, 0);
    struct timeval limit = { .tv_usec = 50000 };
    setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    FAILS("SO_RCVTIMEO", EAGAIN, recv(server, bytes, sizeof bytes, 0));
    int set_of = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN | EPOLLET };
    GIVES("watched", 0, epoll_ctl(set_of, EPOLL_CTL_ADD, server, &event));
    GIVES("nothing yet", 0, epoll_wait(set_of, &event, 1, 0));
    int own = socket(AF_INET, SOCK_DGRAM, 0);
    for (int round = 0; round < 3; round++) {
        sendto(own, "x", 1, 0, (void *)&to, sizeof to);
        GIVES("an edge", 1, epoll_wait(set_of, &event, 1, 1000));
        GIVES("one edge", 0, epoll_wait(set_of, &event, 1, 0));
    }
    // Nobody reads: they are lost, and the machine lives.
    for (int index = 0; index < 20000; index++) sendto(own, bytes, sizeof bytes, 0, (void *)&to, sizeof to);
    int kept = 0;
    while (recv(server, bytes, sizeof bytes, MSG_DONTWAIT) >= 0) kept++;
    check("what waits is bounded", kept > 100 && kept < 10000, kept);
    close(own), close(server), close(set_of);
}

static void mapped(void) {
    struct sockaddr_in6 own = { .sin6_family = AF_INET6 }, peer;
    socklen_t length = sizeof peer;
    char text[64];
    int listener = socket(AF_INET6, SOCK_STREAM, 0);
    check("an IPv6 socket", listener >= 0, listener);
    GIVES("its family", AF_INET6, option(listener, SOL_SOCKET, SO_DOMAIN));
    GIVES("dual", 0, set(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0));
    GIVES("bind to all", 0, bind(listener, (void *)&own, sizeof own));
    GIVES("listen", 0, listen(listener, 8));
    GIVES("own name", 0, getsockname(listener, (void *)&own, &length));
    check("it is of IPv6", length == sizeof own && own.sin6_family == AF_INET6 && own.sin6_port, length);
    check("it is all", IN6_IS_ADDR_UNSPECIFIED(&own.sin6_addr), 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = at(ntohs(own.sin6_port));
    GIVES("an IPv4 client", 0, connect(client, (void *)&to, sizeof to));
    length = sizeof peer;
    int taken = accept(listener, (void *)&peer, &length);
    inet_ntop(AF_INET6, &peer.sin6_addr, text, sizeof text);
    check("its name is mapped", taken >= 0 && length == sizeof peer && peer.sin6_family == AF_INET6 && !strcmp(text, "::ffff:127.0.0.1"), length);
    length = sizeof peer;
    GIVES("own end", 0, getsockname(taken, (void *)&peer, &length));
    check("own end is mapped", IN6_IS_ADDR_V4MAPPED(&peer.sin6_addr) && peer.sin6_port == own.sin6_port, 0);
    close(client), close(taken);
    client = socket(AF_INET6, SOCK_STREAM, 0);
    peer.sin6_port = own.sin6_port;
    GIVES("a mapped client", 0, connect(client, (void *)&peer, sizeof peer));
    taken = accept(listener, 0, 0);
    check("it is taken", taken >= 0, taken);
    int only = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 same = { .sin6_family = AF_INET6 };
    GIVES("IPv6 only", 0, set(only, IPPROTO_IPV6, IPV6_V6ONLY, 1));
    GIVES("IPv6 only it is", 1, option(only, IPPROTO_IPV6, IPV6_V6ONLY));
    int four = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in all = { .sin_family = AF_INET };
    GIVES("IPv4 beside it", 0, bind(four, (void *)&all, sizeof all));
    GIVES("listens", 0, listen(four, 8));
    same.sin6_port = htons(port_of(four));
    GIVES("the same port of IPv6", 0, bind(only, (void *)&same, sizeof same));
    GIVES("listens too", 0, listen(only, 8));
    GIVES("nobody comes", 0, ready(only, POLLIN, 0));
    close(only), close(four), close(client), close(taken), close(listener);
    int one = socket(AF_INET6, SOCK_DGRAM, 0), two = bound(SOCK_DGRAM, 0);
    peer.sin6_port = htons(port_of(two));
    GIVES("a mapped datagram", 2, sendto(one, "hi", 2, 0, (void *)&peer, sizeof peer));
    GIVES("comes", 2, recv(two, text, sizeof text, 0));
    close(one), close(two);
}

static int sharing(int kind, int port, int shares) {
    int made = socket(AF_INET, kind, 0);
    if (shares) set(made, SOL_SOCKET, SO_REUSEPORT, 1);
    struct sockaddr_in own = at(port);
    return bind(made, (void *)&own, sizeof own) ? -1 : made;
}

static void shared(void) {
    int one = sharing(SOCK_STREAM, 0, 1), port = port_of(one), two = sharing(SOCK_STREAM, port, 1);
    GIVES("SO_REUSEPORT", 1, option(one, SOL_SOCKET, SO_REUSEPORT));
    check("a port of two", one >= 0 && two >= 0, two);
    FAILS("not of a third that does not share", EADDRINUSE, sharing(SOCK_STREAM, port, 0));
    GIVES("listen", 0, listen(one, 16));
    GIVES("listen both", 0, listen(two, 16));
    fcntl(one, F_SETFL, O_NONBLOCK), fcntl(two, F_SETFL, O_NONBLOCK);
    struct sockaddr_in to = at(port);
    int clients[10], taken = 0;
    for (int index = 0; index < 10; index++) {
        clients[index] = socket(AF_INET, SOCK_STREAM, 0);
        GIVES("connect", 0, connect(clients[index], (void *)&to, sizeof to));
    }
    for (int index = 0; index < 100 && taken < 10; index++) {
        struct pollfd both[2] = { { .fd = one, .events = POLLIN }, { .fd = two, .events = POLLIN } };
        poll(both, 2, 1000);
        for (int side = 0; side < 2; side++) {
            int got = both[side].revents & POLLIN ? accept(both[side].fd, 0, 0) : -1;
            if (got >= 0) taken++, close(got);
        }
    }
    check("all are taken by one or the other", taken == 10, taken);
    for (int index = 0; index < 10; index++) close(clients[index]);
    close(one);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    GIVES("the other goes on", 0, connect(client, (void *)&to, sizeof to));
    GIVES("it hears", POLLIN, ready(two, POLLIN, 1000));
    close(two), close(client);
    client = socket(AF_INET, SOCK_STREAM, 0);
    FAILS("nobody listens any more", ECONNREFUSED, connect(client, (void *)&to, sizeof to));
    close(client);
    one = sharing(SOCK_DGRAM, 0, 1), two = sharing(SOCK_DGRAM, port_of(one), 1);
    check("datagrams share, too", one >= 0 && two >= 0, two);
    close(one), close(two);
}

static void refused(void) {
    FAILS("no such family", EAFNOSUPPORT, socket(99, SOCK_STREAM, 0));
    FAILS("UDP is no stream", EPROTONOSUPPORT, socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    FAILS("TCP is no datagram", EPROTONOSUPPORT, socket(AF_INET, SOCK_DGRAM, IPPROTO_TCP));
    int made = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(4000), .sin_addr = { htonl(0x08080808) } };
    FAILS("not our address", EADDRNOTAVAIL, bind(made, (void *)&own, sizeof own));
    FAILS("too short", EINVAL, bind(made, (void *)&own, 4));
    FAILS("not memory", EFAULT, sendto(made, (void *)8, 100, 0, (void *)&own, sizeof own));
    GIVES("SO_BROADCAST", 0, set(made, SOL_SOCKET, SO_BROADCAST, 1));
    GIVES("IP_RECVERR", 0, set(made, IPPROTO_IP, IP_RECVERR, 1));
    // Descriptors come back.
    close(made);
    for (int index = 0; index < 3000; index++) {
        int again = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in to = at(9);
        if (again < 0 || connect(again, (void *)&to, sizeof to)) { check("a socket again", 0, index); break; }
        close(again);
    }
}

// What is closed has ended for whoever asks next: its peer, and who wants its port.
static void closed(void) {
    struct linger at_once = { 1, 0 };
    long named = 0, lost = 0, still_open = 0, taken = 0, heard = 0, pairs = 0;
    char bytes[16];
    for (int round = 0; round < 50; round++) {
        int listener = bound(SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), pair[2];
        struct sockaddr_in to = at(port_of(listener)), peer;
        socklen_t length = sizeof peer;
        listen(listener, 1), connect(client, (void *)&to, sizeof to);
        int server = accept(listener, 0, 0);
        setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (write(client, "data", 4) != 4) check("bytes before a reset", 0, round);
        close(client);
        named += getpeername(server, (void *)&peer, &length) != -1 || errno != ENOTCONN;
        lost += recv(server, bytes, sizeof bytes, MSG_DONTWAIT) != 4;
        still_open += recv(server, bytes, sizeof bytes, MSG_DONTWAIT) != -1 || errno != ECONNRESET;
        close(server), close(listener);
        client = socket(AF_INET, SOCK_STREAM, 0);
        heard += connect(client, (void *)&to, sizeof to) != -1 || errno != ECONNREFUSED;
        close(client), close(bound(SOCK_STREAM, ntohs(to.sin_port)));
        listener = bound(SOCK_STREAM, ntohs(to.sin_port));
        taken += listener < 0 || listen(listener, 1);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) check("a pair", 0, round);
        close(listener), close(pair[0]);
        pairs += recv(pair[1], bytes, sizeof bytes, MSG_DONTWAIT) != 0;
        close(pair[1]);
    }
    check("who was reset has no peer", named == 0, named);
    check("what came before a reset is there", lost == 0, lost);
    check("and then the reset", still_open == 0, still_open);
    check("a closed listener refuses", heard == 0, heard);
    check("a closed port is free", taken == 0, taken);
    check("the other of a pair is at its end", pairs == 0, pairs);
}

int main(void) {
    messages();
    connected();
    waiting();
    mapped();
    shared();
    refused();
    closed();
    return all_checked();
}
