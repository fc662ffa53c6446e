# SPDX-License-Identifier: Apache-2.0
"""Builds the oracle: oracle.cc over the allocator of a released PyTorch, without a GPU.

A wheel from PyPI gives libc10_cuda.so and its headers, of which only those are unpacked; the CUDA runtime is
stub_runtime.cc. All goes below one folder and is made once.
"""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
WANTED = re.compile(r"torch/(lib/libc10(_cuda)?\.so|include/(c10|torch/headeronly)/.*)$")


def download(name, folder):
    """The wheel of `name` in `folder`, by pip."""
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.glob("*.whl")):
        platform = ["--python-version", "3.12", "--only-binary=:all:"]
        for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014"):
            platform += ["--platform", f"{tag}_x86_64"]
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", *platform, "-d", folder, name], check=True)
    return next(folder.glob("*.whl"))


def unpack(wheel, pattern, folder):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if pattern.search(name):
                archive.extract(name, folder)


def cuda_headers(work):
    folder = work / "cuda"
    if not folder.exists():
        for name in ("nvidia-cuda-runtime", "nvidia-cuda-crt"):
            wheel = download(name, work / name)
            unpack(wheel, re.compile(r"/include/"), folder)
            wheel.unlink()
    return next(folder.rglob("cuda_runtime_api.h")).parent


def symbols(library, *options):
    text = subprocess.run(["nm", "-D", *options, library], check=True, capture_output=True, text=True).stdout
    return [line.split()[-1] for line in text.splitlines() if line.strip()]


def build_stub(library, folder):
    """The stand-in for libcudart, under the name and version that `library` asks for."""
    needed = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    name = re.search(r"libcudart\.so\.\d+", needed).group()
    source = folder / "stub_runtime.o"
    subprocess.run(["g++", "-std=c++20", "-O2", "-fPIC", "-c", HERE / "stub_runtime.cc", "-o", source], check=True)
    listing = subprocess.run(["nm", "--defined-only", source], check=True, capture_output=True, text=True).stdout
    known = {line.split()[-1] for line in listing.splitlines()}
    wanted = {s.split("@")[0] for s in symbols(library, "--undefined-only") if s.split("@")[0].startswith("cuda")}
    rest = folder / "rest.c"
    rest.write_text("".join(f"int {symbol}(void) {{ return 0; }}\n" for symbol in sorted(wanted - known)), encoding="utf-8")
    versions = folder / "versions.map"
    versions.write_text(f"{name} {{ global: *; }};\n", encoding="utf-8")
    stub = folder / name
    compile_rest = ["gcc", "-fPIC", "-w", "-c", rest, "-o", folder / "rest.o"]
    subprocess.run(compile_rest, check=True)
    link = ["g++", "-shared", source, folder / "rest.o", f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}"]
    subprocess.run([*link, "-o", stub], check=True)
    return stub


def build(version, work):
    """The oracle of that version, below `work`."""
    folder = work / version
    oracle = folder / "oracle"
    sources = (HERE / "oracle.cc", HERE / "stub_runtime.cc")
    if oracle.exists() and all(s.stat().st_mtime < oracle.stat().st_mtime for s in sources):
        return oracle
    lib = folder / "torch" / "lib"
    if not (lib / "libc10_cuda.so").exists():
        wheel = download(f"torch=={version}", work / "wheels" / version)
        unpack(wheel, WANTED, folder)
        wheel.unlink()
    include = folder / "torch" / "include"
    stub = build_stub(lib / "libc10_cuda.so", folder)
    minor = version.split(".")[1]
    flags = ["-std=c++20", "-O1", "-w", f"-DTORCH_MINOR={minor}", f"-I{include}", f"-I{cuda_headers(work)}"]
    # Cheap and enough: what the linker does not find of PyTorch's other libraries is not called.
    link = [lib / "libc10_cuda.so", lib / "libc10.so", stub, f"-Wl,-rpath,{lib}:{folder}", f"-Wl,-rpath-link,{lib}"]
    subprocess.run(["g++", *flags, HERE / "oracle.cc", *link, "-o", oracle], check=True, env=os.environ)
    return oracle
