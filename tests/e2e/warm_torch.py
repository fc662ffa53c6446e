# SPDX-License-Identifier: Apache-2.0
"""Programs that use torch, without waiting for `import torch` each time: a process that has imported it, with modules
of vramscope or what else is asked for, forks for each of them."""
from __future__ import annotations

import atexit
import importlib
import json
import os
import subprocess
import sys
import traceback
import types
from pathlib import Path

# What the first optimizer, fake tensor or checkpoint of a program imports.
SLOW = ("torch._dynamo", "torch._subclasses.fake_tensor", "torch.utils.checkpoint")


class Warm:
    """One process of them; `run` is like `subprocess.run` of a program that is `code`."""

    def __init__(
        self,
        environment: dict[str, str],
        directory: Path,
        imports: tuple[str, ...] = (*SLOW, "vramscope._courtesy", "vramscope._mem_reporter"),
    ) -> None:
        self._directory = directory
        self._number = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__, *imports],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )

    def run(self, code: str, directory: Path | None = None) -> subprocess.CompletedProcess:
        """In `directory`, or in a new one."""
        if directory is None:
            self._number += 1
            directory = self._directory / str(self._number)
            directory.mkdir()
        path = directory / "program.py"
        path.write_text(code)
        self._process.stdin.write(json.dumps(str(path)) + "\n")
        self._process.stdin.flush()
        status = json.loads(self._process.stdout.readline())
        output, errors = ((directory / name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess([str(path)], status, output, errors)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)


def _child(path: Path) -> None:
    os.chdir(path.parent)
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644)
        os.dup2(file, number)
        os.close(file)
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    sys.modules["__main__"] = main
    status = 0
    try:
        exec(compile(path.read_text(), str(path), "exec"), main.__dict__)
    except SystemExit as error:
        status = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _serve() -> None:
    import torch

    for name in sys.argv[1:]:
        importlib.import_module(name)
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        path = Path(json.loads(line))
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            _child(path)
        answers.write(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) + "\n")
        answers.flush()
    os._exit(0)


if __name__ == "__main__":
    _serve()
