# SPDX-License-Identifier: Apache-2.0
"""The probe's C interface, as far as it is loaded in this process."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Optional

from . import _paths

# format::PriorKind: what stood when recording began.
PRIOR_SEGMENT, PRIOR_BLOCK, PRIOR_PROCESS = range(3)
NO_DEVICE = -3


class Probe:
    """The functions that libvramscope_probe.so exports for programs."""

    def __init__(self, path: Optional[str]) -> None:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        # What is short keeps the GIL: to give it away and wait for it would take longer. What looks at Python
        # needs it.
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
        # kind, device, address, bytes, name; the one of PRIOR_PROCESS comes first.
        self.prior = bind(
            "vramscope_prior",
            None,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_ulong,
            ctypes.c_ulong,
            ctypes.c_char_p,
            within=short,
        )
        # Ends the session that `attach` began. Its directory can be finished then.
        self.detach = bind("vramscope_detach", None, within=short)
        self._is_recording = bind("vramscope_is_recording", ctypes.c_int)
        self._session_path = bind("vramscope_session_path", ctypes.c_char_p)
        self._look_at_python = bind("vramscope_look_at_python", None, ctypes.c_int, within=short)
        self._attach = bind("vramscope_attach", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)

    def is_recording(self) -> bool:
        return bool(self._is_recording())

    def session_path(self) -> Optional[str]:
        """The live directory of the session under way, or None."""
        path = self._session_path()
        return os.fsdecode(path) if path else None

    def look_at_python(self) -> None:
        """Has the probe look at this Python, and at torch if it is there.

        A preloaded probe does so by itself, since it sees torch come; one that was loaded later may not.
        """
        self._look_at_python("torch" in sys.modules)

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
        current = _bound(os.fspath(_paths.probe()))
        if current is None:
            raise RuntimeError(f"vramscope: {_paths.probe()} is of another version; reinstall vramscope")
    return current
