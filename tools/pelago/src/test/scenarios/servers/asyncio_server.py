# Serves /served by HTTP with asyncio, on one thread, which also waits for 1,000 descriptors at which nothing happens.
import asyncio, os, resource

PIPES, COUNTERS = 400, 600


async def serve(reader, writer):
    while line := await reader.readline():
        while await reader.readline() not in (b"\r\n", b""):
            pass
        with open("/served" + line.split()[1].decode(), "rb") as file:
            body = file.read()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        if line.endswith(b"/1.0\r\n"):
            break
    writer.close()


async def main():
    loop = asyncio.get_running_loop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    pipes = [os.pipe() for _ in range(PIPES)]
    for idle in [reads for reads, _ in pipes] + [os.eventfd(0) for _ in range(COUNTERS)]:
        loop.add_reader(idle, os._exit, 9)
    async with await asyncio.start_server(serve, "", 8080) as server:
        await server.serve_forever()


asyncio.run(main())
