# SPDX-License-Identifier: Apache-2.0
"""vramscope: tells where GPU memory goes, every byte, by name, at any instant.

Under ``vramscope run`` nothing here is needed. The functions serve programs that want to name an
instant (`mark`), to record only a part of themselves (`start`, `stop`), or to record without the
launcher (`record`). Without a probe in the process, `mark`, `start` and `stop` do nothing, so they
can stay in a program for good.
"""

from __future__ import annotations

from ._recording import Recording, is_recording, mark, record, start, stop
from ._version import __version__

__all__ = ["Recording", "__version__", "is_recording", "mark", "record", "start", "stop"]
