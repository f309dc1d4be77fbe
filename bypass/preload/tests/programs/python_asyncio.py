"""pair: asyncio streams: many clients, back-pressure, half-close, a server that stops."""

import asyncio

from channel import HOST, digest, hear, run_roles, say, stream, tell

CLIENTS = 40
LENGTH = 200_000


async def server():
    finished = asyncio.Event()
    digests, ended = [], []

    async def serve(reader, writer):
        data = await reader.read(-1)
        digests.append(digest(data))
        writer.write(data[::-1])
        await writer.drain()
        writer.write_eof()
        writer.close()
        await writer.wait_closed()
        ended.append(writer)
        if len(ended) == CLIENTS:
            finished.set()

    listening = await asyncio.start_server(serve, HOST, 0)
    tell(listening.sockets[0].getsockname()[1])
    await asyncio.wait_for(finished.wait(), 120)
    listening.close()
    await listening.wait_closed()
    say(len(digests), sorted(digests)[0], sorted(digests)[-1])


async def one(port, number):
    reader, writer = await asyncio.open_connection(HOST, port)
    data = stream(LENGTH + number, number)
    for place in range(0, len(data), 7000):
        writer.write(data[place:place + 7000])
        await writer.drain()
    writer.write_eof()
    answer = await reader.read(-1)
    writer.close()
    await writer.wait_closed()
    return answer == data[::-1]


async def client():
    port = hear()
    right = await asyncio.gather(*(one(port, number) for number in range(CLIENTS)))
    say(sum(right))
    try:
        await asyncio.open_connection(HOST, 1)
    except OSError as error:
        say(type(error).__name__)


run_roles(server, client)
