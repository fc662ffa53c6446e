# SPDX-License-Identifier: Apache-2.0
"""Recording from inside a program."""

from __future__ import annotations

import os
import pathlib
import subprocess
import warnings
from types import TracebackType
from typing import Optional, Type, Union

from . import _paths, _probe

_Path = Union[str, "os.PathLike[str]"]


def start() -> None:
    """Begins, or goes on with, a recording of `vramscope run --start-paused` or of `record`."""
    probe = _probe.current
    if probe is not None:
        probe.start()


def stop() -> None:
    """Pauses the recording. What is live then stays known; `start` goes on."""
    probe = _probe.current
    if probe is not None:
        probe.stop()


def is_recording() -> bool:
    """Whether this process is being recorded at this instant."""
    probe = _probe.current
    return probe is not None and probe.is_recording()


class Recording:
    """A recording of a block of the program; made by `record`."""

    # The probe of a process serves one session: its file stays mapped until the process ends.
    _attached_before: Optional[pathlib.Path] = None

    def __init__(self, path: Optional[_Path], options: str) -> None:
        self._wanted = None if path is None else pathlib.Path(path)
        self._options = options
        self._live: Optional[pathlib.Path] = None
        #: The finished trace, once the block has ended; None where `vramscope run` keeps it.
        self.path: Optional[pathlib.Path] = None

    def __enter__(self) -> "Recording":
        if Recording._attached_before is not None:
            raise RuntimeError(
                f"vramscope: this process was already recorded, into {Recording._attached_before}; "
                "put start() and stop() inside one record(), or use 'vramscope run'"
            )
        probe = _probe.current
        session = probe.session_path() if probe is not None else None
        if session is not None:
            if self._wanted is not None:
                warnings.warn(
                    f"vramscope: this process is already recorded into {session}; "
                    f"{self._wanted} will not be written",
                    RuntimeWarning,
                    stacklevel=2,
                )
            start()
            return self
        if self._wanted is None:
            raise ValueError("vramscope: record() needs a path outside 'vramscope run'")
        probe = _probe.load()
        target = self._wanted.absolute()
        _refuse_foreign(target)
        live = target.with_name(target.name + ".d")
        live.mkdir()
        try:
            probe.attach(os.fspath(live), self._options)
        except OSError:
            live.rmdir()
            raise
        Recording._attached_before = self._wanted
        self._live = live
        probe.start()
        probe.look_at_python()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        stop()
        if self._live is None:
            return
        result = subprocess.run(
            [
                os.fspath(_paths.program()),
                "finish",
                "--no-report",
                f"--stopped-pid={os.getpid()}",
                os.fspath(self._live),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_without_probe(),
            check=False,
        )
        if result.returncode != 0:
            message = result.stderr.decode("utf-8", "replace").strip()
            raise RuntimeError(f"vramscope: {self._live} could not be finished: {message}")
        assert self._wanted is not None
        self.path = self._wanted


def record(
    path: Optional[_Path] = None,
    *,
    cpu: Optional[bool] = None,
    python_stacks: bool = True,
    native_stacks: bool = False,
) -> Recording:
    """Records the block and leaves one finished trace at `path`.

    ::

        import vramscope
        with vramscope.record("train.vram"):
            import torch
            ...

    The block must begin before torch is imported, once in a process. Under ``vramscope run`` the
    block is recorded into the launcher's trace, with the launcher's options, and `path` can be left
    out. `cpu` records CPU tensors; by default it does so where there is no NVIDIA driver.
    """
    if cpu is None:
        cpu = not os.path.exists("/dev/nvidiactl")
    options = {"cpu": cpu, "no-python": not python_stacks, "native": native_stacks}
    return Recording(path, ",".join(name for name, wanted in options.items() if wanted))


def _refuse_foreign(target: pathlib.Path) -> None:
    """An existing trace is replaced; anything else is somebody's file."""
    if not target.exists():
        return
    with target.open("rb") as file:
        if not file.read(4).startswith(b"VRAM"):
            raise FileExistsError(
                f"vramscope: {target} exists and is no vramscope trace; choose another path"
            )


def _without_probe() -> "dict[str, str]":
    """The environment for our own program: nobody wants it recorded."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
