# SPDX-License-Identifier: Apache-2.0
"""A hundred arrays of CuPy with names, some dropped, some made by other threads; the stand-in or the real one. Prints what is
true at each mark: the pool's used bytes, and bytes by name."""

import json
import threading

import cupy
import vramscope

held = {}


def make(name, kib):
    held[name] = cupy.empty(kib * 1024, "u1")
    vramscope.tag(held[name], name)


def at(mark):
    vramscope.mark(mark)
    used = cupy.get_default_memory_pool().used_bytes()
    print(json.dumps([mark, used, {name: array.nbytes for name, array in held.items()}]), flush=True)


for number in range(100):
    make(f"array {number}", 64 + 37 * number)
at("all")
for number in range(0, 100, 3):
    del held[f"array {number}"]
at("some")
thread = threading.Thread(target=make, args=("of a thread", 640))
thread.start()
thread.join()
for number in range(0, 30, 3):
    make(f"again {number}", 64 + 37 * number)
at("again")
