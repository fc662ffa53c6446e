# SPDX-License-Identifier: Apache-2.0
"""What ``vramscope attach`` runs in a program, from outside. See src/record/attach/python_script.cc.

The program has not imported vramscope: this module and those it imports are loaded under a name of their own.
"""

from __future__ import annotations

from . import _before, _probe


def begin(library: str, directory: str, options: str) -> None:
    """Records this process into `directory`, a live directory, from now on."""
    probe = _probe.load(library)
    probe.attach(directory, options)
    _before.note(probe)
    probe.look_at_python()


def end() -> None:
    """Ends that recording. The hooks stay, and do nothing."""
    if _probe.current is not None:
        _probe.current.stop()
        _probe.current.detach()
