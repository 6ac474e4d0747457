# Serves /served by HTTP, each client in a thread of a pool.
import concurrent.futures, socket


def serve(client):
    with client:
        lines = client.makefile("rb")
        while line := lines.readline():
            while lines.readline() not in (b"\r\n", b""):
                pass
            body = open("/served" + line.split()[1].decode(), "rb").read()
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            if line.endswith(b"/1.0\r\n"):
                break
        lines.close()


listener = socket.create_server(("", 8080), backlog=64)
pool = concurrent.futures.ThreadPoolExecutor(4)
while True:
    pool.submit(serve, listener.accept()[0])
