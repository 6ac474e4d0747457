# What a Python event loop does with sockets within the machine; each line is compared.
import asyncio, os, select, socket

one, two = socket.socketpair()
one.sendall(b"pair")
print("pair", two.recv(9), one.family.name, one.type.name, flush=True)

counter = os.eventfd(2, os.EFD_SEMAPHORE | os.EFD_NONBLOCK)
os.eventfd_write(counter, 3)
with select.epoll() as events:
    events.register(counter, select.EPOLLIN)
    got = 0
    while events.poll(0):
        got += os.eventfd_read(counter)
print("counter", got, flush=True)

# Descriptors in a message: a file and a pipe's end.
reading, writing = os.pipe()
file = os.open("/tmp/passed.txt", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.write(file, b"from the file")
socket.send_fds(one, [b"x"], [file, writing])
os.close(writing)
message, numbers, flags, source = socket.recv_fds(two, 9, 4)
os.write(numbers[1], b"through")
os.close(numbers[1])
print("passed", os.pread(numbers[0], 99, 0), os.read(reading, 99), flush=True)


async def talk(path):
    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, path, limit=1 << 20)

    async def ask(number):
        reader, writer = await asyncio.open_unix_connection(path)
        for turn in range(5):
            writer.write(b"client %d turn %d\n" % (number, turn))
            assert await reader.readline() == b"CLIENT %d TURN %d\n" % (number, turn)
            await asyncio.sleep(0.001)
        # More than fits at once, both ways.
        writer.write(b"x" * 300000 + b"\n")
        answer = await reader.readexactly(300001)
        writer.close()
        await writer.wait_closed()
        return len(answer.rstrip(b"X\n"))

    answers = await asyncio.gather(*(ask(number) for number in range(8)))
    server.close()
    await server.wait_closed()
    return sum(answers), len(answers)


for path in ["/tmp/talk", "\0talk"]:
    print("loop", *asyncio.run(talk(path)), flush=True)
