# SPDX-License-Identifier: Apache-2.0
"""This process gives all its device memory back for a while, through the driver's checkpoints."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import time
import warnings
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from . import _paths, _session

# How long to wait before memory that somebody else has is asked for again.
_TRY_AGAIN_SECONDS = 0.5
# What `vramscope yield --timeout` takes.
_LEAST_SECONDS, _MOST_SECONDS = 0.001, 86400
# What `vramscope resume --json` ends with where the device has no room.
_NO_ROOM = 1


class YieldedGpu:
    """The time in which this process has no device memory; made by `yield_gpu`."""

    def __init__(self, timeout: float, unverified: bool) -> None:
        self._timeout = timeout
        self._unverified = unverified
        self._pid = os.getpid()
        self._away = False
        self._collects = False
        #: What was given back, on all devices; 0 where NVML is not there to say.
        self.bytes = 0
        #: How long giving back took; after the block, with taking back added.
        self.seconds = 0.0

    def __enter__(self) -> "YieldedGpu":
        if self._away:
            raise RuntimeError("vramscope: the device memory of this process is given back already")
        flags = [f"--timeout={self._timeout}", *(["--unverified"] if self._unverified else [])]
        # A collection can end CUDA objects, and would wait for the memory that this thread is to take back.
        gc.collect()
        self._collects = gc.isenabled()
        gc.disable()
        try:
            code, said, error = _run(["yield", *flags, str(self._pid)])
            if code != 0:
                raise RuntimeError(error)
        except BaseException:
            self._let_collect()
            raise
        self._away = True
        self.bytes, self.seconds = said["bytes"], said["seconds"]
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        # A child that was forked within the block has no device memory of its own.
        if not self._away or os.getpid() != self._pid:
            return
        try:
            self.seconds += _resume(self._pid)["seconds"]
        finally:
            self._away = False
            self._let_collect()

    def _let_collect(self) -> None:
        if self._collects:
            gc.enable()


def yield_gpu(
    until: Optional[Callable[[], object]] = None, timeout: float = 30, *, unverified: bool = False
) -> YieldedGpu:
    """Gives all device memory of this process back, context included, for a block of the program::

        with vramscope.yield_gpu() as away:
            wait_for_something()          # others have the GPU; away.bytes of it were this process's

        vramscope.yield_gpu(until=wait_for_something)   # the same

    The driver (570 or newer) moves everything to host memory and back to the same addresses, so tensors, streams and
    graphs are what they were. While it is away every CUDA call of every thread waits: the block must make none, nor
    drop CUDA events or streams. What was submitted before may take `timeout` seconds to finish.

    A RuntimeError says why the process goes on with its memory: the driver could not move it all (managed memory,
    memory shared with other processes), the host has no room, the work did not end. What cannot be moved is seen in
    the process's recording (``vramscope run``, `vramscope.start`); without one, `unverified` says that there is none.
    Where somebody else has the memory at the end of the block, it is waited for.
    """
    # Before gigabytes travel.
    if not isinstance(timeout, (int, float)) or not _LEAST_SECONDS <= timeout <= _MOST_SECONDS:
        raise ValueError(
            f"vramscope: timeout is a number of seconds from {_LEAST_SECONDS} to {_MOST_SECONDS}, not {timeout!r}"
        )
    if until is not None and not callable(until):
        raise TypeError(f"vramscope: until is a function to call while the memory is away, not {until!r}")
    away = YieldedGpu(timeout, unverified)
    if until is not None:
        with away:
            until()
    return away


def _resume(pid: int) -> Dict[str, Any]:
    warned = False
    while True:
        code, said, error = _run(["resume", str(pid)])
        if code == 0:
            return said
        if code != _NO_ROOM:
            raise RuntimeError(error)
        if not warned:
            warned = True
            warnings.warn(f"{error}; waiting for it", RuntimeWarning, stacklevel=4)
        try:
            time.sleep(_TRY_AGAIN_SECONDS)
        except BaseException:
            _warn_that_it_is_away(pid)
            raise


def _warn_that_it_is_away(pid: int) -> None:
    warnings.warn(
        "vramscope: interrupted: the device memory of this process is still on the host, and its CUDA calls wait: "
        f"`vramscope resume {pid}` brings it back",
        RuntimeWarning,
        stacklevel=5,
    )


def _run(words: List[str]) -> Tuple[int, Dict[str, Any], str]:
    """Our program acts on this process from outside: its status, what it did, and what it says where it failed."""
    with subprocess.Popen(
        [os.fspath(_paths.program()), words[0], "--of-parent", "--json", *words[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_session.without_probe(),
        start_new_session=True,
    ) as helper:
        try:
            output, errors = helper.communicate()
        except BaseException:
            # Half way is no place to stay: it ends what it began, and undoes it where it can.
            helper.send_signal(signal.SIGINT)
            helper.communicate()
            if words[0] == "yield" and helper.returncode == 0:
                _resume(int(words[-1]))
            if words[0] == "resume" and helper.returncode != 0:
                _warn_that_it_is_away(int(words[-1]))
            raise
    said = json.loads(output) if helper.returncode == 0 else {}
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return helper.returncode, said, lines[-1] if lines else f"vramscope: {words[0]} ended with {helper.returncode}"
