# Serves /served by HTTP with asyncio, whose executor's threads read the files.
import asyncio


def content(path):
    return open("/served" + path, "rb").read()


async def serve(reader, writer):
    loop = asyncio.get_running_loop()
    while line := await reader.readline():
        while await reader.readline() not in (b"\r\n", b""):
            pass
        body = await loop.run_in_executor(None, content, line.split()[1].decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        if line.endswith(b"/1.0\r\n"):
            break
    writer.close()


async def main():
    async with await asyncio.start_server(serve, "", 8080) as server:
        await server.serve_forever()


asyncio.run(main())
