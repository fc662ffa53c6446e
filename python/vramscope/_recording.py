# SPDX-License-Identifier: Apache-2.0
"""Records from inside a program, at any time, also after torch was imported and CUDA initialised."""

from __future__ import annotations

import atexit
import os
import pathlib
import sys
import threading
import warnings
from types import TracebackType
from typing import Optional, Type, Union

from . import _before, _cells, _files, _probe, _session
from ._page import Page

_Path = Union[str, "os.PathLike[str]"]


class _State:
    """The state of start() and stop(). The lock is for threads that call them; recording itself takes no lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # The session of start(). It ends with the interpreter.
        self.session: Optional[_session.Session] = None
        # The session of join_or_begin(), which leaves no file.
        self.private: Optional[_session.Session] = None
        self.exit_registered = False


_state = _State()


def _forget_in_child() -> None:
    # The parent finishes its session. A child's memory is recorded into it until then.
    global _state
    _state = _State()


os.register_at_fork(after_in_child=_forget_in_child)


def start(
    path: Optional[_Path] = None,
    *,
    cpu: Optional[bool] = None,
    python_stacks: bool = True,
    native_stacks: bool = False,
    overwrite: bool = False,
) -> Optional[pathlib.Path]:
    """Records this process from now on; returns the path of the recording.

    The first call begins the recording, `stop` pauses it, a later `start` resumes it. It is finished when the
    interpreter ends. The default path is ``NAME-PID.vram`` in the current directory. An existing recording is
    replaced only with ``overwrite=True``. `cpu` records CPU tensors; by default it is on if there is no NVIDIA
    driver.

    Memory allocated before the first call is included: with its name if it has one, otherwise as one row. Under
    ``vramscope run`` and inside `record`, the running recording resumes, the arguments are ignored and None is
    returned.

    ::

        vramscope.start("train.vram")
    """
    with _state.lock:
        _make_room()
        probe = _probe.current
        if probe is not None and probe.session_path() is not None:
            probe.start()
            probe.look_at_python()
            _cells.watch()
            return _state.session.target if _state.session is not None else None
        if not _state.exit_registered:
            _state.exit_registered = True
            # Registered before the probe's exit function, so it runs after it: the probe notes the interpreter's end.
            atexit.register(_finish_at_exit)
        target = _default_target() if path is None else pathlib.Path(path)
        _state.session = _begin(target, _options(cpu, python_stacks, native_stacks), overwrite)
        return _state.session.target


def stop() -> None:
    """Pauses the recording; `start` resumes it. Live memory stays known."""
    probe = _probe.current
    if probe is not None:
        probe.stop()


def is_recording() -> bool:
    """Whether this process is being recorded now."""
    probe = _probe.current
    return probe is not None and probe.is_recording()


def live_directory() -> Optional[pathlib.Path]:
    """The directory of the current recording, or None. ``vramscope report`` and `read` can read it at any time."""
    probe = _probe.current
    directory = probe.session_path() if probe is not None else None
    return None if directory is None else pathlib.Path(directory)


def join_or_begin() -> pathlib.Path:
    """The live directory of the current recording. If there is none, begins one that leaves no file.

    A later `start` or `record` replaces that one.
    """
    with _state.lock:
        live = live_directory()
        if live is None:
            directory = _files.temporary_directory()
            atexit.register(_remove, directory, os.getpid())
            _state.private = _begin(directory / "recording.vram", _options(None, True, False), False)
            live = _state.private.live
        return live


def _remove(directory: pathlib.Path, pid: int) -> None:
    if os.getpid() == pid:  # a child of fork() inherits the exit functions
        _files.remove_directory(directory)


def _make_room() -> None:
    session, _state.private = _state.private, None
    if session is not None:
        session.drop()


class Recording:
    """A recording of a block, made by `record`. After the block a notebook shows its page.

    ``path`` is the finished file, or None if the block is part of another recording. ``unfinished`` is the directory
    to pass to ``vramscope finish`` if the recording could not be finished, otherwise None.
    """

    def __init__(self, path: Optional[_Path], options: str, overwrite: bool) -> None:
        self._wanted = None if path is None else pathlib.Path(path)
        self._options = options
        self._overwrite = overwrite
        self._session: Optional[_session.Session] = None
        self._went_on = False
        #: The finished trace, after the block; None if the block is part of another recording.
        self.path: Optional[pathlib.Path] = None
        #: If the recording could not be finished: the directory to pass to ``vramscope finish``.
        self.unfinished: Optional[pathlib.Path] = None

    def __enter__(self) -> "Recording":
        with _state.lock:
            _make_room()
            probe = _probe.current
            under_way = probe.session_path() if probe is not None else None
            if under_way is not None:
                if self._wanted is not None:
                    warnings.warn(
                        f"vramscope: this process is already recorded into {under_way}; "
                        f"{self._wanted} will not be written",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                self._went_on = is_recording()
                start()
                return self
            if self._wanted is None:
                raise ValueError("vramscope: record() needs a path, except under `vramscope run`")
            self._session = _begin(self._wanted, self._options, self._overwrite)
            return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._session is None:
            if not self._went_on:
                stop()
            return
        with _state.lock:
            session, self._session = self._session, None
            if session.finish(stacklevel=2):
                self.path = self._wanted
            else:
                self.unfinished = session.live

    def __repr__(self) -> str:
        if self.path is not None:
            return f"<vramscope recording {self.path}>"
        if self._session is not None:
            return f"<vramscope recording, running, into {self._session.live}>"
        return f"<vramscope recording without a file of its own: {self._wanted or 'no path was given'}>"

    def _repr_html_(self) -> Optional[str]:
        # None: the notebook falls back to repr().
        return Page(self.path)._repr_html_() if self.path is not None and self.path.exists() else None


def record(
    path: Optional[_Path] = None,
    *,
    cpu: Optional[bool] = None,
    python_stacks: bool = True,
    native_stacks: bool = False,
    overwrite: bool = False,
) -> Recording:
    """Records a block into the file `path`, at any time and any number of times.

    ::

        import vramscope
        with vramscope.record("train.vram"):
            ...

    `cpu` records CPU tensors; by default it is on if there is no NVIDIA driver. CPU tensors from before the block are
    counted only if they have a name, such as parameters. An existing recording is replaced only with
    ``overwrite=True``. Under ``vramscope run`` the block is part of the launcher's recording and `path` can be
    omitted; after `start` it is part of that recording.

    The end of the block never raises. If the recording cannot be finished (disk full, a forked child still records),
    it warns and leaves a directory for ``vramscope finish``.
    """
    return Recording(path, _options(cpu, python_stacks, native_stacks), overwrite)


def _options(cpu: Optional[bool], python_stacks: bool, native_stacks: bool) -> str:
    if cpu is None:
        cpu = not os.path.exists("/dev/nvidiactl")
    options = {"cpu": cpu, "no-python": not python_stacks, "native": native_stacks}
    return ",".join(name for name, wanted in options.items() if wanted)


def _begin(target: pathlib.Path, options: str, overwrite: bool) -> _session.Session:
    probe = _probe.load()
    session = _session.Session(target, options, overwrite)
    try:
        probe.attach(os.fspath(session.live), options)
        _before.note(probe)
        probe.look_at_python()
        session.sample()
    except BaseException:
        session.drop()
        raise
    _cells.watch()
    return session


def _default_target() -> pathlib.Path:
    script = pathlib.Path(sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c") else "python").stem
    name = "notebook" if script == "ipykernel_launcher" else script
    target = pathlib.Path(f"{name}-{os.getpid()}.vram").absolute()
    if os.access(target.parent, os.W_OK | os.X_OK):
        return target
    # A private directory: names in a shared one can be guessed and taken.
    elsewhere = _files.temporary_directory() / target.name
    warnings.warn(
        f"vramscope: {target.parent} cannot be written: the recording is {elsewhere}", RuntimeWarning, stacklevel=3
    )
    return elsewhere


def _finish_at_exit() -> None:
    session, _state.session = _state.session, None
    if session is None:
        return
    session.finish(stacklevel=1)
