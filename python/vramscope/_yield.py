# SPDX-License-Identifier: Apache-2.0
"""Releases all device memory of this process for a while, by checkpoints of the CUDA driver."""

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

# Wait before retrying while other processes use the memory.
_TRY_AGAIN_SECONDS = 0.5
# The largest value of `vramscope yield --timeout`.
_LEAST_SECONDS, _MOST_SECONDS = 0.001, 86400
# The exit status of `vramscope resume --json` if the device is full.
_NO_ROOM = 1


class YieldedGpu:
    """The time without device memory; made by `yield_gpu`."""

    def __init__(self, timeout: float, unverified: bool) -> None:
        self._timeout = timeout
        self._unverified = unverified
        self._pid = os.getpid()
        self._away = False
        self._collects = False
        #: Released bytes on all devices; 0 without NVML.
        self.bytes = 0
        #: Seconds for releasing the memory; after the block, including the time for restoring it.
        self.seconds = 0.0

    def __enter__(self) -> "YieldedGpu":
        if self._away:
            raise RuntimeError("vramscope: this process has already yielded its device memory")
        flags = [f"--timeout={self._timeout}", *(["--unverified"] if self._unverified else [])]
        # A garbage collection can delete CUDA objects and would wait for the memory that this thread has to restore.
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
        # A child forked within the block has no device memory.
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
    """Releases all device memory of this process, including the CUDA context, during a block::

        with vramscope.yield_gpu() as away:
            wait_for_something()          # other processes can use away.bytes more

        vramscope.yield_gpu(until=wait_for_something)   # the same

    The driver (570 or newer) moves everything to host memory and back to the same addresses, so tensors, streams and
    graphs stay valid. Meanwhile every CUDA call of every thread waits: the block must not call CUDA or delete CUDA
    events or streams. Work submitted before may take up to `timeout` seconds. If other processes use the memory at
    the end of the block, this waits for it.

    A RuntimeError explains why the process keeps its memory: the driver cannot move all of it (managed memory, memory
    shared with other processes), the host memory is too small, or the work did not end in time. Unmovable memory is
    detected from the recording of the process (``vramscope run``, `vramscope.start`). Without a recording, pass
    ``unverified=True`` to try anyway.
    """
    # Check this before moving gigabytes.
    if not isinstance(timeout, (int, float)) or not _LEAST_SECONDS <= timeout <= _MOST_SECONDS:
        raise ValueError(
            f"vramscope: timeout is {timeout!r}: use seconds from {_LEAST_SECONDS} to {_MOST_SECONDS}"
        )
    if until is not None and not callable(until):
        raise TypeError(f"vramscope: until is {until!r}: use a function; it is called while the memory is away")
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
    """Runs the vramscope program on this process; returns its status, its result and its error message."""
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
            # Do not stop half way: let the program finish or undo its work.
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
