# SPDX-License-Identifier: Apache-2.0
"""What ``vramscope attach`` runs in a program, from outside. See src/record/attach/python_script.cc.

The program has not imported vramscope: this module and those it imports are loaded under a name of their own.
"""

from __future__ import annotations

import sys

from . import _before, _probe


def begin(library: str, directory: str, options: str) -> None:
    """Records this process into `directory`, a live directory, from now on."""
    probe = _probe.load(library)
    # Where the program uses the package, its marks, scopes and tags count from now on.
    own = sys.modules.get("vramscope._probe")
    if own is not None:
        own.load(library)
    probe.attach(directory, options)
    try:
        _before.note(probe)
        probe.look_at_python()
    except BaseException:
        end()  # `attach` deletes the directory
        raise


def end() -> None:
    """Ends that recording. The hooks stay, and do nothing."""
    if _probe.current is not None:
        _probe.current.stop()
        _probe.current.detach()


def holders(path: str, groups: str, seconds: str, with_cpu: str) -> None:
    """Writes what keeps the tensors of this process alive to `path`. Between begin() and end()."""
    from . import _holders  # it imports more of Python than the others need

    assert _probe.current is not None
    _holders.write(_probe.current, path, int(groups), float(seconds), with_cpu == "1")
