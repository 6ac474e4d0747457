// Flags and options of sockets.

static struct sockaddr_in loopback(int port) { struct sockaddr_in address = { AF_INET, htons(port), { htonl(INADDR_LOOPBACK) } }; return address; }
static int listener(int type) {
    struct sockaddr_in address = loopback(0);
    int file = socket(AF_INET, type, 0);
    return bind(file, (void *)&address, sizeof address) || listen(file, 4) ? -1 : file;
}
static int connected_to(int file) {
    struct sockaddr_in address;
    socklen_t bytes = sizeof address;
    int other = socket(AF_INET, SOCK_STREAM, 0);
    return getsockname(file, (void *)&address, &bytes) || connect(other, (void *)&address, bytes) ? -1 : other;
}
// Both ends of a connection.
static int over_network(int ends[2]) { int file = listener(SOCK_STREAM); ends[0] = connected_to(file), ends[1] = accept(file, NULL, NULL); return ends[1] < 0; }
// Datagrams to and from itself.
static int to_itself(void) {
    struct sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof address;
    int file = socket(AF_INET, SOCK_DGRAM, 0);
    return bind(file, (void *)&address, bytes) || getsockname(file, (void *)&address, &bytes) || connect(file, (void *)&address, bytes) ? -1 : file;
}

TRY(socket_families) { return syscall(SYS_socket, value, SOCK_DGRAM, 0L); }
SEES(socket_families) {
    int file = socket(value, SOCK_STREAM, 0), told = 0;
    socklen_t bytes = sizeof told;
    if (file < 0) return errno == EAFNOSUPPORT ? NOT_HERE : 0;
    return getsockopt(file, SOL_SOCKET, SO_DOMAIN, &told, &bytes) == 0 && told == value;
}
TRY(socket_types) { return syscall(SYS_socket, AF_INET, value & 0xf ? value : value | SOCK_STREAM, 0L); }
static int is_of_type(int family, int type) { int told = 0, file = socket(family, type, 0); socklen_t bytes = sizeof told; return getsockopt(file, SOL_SOCKET, SO_TYPE, &told, &bytes) == 0 && told == type; }
SEEN(socket_types, SOCK_STREAM) { return is_of_type(AF_INET, value) && is_of_type(AF_UNIX, value); }
SEEN(socket_types, SOCK_DGRAM) { return is_of_type(AF_INET, value) && is_of_type(AF_UNIX, value); }
SEEN(socket_types, SOCK_SEQPACKET) { return is_of_type(AF_UNIX, value); }
SEEN(socket_types, SOCK_NONBLOCK) { return is_nonblocking(socket(AF_INET, SOCK_STREAM | value, 0)); }
SEEN(socket_types, SOCK_CLOEXEC) { return is_cloexec(socket(AF_INET, SOCK_STREAM | value, 0)); }

TRY(socket_protocols) { return syscall(SYS_socket, AF_INET, SOCK_STREAM, value); }
SEES(socket_protocols) {
    int type = value == IPPROTO_UDP ? SOCK_DGRAM : SOCK_STREAM, told = -1, file = socket(AF_INET, type, value);
    socklen_t bytes = sizeof told;
    return getsockopt(file, SOL_SOCKET, SO_PROTOCOL, &told, &bytes) == 0 && told == (value ? value : IPPROTO_TCP);
}

static int accepted(long flags) { int file = listener(SOCK_STREAM); connected_to(file); return syscall(SYS_accept4, file, NULL, NULL, flags); }
TRY(accept4_flags) { return accepted(value); }
SEEN(accept4_flags, SOCK_NONBLOCK) { return is_nonblocking(accepted(value)) && !is_nonblocking(accepted(0)); }
SEEN(accept4_flags, SOCK_CLOEXEC) { return is_cloexec(accepted(value)); }

TRY(shutdown_ways) { return syscall(SYS_shutdown, stream(0), value); }
SEES(shutdown_ways) {
    int pair[2];
    char c;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    if (shutdown(pair[0], value)) return 0;
    int reads = read(pair[0], &c, 1) == 0, writes = send(pair[0], "x", 1, MSG_NOSIGNAL) == 1;
    return reads == (value != SHUT_WR) && writes == (value == SHUT_RD);
}

// Options: what is set is told back.
static char option_place[64];
static long set_by(int file, long level, long name, int value) { int place[4] = { value, 3, 0, 0 }; return syscall(SYS_setsockopt, file, level, name, place, sizeof place); }
static long get_by(int file, long level, long name) { socklen_t bytes = sizeof option_place; memset(option_place, 0, sizeof option_place); return syscall(SYS_getsockopt, file, level, name, option_place, &bytes); }
static int told_by(int file, long level, long name) { return get_by(file, level, name) ? -1 : *(int *)option_place; }
static int is_switch(int file, long level, long name) { return set_by(file, level, name, 1) == 0 && told_by(file, level, name) == 1 && set_by(file, level, name, 0) == 0 && told_by(file, level, name) == 0; }
static int tcp(void) { return socket(AF_INET, SOCK_STREAM, 0); }
static int told_back(long name) { return name == SO_DONTROUTE || name == SO_BROADCAST || name == SO_OOBINLINE; }
TRY(setsockopt_SOL_SOCKET) { int file = tcp(); return told_back(value) && !is_switch(file, SOL_SOCKET, value) ? -1 : set_by(file, SOL_SOCKET, value, 1); }
SEES(setsockopt_SOL_SOCKET) { return is_switch(value == SO_PASSCRED ? stream(0) : tcp(), SOL_SOCKET, value); }
SEEN(setsockopt_SOL_SOCKET, SO_LINGER) { int file = tcp(); return set_by(file, SOL_SOCKET, value, 1) == 0 && told_by(file, SOL_SOCKET, value) == 1 && ((int *)option_place)[1] == 3; }
SEEN(setsockopt_SOL_SOCKET, SO_REUSEPORT) {
    struct sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof address;
    int one = tcp(), other = tcp(), none = tcp(), on = 1;
    if (!is_switch(tcp(), SOL_SOCKET, value) || set_by(one, SOL_SOCKET, value, 1) || set_by(other, SOL_SOCKET, value, 1)) return 0;
    if (bind(one, (void *)&address, bytes) || listen(one, 1) || getsockname(one, (void *)&address, &bytes)) return 0;
    return bind(other, (void *)&address, bytes) == 0 && listen(other, 1) == 0 && fails_by(bind(none, (void *)&address, bytes), EADDRINUSE);
}
static int has_time_limit(long name) {
    struct timeval limit = { 0, 20000 }, *told = (void *)option_place;
    int file = stream(0);
    char c;
    long began = now_ms();
    if (setsockopt(file, SOL_SOCKET, name, &limit, sizeof limit) || get_by(file, SOL_SOCKET, name) || told->tv_usec < 20000) return 0;
    if (name == SO_RCVTIMEO || name == SO_RCVTIMEO_NEW) return fails_by(recv(file, &c, 1, 0), EAGAIN) && now_ms() - began >= 19;
    static char bytes[65536];
    while (send(file, bytes, sizeof bytes, 0) > 0) {}
    return errno == EAGAIN && now_ms() - began >= 19;
}
SEEN(setsockopt_SOL_SOCKET, SO_RCVTIMEO) { return has_time_limit(value); }
SEEN(setsockopt_SOL_SOCKET, SO_SNDTIMEO) { return has_time_limit(value); }
SEEN(setsockopt_SOL_SOCKET, SO_RCVTIMEO_NEW) { return has_time_limit(value); }
SEEN(setsockopt_SOL_SOCKET, SO_SNDTIMEO_NEW) { return has_time_limit(value); }
SEEN(setsockopt_SOL_SOCKET, SO_PASSCRED) {
    int pair[2];
    char c, control[64];
    struct iovec part = { &c, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (!is_switch(pair[0], SOL_SOCKET, value) || set_by(pair[1], SOL_SOCKET, value, 1) || write(pair[0], "x", 1) != 1 || recvmsg(pair[1], &message, 0) != 1) return 0;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    return head && head->cmsg_type == SCM_CREDENTIALS && ((struct ucred *)CMSG_DATA(head))->pid == getpid();
}
TRY(getsockopt_SOL_SOCKET) { return get_by(tcp(), SOL_SOCKET, value); }
SEES(getsockopt_SOL_SOCKET) {
    int file = tcp();
    switch (value) {
    case SO_TYPE: return told_by(file, SOL_SOCKET, value) == SOCK_STREAM;
    case SO_DOMAIN: return told_by(file, SOL_SOCKET, value) == AF_INET;
    case SO_PROTOCOL: return told_by(file, SOL_SOCKET, value) == IPPROTO_TCP;
    case SO_ERROR: return told_by(file, SOL_SOCKET, value) == 0;
    case SO_ACCEPTCONN: return told_by(file, SOL_SOCKET, value) == 0 && told_by(listener(SOCK_STREAM), SOL_SOCKET, value) == 1;
    case SO_SNDBUF: case SO_RCVBUF: return told_by(file, SOL_SOCKET, value) >= 2048;
    case SO_LINGER: return seen_setsockopt_SOL_SOCKET_SO_LINGER(value);
    case SO_RCVTIMEO: case SO_SNDTIMEO: case SO_RCVTIMEO_NEW: case SO_SNDTIMEO_NEW: return get_by(file, SOL_SOCKET, value) == 0 && *(long *)option_place == 0 && has_time_limit(value);
    case SO_PEERCRED: return told_by(stream(0), SOL_SOCKET, value) == getpid();
    case SO_PASSCRED: return is_switch(stream(0), SOL_SOCKET, value);
    default: return is_switch(file, SOL_SOCKET, value);
    }
}
TRY(setsockopt_IPPROTO_TCP) { return set_by(tcp(), IPPROTO_TCP, value, 1); }
SEEN(setsockopt_IPPROTO_TCP, TCP_NODELAY) { return is_switch(tcp(), IPPROTO_TCP, value); }
TRY(getsockopt_IPPROTO_TCP) { return get_by(tcp(), IPPROTO_TCP, value); }
SEEN(getsockopt_IPPROTO_TCP, TCP_NODELAY) { return is_switch(tcp(), IPPROTO_TCP, value); }
// What is held back comes when it has waited long enough, and not much before: so long after it was sent at least.
enum { HELD_MS = 100, TRIES = 20 };
static int comes_late(int file, long sent) { return ready(file, POLLIN, 3000) == POLLIN && now_ms() - sent >= HELD_MS; }
// Two pieces that are one segment, and come when it may go. A machine that stands still between them lets them go before,
// and is asked again: -1.
static int is_one_piece(long cork) {
    int ends[2];
    char found[9];
    if (over_network(ends) || cork && set_by(ends[0], IPPROTO_TCP, cork, 1)) return 0;
    long began = now_ms(), first = send(ends[0], "12", 2, cork ? 0 : MSG_MORE), second = cork ? write(ends[0], "345", 3) : 3;
    int is_held = ready(ends[1], POLLIN, 20) == 0;
    long joined = cork ? set_by(ends[0], IPPROTO_TCP, cork, 0) : send(ends[0], "345", 3, 0) - 3;
    int has_come = ready(ends[1], POLLIN, 3000) == POLLIN, is_fine = first == 2 && second == 3 && is_held && joined == 0 && has_come && recv(ends[1], found, 9, 0) == 5 && !memcmp(found, "12345", 5);
    if (!is_fine && now_ms() - began >= HELD_MS) return -1;
    return is_fine;
}
static int come_as_one(long cork) { int is_one = -1; for (int tries = 0; is_one < 0 && tries < TRIES; tries++) is_one = is_one_piece(cork); return is_one == 1; }
SEEN(setsockopt_IPPROTO_TCP, TCP_CORK) {
    int ends[2];
    char found[9];
    if (!is_switch(tcp(), IPPROTO_TCP, value) || !come_as_one(value) || over_network(ends) || set_by(ends[0], IPPROTO_TCP, value, 1)) return 0;
    long sent = now_ms();
    if (write(ends[0], "6", 1) != 1 || !comes_late(ends[1], sent) || recv(ends[1], found, 9, 0) != 1) return 0;
    // So does the end of what is written.
    return write(ends[0], "7", 1) == 1 && shutdown(ends[0], SHUT_WR) == 0 && recv(ends[1], found, 9, MSG_WAITALL) == 1 && *found == '7';
}
SEEN(getsockopt_IPPROTO_TCP, TCP_CORK) { return is_switch(tcp(), IPPROTO_TCP, value); }
static struct tcp_info info_of(int file, long name) { struct tcp_info info = { 0 }; socklen_t bytes = sizeof info; if (getsockopt(file, IPPROTO_TCP, name, &info, &bytes) || bytes < 104) info.tcpi_state = 99; return info; }
SEEN(getsockopt_IPPROTO_TCP, TCP_INFO) {
    int ends[2], file = listener(SOCK_STREAM);
    char found[5];
    if (info_of(tcp(), value).tcpi_state != TCP_CLOSE || info_of(file, value).tcpi_state != TCP_LISTEN || over_network(ends)) return 0;
    if (write(ends[0], "12345", 5) != 5 || recv(ends[1], found, 5, MSG_WAITALL) != 5 || write(ends[1], "x", 1) != 1 || recv(ends[0], found, 1, MSG_WAITALL) != 1) return 0;
    struct tcp_info own = info_of(ends[0], value);
    int is_told = own.tcpi_state == TCP_ESTABLISHED && own.tcpi_rtt > 0 && own.tcpi_rto >= 200000 && own.tcpi_snd_mss >= 536 && own.tcpi_snd_cwnd >= 1 && own.tcpi_total_retrans == 0;
    shutdown(ends[0], SHUT_WR);
    return is_told && recv(ends[1], found, 5, 0) == 0 && info_of(ends[1], value).tcpi_state == TCP_CLOSE_WAIT;
}
TRY(setsockopt_IPPROTO_IP) { return set_by(socket(AF_INET, SOCK_DGRAM, 0), IPPROTO_IP, value, 1); }
TRY(getsockopt_IPPROTO_IP) { return get_by(socket(AF_INET, SOCK_DGRAM, 0), IPPROTO_IP, value); }
TRY(setsockopt_IPPROTO_IPV6) { int file = socket(AF_INET6, SOCK_DGRAM, 0); return file < 0 ? NOT_HERE : set_by(file, IPPROTO_IPV6, value, 1); }
TRY(getsockopt_IPPROTO_IPV6) { int file = socket(AF_INET6, SOCK_DGRAM, 0); return file < 0 ? NOT_HERE : get_by(file, IPPROTO_IPV6, value); }
static int is_switch_of_6(long name) { int file = socket(AF_INET6, SOCK_STREAM, 0); return file < 0 && errno == EAFNOSUPPORT ? NOT_HERE : is_switch(file, IPPROTO_IPV6, name); }
SEEN(setsockopt_IPPROTO_IPV6, IPV6_V6ONLY) { return is_switch_of_6(value); }
SEEN(getsockopt_IPPROTO_IPV6, IPV6_V6ONLY) { return is_switch_of_6(value); }
TRY(setsockopt_IPPROTO_UDP) { int file = socket(AF_INET, SOCK_DGRAM, 0); return fails_by(get_by(file, IPPROTO_UDP, value), ENOPROTOOPT) ? set_by(file, IPPROTO_UDP, value, 1) : 0; }
TRY(setsockopt_levels_of_AF_UNIX) { return set_by(stream(0), value, 1, 1); }

// Sending and receiving.

TRY(sendto_flags) {
    int ends[2];
    char found[5];
    if (over_network(ends)) return errno = EIO, -1;
    long given = syscall(SYS_sendto, ends[0], "12345", 5L, value | MSG_NOSIGNAL, NULL, 0L);
    return given == 5 && (recv(ends[1], found, 5, MSG_WAITALL) != 5 || memcmp(found, "12345", 5)) ? -1 : given;
}
SEEN(sendto_flags, MSG_DONTWAIT) { static char bytes[65536]; int file = stream(0); while (send(file, bytes, sizeof bytes, value) > 0) {} return errno == EAGAIN; }
SEEN(sendto_flags, MSG_MORE) {
    int ends[2];
    char found[9];
    if (!come_as_one(0) || over_network(ends)) return 0;
    long sent = now_ms();
    return send(ends[0], "6", 1, value) == 1 && comes_late(ends[1], sent) && recv(ends[1], found, 9, 0) == 1;
}
SEEN(sendto_flags, MSG_NOSIGNAL) {
    int file = stream(1);
    count_by(SIGPIPE, 0);
    int silent = fails_by(send(file, "x", 1, value), EPIPE) && got == 0, told = fails_by(send(file, "x", 1, 0), EPIPE) && got == 1;
    by_default(SIGPIPE);
    return silent && told;
}
TRY(recvfrom_flags) {
    int ends[2];
    char found[5];
    if (over_network(ends) || write(ends[0], "12345", 5) != 5 || ready(ends[1], POLLIN, 2000) != POLLIN) return errno = EIO, -1;
    return syscall(SYS_recvfrom, ends[1], found, 5L, value, NULL, NULL);
}
SEEN(recvfrom_flags, MSG_PEEK) {
    int ends[2], datagrams = to_itself();
    char found[8] = { 0 }, again[8] = { 0 };
    if (over_network(ends) || write(ends[0], "12345", 5) != 5 || write(datagrams, "123", 3) != 3) return 0;
    return recv(ends[1], found, 8, value) >= 1 && recv(ends[1], again, 8, 0) >= 1 && *found == '1' && *again == '1' && recv(datagrams, found, 8, value) == 3 && recv(datagrams, again, 8, 0) == 3;
}
SEEN(recvfrom_flags, MSG_TRUNC) {
    int datagrams = to_itself(), pair[2];
    char found[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    return write(datagrams, "12345", 5) == 5 && recv(datagrams, found, 2, value) == 5 && write(pair[0], "12345", 5) == 5 && recv(pair[1], found, 2, value) == 5;
}
SEEN(recvfrom_flags, MSG_DONTWAIT) { int ends[2]; char c; return !over_network(ends) && fails_by(recv(ends[0], &c, 1, value), EAGAIN) && fails_by(recv(stream(0), &c, 1, value), EAGAIN); }
// Two pieces with a pause between them.
static void *sends_pieces(void *file) { struct timespec pause = { 0, 20000000 }; write((long)file, "12", 2), nanosleep(&pause, NULL), write((long)file, "345", 3); return NULL; }
static int waits_for_all(int from, int to, long flags) {
    char found[5];
    pthread_t thread = begin(sends_pieces, from);
    long given = recv(to, found, 5, flags);
    end(thread);
    return given == 5 && !memcmp(found, "12345", 5);
}
SEEN(recvfrom_flags, MSG_WAITALL) {
    int ends[2], pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    return !over_network(ends) && waits_for_all(ends[0], ends[1], value) && waits_for_all(pair[0], pair[1], value);
}
SEEN(recvfrom_flags, MSG_WAITFORONE) {
    int file = to_itself();
    char bytes[2][8];
    struct iovec parts[2] = { { bytes[0], 8 }, { bytes[1], 8 } };
    struct mmsghdr messages[2] = { { .msg_hdr = { .msg_iov = parts, .msg_iovlen = 1 } }, { .msg_hdr = { .msg_iov = parts + 1, .msg_iovlen = 1 } } };
    return write(file, "123", 3) == 3 && ready(file, POLLIN, 2000) == POLLIN && syscall(SYS_recvmmsg, file, messages, 2L, value, NULL) == 1 && messages[0].msg_len == 3;
}
// A message with control data: what sending it gives, or the descriptor that comes.
static long with_control(int from, int to, int level, int type, const void *data, int bytes, long flags) {
    char c = 'x', control[64] = { 0 };
    struct iovec part = { &c, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(bytes) };
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = level, head->cmsg_type = type, head->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(head), data, bytes);
    long given = sendmsg(from, &message, 0);
    if (given != 1 || to < 0) return given;
    message.msg_controllen = sizeof control;
    if (recvmsg(to, &message, flags) != 1 || !(head = CMSG_FIRSTHDR(&message)) || head->cmsg_type != type) return -1;
    return *(int *)CMSG_DATA(head);
}
static long passed(long flags) { int pair[2], file = opened(O_RDWR); socketpair(AF_UNIX, SOCK_STREAM, 0, pair); return with_control(pair[0], pair[1], SOL_SOCKET, SCM_RIGHTS, &file, 4, flags); }
SEEN(recvfrom_flags, MSG_CMSG_CLOEXEC) { return is_cloexec(passed(value)) && !is_cloexec(passed(0)); }
TRY(sendmsg_control_messages_of_SOL_SOCKET) { int pair[2], none = 0; socketpair(AF_UNIX, SOCK_STREAM, 0, pair); return with_control(pair[0], -1, SOL_SOCKET, value, &none, 4, 0); }
SEEN(sendmsg_control_messages_of_SOL_SOCKET, SCM_RIGHTS) { return size_of(passed(0)) == 10; }
SEEN(sendmsg_control_messages_of_SOL_SOCKET, SCM_CREDENTIALS) {
    struct ucred own = { getpid(), getuid(), getgid() }, other = { 1 << 20, getuid(), getgid() };
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair), set_by(pair[1], SOL_SOCKET, SO_PASSCRED, 1);
    return with_control(pair[0], pair[1], SOL_SOCKET, value, &own, sizeof own, 0) == getpid() && with_control(pair[0], -1, SOL_SOCKET, value, &other, sizeof other, 0) == -1;
}
TRY(sendmsg_control_messages_of_IPPROTO_IP) { struct in_pktinfo data = { 0 }; int number = 64; return with_control(to_itself(), -1, IPPROTO_IP, value, value == IP_PKTINFO ? (void *)&data : (void *)&number, value == IP_PKTINFO ? sizeof data : 4, 0); }
