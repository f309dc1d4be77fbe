"""A load generator with the gate of `wirespeed-load --control`, and no server: FILE [ungated]."""

import ctypes
import mmap
import os
import sys
import time

path, is_ungated = sys.argv[1], "ungated" in sys.argv
with open(path + ".part", "wb") as file:
    file.write(b"wsload1\0" + (1).to_bytes(4, sys.byteorder) + bytes(52 + 64))
with open(path + ".part", "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
os.rename(path + ".part", path)
wanted = ctypes.c_uint32.from_buffer(memory, 12)
until_ns = ctypes.c_uint64.from_buffer(memory, 16)
state = ctypes.c_uint32.from_buffer(memory, 64)
sent, answered = (ctypes.c_uint64.from_buffer(memory, at) for at in (72, 80))
while True:
    if wanted.value and time.monotonic_ns() < until_ns.value and not is_ungated:
        state.value = 2
        time.sleep(0.0002)
        continue
    state.value = 1
    sent.value += 1
    time.sleep(0.0002)
    answered.value += 1
