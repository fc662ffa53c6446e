# SPDX-License-Identifier: Apache-2.0
"""The probe's C interface, as far as it is loaded in this process."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Optional

from . import _paths

# Loading these before the probe binds their allocation reports elsewhere for good.
_TOO_LATE_AFTER = ("torch",)


class Probe:
    """The functions that libvramscope_probe.so exports for programs."""

    def __init__(self, path: Optional[str]) -> None:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        # What is short keeps the GIL: to give it away and wait for it would take longer.
        short = ctypes.PyDLL(path)

        def bind(
            name: str, result: object, *arguments: object, within: ctypes.CDLL = library
        ) -> ctypes._CFuncPtr:  # type: ignore[name-defined]
            function = getattr(within, name)
            function.restype = result
            function.argtypes = list(arguments)
            return function

        self.start = bind("vramscope_start", None)
        self.stop = bind("vramscope_stop", None)
        self.mark = bind("vramscope_mark", None, ctypes.c_char_p)
        self.scope_push = bind("vramscope_scope_push", None, ctypes.c_char_p, within=short)
        self.scope_pop = bind("vramscope_scope_pop", None, within=short)
        self.tag = bind("vramscope_tag", None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ulong, within=short)
        self._is_recording = bind("vramscope_is_recording", ctypes.c_int)
        self._session_path = bind("vramscope_session_path", ctypes.c_char_p)
        self._dlopen = bind("dlopen", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, within=short)
        self._attach = bind("vramscope_attach", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)

    def is_recording(self) -> bool:
        return bool(self._is_recording())

    def session_path(self) -> Optional[str]:
        """The live directory of the session under way, or None."""
        path = self._session_path()
        return os.fsdecode(path) if path else None

    def look_at_python(self) -> None:
        """Has the probe look at this Python, and at torch if it is there.

        It does so by itself where it stands in front of dlopen and sees torch come; a program that loaded the
        probe later calls another dlopen. So the probe's is asked for a library of torch that does not exist.
        """
        self._dlopen(b"libvramscope_has_no_torch.so", os.RTLD_LAZY | os.RTLD_NOLOAD)

    def attach(self, directory: str, options: str) -> None:
        """Begins a session of this process alone, in an existing directory."""
        code = self._attach(os.fsencode(directory), os.fsencode(options))
        if code != 0:
            raise OSError(abs(code), f"vramscope: cannot record: {os.strerror(abs(code))}", directory)


def _bound(path: Optional[str]) -> Optional[Probe]:
    try:
        return Probe(path)
    except AttributeError:
        return None


# The global scope of the process has the probe's symbols where `vramscope run` put it there.
current: Optional[Probe] = _bound(None)


def load() -> Probe:
    """The probe in this process; loads the packaged one where there is none yet."""
    global current
    if current is None:
        late = [name for name in _TOO_LATE_AFTER if name in sys.modules]
        if late:
            raise RuntimeError(
                f"vramscope: {late[0]} is already imported, so its memory can no longer be recorded; "
                f"call vramscope.record() before the first 'import {late[0]}', "
                "or start the program with 'vramscope run -- COMMAND'"
            )
        current = _bound(os.fspath(_paths.probe()))
        if current is None:
            raise RuntimeError(f"vramscope: {_paths.probe()} is of another version; reinstall vramscope")
    return current
