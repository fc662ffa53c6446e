#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every memory-related entry point of the CUDA driver is hooked or ignored with a reason.

usage: check_cuda_coverage.py [CUDA_H]

Compares src/probe/hooks/cuda/cuda_hooks.def with tools/cuda_memory_entry_points.txt, always, and with
cuda.h, where there is one: all versions and per-thread twins of every listed function must be listed,
and so must whatever is new and sounds like memory.
"""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEF = ROOT / "src/probe/hooks/cuda/cuda_hooks.def"
NAMES = ROOT / "tools/cuda_memory_entry_points.txt"

# What sounds like memory in cuda.h ...
MEMORY = re.compile(
    r"^cu(Mem|Array(Create|3DCreate|Destroy)|MipmappedArray(Create|Destroy)|Multicast|Ipc\w*Mem|\w*ExternalMemory"
    r"|Ctx(Create|Destroy|Attach|Detach|SetLimit|Synchronize|\w*PeerAccess|SetCurrent|PushCurrent|FromGreen)"
    r"|DevicePrimaryCtx(Retain|Release|Reset)|GreenCtx(Create|Destroy|StreamCreate)"
    r"|Module(Load|Unload|Get(Function|Global)(_|$))|Library(Load|Unload|Get(Kernel|Module|Global|Managed|Unified))"
    r"|Kernel(GetFunction)|Func(Load|[GS]etAttribute)|Launch(?!HostFunc)"
    r"|Graph(Instantiate|Upload|Launch|Exec(Update|Destroy)|AddMem(Alloc|Free))|DeviceGraphMem"
    r"|Stream(Create|Destroy|BeginCapture|EndCapture|Synchronize)|EventSynchronize|GetProcAddress|Init$)"
)
# ... and is not.
HARMLESS = re.compile(
    r"^cuMem(cpy|set|HostGet|GetAccess|PoolGetAccess|RangeGet|BatchDecompress|AllocNode)|^cuMulticastGet|^cuLaunchHost"
    r"|^cuMipmappedArrayGet|^cuModuleGetFunctionCount|^cuLibraryGetKernelCount"
)


def listed() -> dict[str, str]:
    """Names in the .def, with HOOK, CALL or IGNORE."""
    text = re.sub(r"^\s*#.*$|//.*$", "", DEF.read_text().replace("\\\n", ""), flags=re.M)
    text = re.sub(r"VRAMSCOPE_CUDA_HOOKS\((\w+), (\w+),", r"VRAMSCOPE_CUDA_HOOK(\1, -)\nVRAMSCOPE_CUDA_HOOK(\2,", text)
    found: dict[str, str] = {}
    for kind, name, rest in re.findall(r"VRAMSCOPE_CUDA_(HOOK|CALL|IGNORE)\(\s*(\w+),\s*([^;]*?)\)\s*(?=VRAMSCOPE|$)", text):
        if name in found:
            sys.exit(f"{DEF.relative_to(ROOT)}: {name} is listed twice")
        if kind == "IGNORE" and len(rest.strip().strip('"')) < 5:
            sys.exit(f"{DEF.relative_to(ROOT)}: {name} is ignored without a reason")
        found[name] = kind
    return found


def find_header(arguments: list[str]) -> Path | None:
    places = arguments or [
        os.path.join(os.environ[variable], "include/cuda.h") for variable in ("CUDA_HOME", "CUDA_PATH") if variable in os.environ
    ] + ["/usr/local/cuda/include/cuda.h"]
    return next((Path(place) for place in places if Path(place).is_file()), None)


def declared(header: Path) -> set[str]:
    """All functions that cuda.h declares, under the names that the driver exports."""
    compiler = shutil.which("g++") or shutil.which("c++") or sys.exit("no C++ compiler to preprocess cuda.h with")
    source = f'#define __CUDA_API_VERSION_INTERNAL\n#include "{header}"\n'
    done = subprocess.run([compiler, "-E", "-P", "-x", "c++", "-"], input=source, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{header}: {done.stderr.strip().splitlines()[0]}")
    return set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", done.stdout))


def base(name: str) -> str:
    return re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", name)


def main() -> int:
    known = listed()
    missing = {name: f"in {NAMES.relative_to(ROOT)}" for name in NAMES.read_text().split() if name not in known}
    header = find_header(sys.argv[1:])
    if header is None:
        print("cuda coverage: no cuda.h here, compared with the list of names only")
    else:
        # Versions and twins matter for what is wrapped: another version would go by unseen.
        bases = {base(name) for name, kind in known.items() if kind == "HOOK"}
        for name in sorted(declared(header) - set(known)):
            if base(name) in bases or (MEMORY.match(name) and not HARMLESS.match(name)):
                missing[name] = f"in {header}"
    for name, where in sorted(missing.items()):
        print(f"{DEF.relative_to(ROOT)}: {name} ({where}) is neither hooked nor ignored with a reason", file=sys.stderr)
    if not missing:
        hooks = sum(kind == "HOOK" for kind in known.values())
        print(f"cuda coverage: {hooks} entry points hooked, {len(known) - hooks} known besides")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
