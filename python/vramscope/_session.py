# SPDX-License-Identifier: Apache-2.0
"""A recording of this process only: a live directory that becomes one file."""

from __future__ import annotations

import os
import pathlib
import select
import subprocess
import sys
import warnings
from typing import Dict

from . import _files, _paths, _probe

# Wait at most this long for the first NVML samples. The recording also begins without them.
_FIRST_SAMPLES_SECONDS = 3.0


class Session:
    """Makes the live directory and samples NVML into it if there is a GPU."""

    def __init__(self, target: pathlib.Path, options: str, overwrite: bool) -> None:
        #: The file that the recording becomes.
        self.target = target.absolute()
        _files.refuse_existing(self.target, overwrite)
        self.live = self.target.with_name(self.target.name + ".d")
        self._pid = os.getpid()
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
        _files.remove_directory(self.live, self._made)

    def _accompany(self, options: str) -> None:
        """Starts a process that samples NVML until the recording or this process ends. It is not a child of this one."""
        with subprocess.Popen(
            [
                os.fspath(_paths.program()),
                "sidecar",
                f"--pid={os.getpid()}",
                *([f"--options={options}"] if options else []),
                os.fspath(self.live),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=without_probe(),
            start_new_session=True,
        ) as starter:
            assert starter.stdout is not None
            poll = select.poll()
            poll.register(starter.stdout)
            # The sampler closes its output after the first samples, or if there are none.
            poll.poll(_FIRST_SAMPLES_SECONDS * 1000)


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
