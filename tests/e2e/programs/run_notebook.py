# SPDX-License-Identifier: Apache-2.0
"""Runs the cells of a notebook in IPython, without a kernel: argv[1]. Prints what each showed, as one JSON list."""
from __future__ import annotations

import contextlib
import io
import json
import sys

from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_line_magic("colors", "NoColor")
shown = []
shell.display_pub.publish = lambda data, metadata=None, **kwargs: shown[-1].append(data)
shell.displayhook.write_format_data = lambda data, metadata=None: shown[-1].append(data)
shell.display_formatter.active_types = ["text/plain", "text/html"]

cells = [cell for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
for cell in cells:
    shown.append([])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = shell.run_cell("".join(cell["source"]))
    shown[-1].append({"text/plain": out.getvalue()})
    if not result.success:
        print(out.getvalue(), file=sys.stderr)
        sys.exit(1)
print(json.dumps(shown))
