# SPDX-License-Identifier: Apache-2.0
"""NVML's figure of this process's GPU memory. NVML is loaded and initialised once, on first use."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Dict, List, NamedTuple, Optional

_NOT_AVAILABLE = (1 << 64) - 1
_INSUFFICIENT_SIZE = 7


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class Error(Exception):
    """NVML or one of its functions is missing; the message names it."""


class ProcessBytes(NamedTuple):
    bytes: Optional[int]
    #: Why there is no figure, or how the process was found without its number; empty otherwise.
    remark: str


class DeviceBytes(NamedTuple):
    total: int
    used: int
    free: int


class _Library:
    def __init__(self) -> None:
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise Error(f"NVML is not installed ({error})") from None
        self.call("nvmlInit_v2")
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self.devices: Dict[str, ctypes.c_void_p] = {}
        for index in range(count.value):
            device = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
            text = ctypes.create_string_buffer(96)
            self.call("nvmlDeviceGetUUID", device, text, ctypes.c_uint(len(text)))
            self.devices[bare(text.value.decode("ascii", "replace"))] = device

    def call(self, name: str, *arguments: Any) -> None:
        code = self.code(name, *arguments)
        if code != 0:
            raise Error(f"{name} says {code}")

    def code(self, name: str, *arguments: Any) -> int:
        try:
            function = getattr(self._nvml, name)
        except AttributeError:
            raise Error(f"the driver's NVML has no {name}") from None
        return int(function(*arguments))

    def device(self, uuid: str) -> ctypes.c_void_p:
        try:
            return self.devices[bare(uuid)]
        except KeyError:
            raise Error(f"NVML has no GPU {uuid}") from None


_lock = threading.Lock()
_library: Optional[_Library] = None
_library_pid = 0


def _open() -> _Library:
    global _library, _library_pid
    with _lock:
        # A child of fork cannot use the parent's connection to the driver.
        if _library is None or _library_pid != os.getpid():
            _library, _library_pid = _Library(), os.getpid()
        return _library


def bare(uuid: str) -> str:
    """Adds the prefix GPU-, which NVML has and PyTorch lacks."""
    return uuid.lower().removeprefix("gpu-")


def device_bytes(uuid: str) -> DeviceBytes:
    """Used bytes of the whole GPU, without memory reserved by the firmware."""
    memory = _Memory(version=ctypes.sizeof(_Memory) | (2 << 24))
    library = _open()
    library.call("nvmlDeviceGetMemoryInfo_v2", library.device(uuid), ctypes.byref(memory))
    return DeviceBytes(memory.total, memory.used, memory.free)


def process_bytes(uuid: str, at_least: int = 0) -> ProcessBytes:
    """Used bytes of this process. In containers NVML shows process numbers of another namespace; then `at_least`, a
    lower bound of the figure, identifies the process."""
    try:
        library = _open()
        rows = _processes(library, library.device(uuid))
    except Error as error:
        return ProcessBytes(None, str(error))
    own = _own_numbers()
    for row in rows:
        if row.pid in own:
            if row.used == _NOT_AVAILABLE:
                return ProcessBytes(None, "NVML does not say what single processes use here")
            return ProcessBytes(row.used, "")
    possible = [row for row in rows if row.used != _NOT_AVAILABLE and row.used >= at_least]
    if len(possible) == 1:
        return ProcessBytes(possible[0].used, "the only process of this GPU that NVML lists and that fits")
    if not rows:
        return ProcessBytes(None, "NVML lists no process on this GPU")
    return ProcessBytes(
        None,
        f"NVML lists {len(rows)} processes on this GPU and none by this process's number, as in containers; "
        "start the container with the host's process numbers (docker run --pid=host)",
    )


def _processes(library: _Library, device: ctypes.c_void_p) -> List[_Process]:
    rows: List[_Process] = []
    for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"):
        room = 64
        while True:
            count = ctypes.c_uint(room)
            buffer = (_Process * room)()
            try:
                code = library.code(name, device, ctypes.byref(count), buffer)
            except Error:
                if rows or name.startswith("nvmlDeviceGetMPS"):
                    break
                raise
            if code == _INSUFFICIENT_SIZE and room < 1 << 16:
                room = max(room * 2, count.value + 8)
                continue
            if code != 0:
                if name.startswith("nvmlDeviceGetMPS"):
                    break
                raise Error(f"{name} says {code}")
            rows += list(buffer[: count.value])
            break
    return rows


def _own_numbers() -> List[int]:
    numbers = [os.getpid()]
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("NSpid:"):
                    numbers += [int(word) for word in line.split()[1:]]
    except (OSError, ValueError):
        pass
    return numbers
