"""pair: TLS over a connection, blocking and with asyncio, with a certificate made for the test."""

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import tempfile

from channel import HOST, NAME, ROLE, digest, hear, meet, run_roles, say, stream, tell

FOLDER = os.path.join(tempfile.gettempdir(), f"contract-tls-{os.getuid()}")
# Key and certificate in one file, which is there whole or not at all.
CERTIFICATE = os.path.join(FOLDER, "key_and_certificate.pem")


def make_certificate():
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    if not os.path.exists(CERTIFICATE):
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
                               "3650", "-subj", "/CN=localhost", "-addext",
                               "subjectAltName=DNS:localhost", "-keyout", "-", "-out", "-"],
                              check=True, capture_output=True).stdout
        with tempfile.NamedTemporaryFile(dir=FOLDER, delete=False) as file:
            file.write(made)
        # The first one stays: another run may have loaded it already.
        with contextlib.suppress(FileExistsError):
            os.link(file.name, CERTIFICATE)
        os.unlink(file.name)


def server():
    make_certificate()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    with socket.create_server((HOST, 0)) as listening:
        tell(listening.getsockname()[1])
        connection, _ = listening.accept()
        with context.wrap_socket(connection, server_side=True) as secure:
            data = b""
            while len(data) < 500_000:
                data += secure.recv(16384)
            say(secure.version(), len(data), digest(data))
            secure.sendall(data[::-1])
            secure.unwrap()
    meet()
    asyncio.run(serve_streams(context))


async def serve_streams(context):
    finished = asyncio.Event()

    async def serve(reader, writer):
        data = await reader.readexactly(300_000)
        writer.write(digest(data).encode())
        await writer.drain()
        writer.close()
        finished.set()

    listening = await asyncio.start_server(serve, HOST, 0, ssl=context)
    tell(listening.sockets[0].getsockname()[1])
    await asyncio.wait_for(finished.wait(), 120)
    listening.close()
    say("streams served")


def client():
    port = hear()
    context = ssl.create_default_context(cafile=CERTIFICATE)
    data = stream(500_000)
    raw = socket.create_connection((NAME, port))
    with raw, context.wrap_socket(raw, server_hostname="localhost") as secure:
        secure.sendall(data)
        answer = b""
        while len(answer) < len(data):
            answer += secure.recv(16384)
        say(answer == data[::-1], secure.cipher()[1])
        say(secure.recv(1))
        secure.unwrap()
    meet()
    asyncio.run(use_streams(context))


async def use_streams(context):
    port = hear()
    reader, writer = await asyncio.open_connection(NAME, port, ssl=context,
                                                   server_hostname="localhost")
    writer.write(stream(300_000, 2))
    await writer.drain()
    say(await reader.read(-1) == digest(stream(300_000, 2)).encode())
    writer.close()


assert ROLE in ("server", "client")
run_roles(server, client)
