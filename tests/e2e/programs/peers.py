# SPDX-License-Identifier: Apache-2.0
"""A trainer gives its weights to an engine by CUDA IPC, on the stand-in driver: peers.py ORDER...

Each order is done by the one that it names: trainer-frees, engine-closes, trainer-killed, engine-killed. `stranger` before
them starts the engine without the probe. A line with a name and a time follows each.
"""
import ctypes
import os
import signal
import subprocess
import sys
import time

BYTES = 64 << 20


class Handle(ctypes.Structure):
    _fields_ = [("content", ctypes.c_byte * 64)]


def load():
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return cuda


def make_weights(cuda):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(BYTES)) == 0
    return address


def open_weights(cuda, handle):
    address = ctypes.c_uint64()
    assert cuda.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 1) == 0
    return address


def use_memory(cuda):
    """A recorded process lasts until its last call."""
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 << 20)) == 0
    assert cuda.cuMemFree_v2(address) == 0


def trainer():
    cuda = load()
    weights = make_weights(cuda)
    handle = Handle()
    assert cuda.cuIpcGetMemHandle(ctypes.byref(handle), weights) == 0
    print(bytes(handle).hex(), flush=True)
    for order in sys.stdin:
        if order == "frees\n":
            assert cuda.cuMemFree_v2(weights) == 0
        use_memory(cuda)
        print("done", flush=True)


def engine():
    cuda = load()
    weights = open_weights(cuda, Handle.from_buffer_copy(bytes.fromhex(sys.stdin.readline())))
    print("opened", flush=True)
    for order in sys.stdin:
        if order == "closes\n":
            assert cuda.cuIpcCloseMemHandle(weights) == 0
        use_memory(cuda)
        print("done", flush=True)


def step(name):
    time.sleep(0.15)  # several samples
    print(name, time.monotonic_ns(), flush=True)
    time.sleep(0.05)


def play(orders):
    peers = {}

    def begin(role, environment):
        peers[role] = subprocess.Popen(
            [sys.executable, __file__, role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def tell(role, order):
        peers[role].stdin.write(order + "\n")
        peers[role].stdin.flush()
        return peers[role].stdout.readline().strip()

    environment = dict(os.environ)
    begin("trainer", environment)
    handle = peers["trainer"].stdout.readline().strip()
    if orders[:1] == ["stranger"]:
        orders = orders[1:]
        environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD" and "VRAMSCOPE_" not in key}
        environment["VRAMSCOPE_FAKE_BOOKS"] = os.environ["VRAMSCOPE_FAKE_BOOKS"]
    begin("engine", environment)
    assert tell("engine", handle) == "opened"
    for role, peer in peers.items():
        print(role, peer.pid)
    step("opened")
    for order in orders:
        role, what = order.split("-")
        if what == "killed":
            peers[role].send_signal(signal.SIGKILL)
            peers.pop(role).wait()
        else:
            assert tell(role, what) == "done"
        for other in peers:
            tell(other, "goes on")
        step(order)
    for role, peer in peers.items():
        tell(role, "goes on")
        peer.stdin.close()
        assert peer.wait() == 0


if __name__ == "__main__":
    {"trainer": trainer, "engine": engine}.get(sys.argv[1], lambda: play(sys.argv[1:]))()
