# SPDX-License-Identifier: Apache-2.0
"""The C interface of the probe, if it is loaded in this process."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Optional

from . import _paths

# format::PriorKind: memory allocated before recording.
PRIOR_SEGMENT, PRIOR_BLOCK, PRIOR_PROCESS = range(3)
NO_DEVICE = -3


class Probe:
    """The functions that libvramscope_probe.so exports for programs."""

    def __init__(self, path: Optional[str]) -> None:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        # Short functions keep the GIL: releasing it and waiting for it would take longer. Functions that access Python
        # objects need it.
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
        self.before_mark = bind("vramscope_before_mark", None, within=short)
        self.scope_push = bind("vramscope_scope_push", None, ctypes.c_char_p, within=short)
        self.scope_pop = bind("vramscope_scope_pop", None, within=short)
        self.tag = bind("vramscope_tag", None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_ulong, within=short)
        # Arguments: kind, device, address, bytes, name. PRIOR_PROCESS comes first.
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
        # Ends the session that `attach` began. Afterwards its directory can be finished.
        self.detach = bind("vramscope_detach", None, within=short)
        # For _holders.py: src/probe/hooks/torch/holders.h.
        self.find_holders = bind("vramscope_find_holders", ctypes.py_object, ctypes.py_object, within=short)
        self.bytes_of_holder = bind("vramscope_bytes_of_holder", ctypes.c_long, ctypes.c_uint)
        self.forget_holders = bind("vramscope_forget_holders", None)
        self._is_recording = bind("vramscope_is_recording", ctypes.c_int)
        self._session_path = bind("vramscope_session_path", ctypes.c_char_p)
        self._look_at_python = bind("vramscope_look_at_python", None, ctypes.c_int, within=short)
        self._attach = bind("vramscope_attach", ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)

    def is_recording(self) -> bool:
        return bool(self._is_recording())

    def session_path(self) -> Optional[str]:
        """The live directory of the current session, or None."""
        path = self._session_path()
        return os.fsdecode(path) if path else None

    def look_at_python(self) -> None:
        """Makes the probe find this Python, and torch if it is imported.

        A preloaded probe sees torch being loaded. A probe that is loaded later may need this call.
        """
        self._look_at_python("torch" in sys.modules)

    def attach(self, directory: str, options: str) -> None:
        """Begins a session for this process only, in an existing directory."""
        code = self._attach(os.fsencode(directory), os.fsencode(options))
        if code != 0:
            raise OSError(abs(code), f"vramscope: cannot record: {os.strerror(abs(code))}", directory)


def _bound(path: Optional[str]) -> Optional[Probe]:
    try:
        return Probe(path)
    except AttributeError:
        return None


# `vramscope run` preloads the probe, so its symbols are global.
current: Optional[Probe] = _bound(None)


def load(path: Optional[str] = None) -> Probe:
    """The probe of this process. Loads the one at `path`, by default the packaged one, if necessary."""
    global current
    if current is None:
        path = path or os.fspath(_paths.probe())
        current = _bound(path)
        if current is None:
            raise RuntimeError(f"vramscope: {path} has another version; reinstall vramscope")
    return current
