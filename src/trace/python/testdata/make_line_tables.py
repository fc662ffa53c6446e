#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the interpreter that runs it says about the lines of real code objects.

One file a table format: `python3.9 make_line_tables.py > lines_3.9.txt`, likewise 3.10, 3.11, 3.13.

    k KIND                  LineTableKind of format/enums.h
    c FIRST_LINE TABLE      a code object, its table in hexadecimal
    r END LINE              bytecode up to END stands on LINE; 0: on none
"""

import ctypes
import dataclasses
import sys
import textwrap
import types

LARGE = "def large(x):\n  try:\n" + "".join(
    f"    x = x + {i}; x = [\n" + "\n" * (i * 37 % 300) + "      x,\n x]\n" for i in range(40)
) + "  finally:\n    del x\n"


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def main():
    addr2line = ctypes.pythonapi.PyCode_Addr2Line
    addr2line.argtypes = [ctypes.py_object, ctypes.c_int]
    addr2line.restype = ctypes.c_int
    kind = 3 if sys.version_info >= (3, 11) else 2 if sys.version_info >= (3, 10) else 1
    print("k", kind)
    for module in (dataclasses, textwrap, LARGE):
        source = module if isinstance(module, str) else open(module.__file__, encoding="utf-8").read()
        for code in code_objects(compile(source, "x.py", "exec")):
            table = code.co_lnotab if kind == 1 else code.co_linetable
            print("c", code.co_firstlineno, table.hex() or "-")
            lines = [max(addr2line(code, offset), 0) for offset in range(0, len(code.co_code), 2)]
            for i, line in enumerate(lines):
                if i + 1 == len(lines) or lines[i + 1] != line:
                    print("r", 2 * (i + 1), line)


main()
