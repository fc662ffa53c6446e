# SPDX-License-Identifier: Apache-2.0
"""A recording of this process only: a live directory that becomes one file."""

from __future__ import annotations

import os
import pathlib
import select
import subprocess
import sys
import warnings
from typing import Dict, Optional

from . import _files, _paths, _probe

# Wait at most this long for the process that samples. The recording also begins without it.
_SAMPLER_SECONDS = 3.0


class Session:
    """Makes the live directory and samples NVML into it if there is a GPU."""

    def __init__(self, target: pathlib.Path, options: str, overwrite: bool) -> None:
        #: The file that the recording becomes.
        self.target = target.absolute()
        _files.refuse_existing(self.target, overwrite)
        self.live = self.target.with_name(self.target.name + ".d")
        self._pid = os.getpid()
        self._gate = -1
        self._starter: Optional[subprocess.Popen[bytes]] = None
        try:
            self._made = _files.make_directory(self.live)
        except FileExistsError as error:
            raise FileExistsError(
                f"vramscope: {self.live} is an unfinished recording: choose another path, "
                f"or complete it with `vramscope finish {self.live}`"
            ) from error
        try:
            self._accompany(options)
        except BaseException:
            self.abandon()
            raise

    def finish(self, stacklevel: int) -> bool:
        """Ends the recording and writes the file. Never raises: on failure it warns and returns False.

        Does nothing in a child of fork(): the parent ends its recording.
        """
        if os.getpid() != self._pid:
            return False
        _end()
        try:
            self._finish_directory()
        except Exception as error:
            warn(f"{self.live} could not be finished: {error}", stacklevel + 1)
            return False
        return True

    def _finish_directory(self) -> None:
        result = subprocess.run(
            [
                os.fspath(_paths.program()),
                "finish",
                "--no-report",
                f"--stopped-pid={os.getpid()}",
                os.fspath(self.live),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=without_probe(),
            check=False,
        )
        if result.returncode != 0:
            message = result.stderr.decode("utf-8", "replace").strip()
            raise RuntimeError(message[len("vramscope: ") :] if message.startswith("vramscope: ") else message)

    def drop(self) -> None:
        """Ends the recording and deletes it."""
        _end()
        self.abandon()

    def abandon(self) -> None:
        """Removes a session that recorded nothing."""
        self._close_gate()
        self._close_output()
        _files.remove_directory(self.live, self._made)

    def _accompany(self, options: str) -> None:
        """Starts a process that samples NVML until the recording or this process ends. It is not a child of this one."""
        gate, self._gate = os.pipe()
        try:
            self._starter = subprocess.Popen(
                [
                    os.fspath(_paths.program()),
                    "sidecar",
                    f"--pid={os.getpid()}",
                    *([f"--options={options}"] if options else []),
                    os.fspath(self.live),
                ],
                stdin=gate,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=without_probe(),
                start_new_session=True,
            )
        finally:
            os.close(gate)
        self._starter.wait()
        # It writes a byte when the directory is complete.
        self._await_sampler()

    def sample(self) -> None:
        """Begins to sample. Called when this process records: its memory would otherwise be another process's."""
        self._close_gate()
        # The sampler closes its output after the first samples, or if there are none.
        self._await_sampler()
        self._close_output()

    def _await_sampler(self) -> None:
        stream = self._starter.stdout if self._starter is not None else None
        if stream is None or stream.closed:
            return
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        if poll.poll(_SAMPLER_SECONDS * 1000):
            os.read(stream.fileno(), 1)

    def _close_gate(self) -> None:
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def _close_output(self) -> None:
        if self._starter is not None and self._starter.stdout is not None:
            self._starter.stdout.close()


def warn(message: str, stacklevel: int) -> None:
    """Warns of a failure at the end of a recording, and does not raise even under ``-W error``.

    The program must continue, and must keep its own exception.
    """
    try:
        warnings.warn(f"vramscope: {message}", RuntimeWarning, stacklevel=stacklevel + 1)
    except RuntimeWarning as warning:
        if sys.stderr is not None:
            print(warning, file=sys.stderr)


def _end() -> None:
    probe = _probe.current
    if probe is not None:
        probe.stop()
        probe.detach()


def without_probe() -> Dict[str, str]:
    """The environment for the vramscope program, which must not be recorded."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
