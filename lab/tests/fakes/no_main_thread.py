"""A web server whose main thread has ended: /proc shows it as a zombie, and it answers."""

import ctypes
import http.server
import os
import platform
import sys
import threading
import time

EXIT = {"x86_64": 60, "aarch64": 93}[platform.machine()]  # the system call: of one thread


def serve():
    main = f"/proc/self/task/{os.getpid()}/stat"
    while True:
        with open(main) as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                break
        time.sleep(0.005)
    where = ("127.0.0.1", int(sys.argv[1]))
    http.server.HTTPServer(where, http.server.SimpleHTTPRequestHandler).serve_forever()


threading.Thread(target=serve).start()
ctypes.CDLL(None).syscall(EXIT, 0)
