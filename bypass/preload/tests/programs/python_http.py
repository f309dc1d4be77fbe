"""pair: http.server in threads and http.client: keep-alive, pipelined writes, large bodies, errors."""

import http.client
import http.server
import socket

from channel import HOST, digest, hear, run_roles, say, stream, tell


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = stream(int(self.path[1:]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = digest(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer)
        self.close_connection = True

    def log_message(self, *_):
        pass


def server():
    with http.server.ThreadingHTTPServer((HOST, 0), Handler) as listening:
        listening.daemon_threads = False
        tell(listening.server_address[1])
        listening.timeout = 60
        for _ in range(5):
            listening.handle_request()
    say("closed")


def client():
    port = hear()
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    for size in (0, 1, 128, 10_000, 1_000_000, 5):
        connection.request("GET", f"/{size}")
        response = connection.getresponse()
        body = response.read()
        say(response.status, len(body), body == stream(size))
    connection.close()
    for size in (0, 100_000, 3_000_000):
        connection = http.client.HTTPConnection(HOST, port, timeout=60)
        connection.request("POST", "/", stream(size))
        response = connection.getresponse()
        say(response.read() == digest(stream(size)).encode(), response.will_close)
        connection.close()
    with socket.create_connection((HOST, port)) as raw:
        raw.sendall(b"GET /3 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nConnection: close\r\n\r\n")
        text = b""
        while piece := raw.recv(4096):
            text += piece
        say(text.count(b"HTTP/1.1 200"), text.endswith(stream(2)))


run_roles(server, client)
