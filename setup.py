# SPDX-License-Identifier: Apache-2.0
"""Puts the command-line program and its libraries into the wheel; everything else is in pyproject.toml.

A plain build runs CMake. Where VRAMSCOPE_PREBUILT names a build directory, its binaries are taken.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1 it lived in the wheel package
    from wheel.bdist_wheel import bdist_wheel

ROOT = pathlib.Path(__file__).resolve().parent
# Libraries in the program, with the Debian packages that have their licences.
LINKED_IN = {
    "CLI11": "libcli11-dev",
    "bzip2": "libbz2-dev",
    "elfutils": "libdw-dev",
    "fmt": "libfmt-dev",
    "libstdc++": "libstdc++6",
    "protozero": "libprotozero-dev",
    "toml++": "libtomlplusplus-dev",
    "xz": "liblzma-dev",
    "zlib": "zlib1g-dev",
    "zstd": "libzstd-dev",
}
# Programs and headers that a build from source needs, with their Debian packages.
NEEDED_PROGRAMS = {"cmake": "cmake", "ninja": "ninja-build", "c++": "g++"}
NEEDED_HEADERS = {
    "zstd.h": "libzstd-dev",
    "elfutils/libdwfl.h": "libdw-dev",
    "zlib.h": "zlib1g-dev",
    "lzma.h": "liblzma-dev",
    "bzlib.h": "libbz2-dev",
    "CLI/CLI.hpp": "libcli11-dev",
    "fmt/core.h": "libfmt-dev",
    "protozero/version.hpp": "libprotozero-dev",
    "toml++/toml.h": "libtomlplusplus-dev",
    "cairo/cairo.h": "libcairo2-dev",
}
BINARIES = ("bin/vramscope", "lib/libvramscope_probe.so", "lib/libvramscope_read.so")

# What PEP 600 lets a manylinux binary need from the machine.
ALLOWED = re.compile(r"^(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)|ld-linux.*)\.so\.\d+$")


def missing():
    """A line for each thing that the build needs and this machine lacks."""
    lines = [
        f"{program} is missing: apt-get install {package}"
        for program, package in NEEDED_PROGRAMS.items()
        if shutil.which(program) is None
    ]
    compiler = shutil.which("c++")
    for header, package in NEEDED_HEADERS.items():
        if not has_header(compiler, header):
            lines.append(f"<{header}> is missing: apt-get install {package}")
    return lines


def has_header(compiler, header):
    """Whether that compiler finds it; without one, whether it is where Debian's compilers look."""
    if compiler is None:
        places = [pathlib.Path(place) for place in ("/usr/local/include", "/usr/include")]
        return any((place / header).exists() for place in [*places, *places[1].glob("*-linux-gnu")])
    asked = f"#if !__has_include(<{header}>)\n#error\n#endif\n"
    found = subprocess.run(
        [compiler, "-std=c++20", "-E", "-x", "c++", "-"], input=asked, text=True, capture_output=True, check=False,
    )
    return found.returncode == 0


def build_directory():
    prebuilt = os.environ.get("VRAMSCOPE_PREBUILT")
    if prebuilt:
        return pathlib.Path(prebuilt)
    lacks = missing()
    if lacks:
        sys.exit("\n".join(f"vramscope: {line}" for line in lacks))
    build = ROOT / "build-wheel"
    subprocess.check_call(
        ["cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release"]
        + ["-DVRAMSCOPE_BUILD_TESTS=OFF", "-DVRAMSCOPE_BUILD_EXAMPLES=OFF"]
        + ["-G", "Ninja"]
    )
    subprocess.check_call(["cmake", "--build", build, "--target", *BINARIES])
    return build


def platform_tag(binaries):
    """manylinux of the newest glibc symbol that the binaries use; linux where they need more."""
    newest = 17
    for binary in binaries:
        dynamic = subprocess.run(
            ["readelf", "--wide", "--dynamic", "--version-info", binary],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        if not all(ALLOWED.match(library) for library in needed):
            return "linux"
        newest = max([newest] + [int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", dynamic)])
    return f"manylinux_2_{newest}"


class BuildPackage(build_py):
    """The Python files, and below vramscope/_native the binaries, headers and data in the layout of an installation."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return  # the package looks in build/
        build = build_directory()
        native = pathlib.Path(self.build_lib) / "vramscope" / "_native"
        for folder in ("include/vramscope", "share/keywords", "share/completions", "share/fleet", "share/grafana", "share/valgrind"):
            shutil.copytree(ROOT / folder, native / folder, dirs_exist_ok=True)
        licences = native / "share" / "licences"
        licences.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / "LICENSE", licences / "vramscope")
        for name, package in LINKED_IN.items():
            text = pathlib.Path("/usr/share/doc") / package / "copyright"
            if text.is_file():
                shutil.copyfile(text, licences / name)
            else:
                print(f"vramscope: no licence of {name} beside the program: {text} is not there", file=sys.stderr)
        manual = native / "share" / "man" / "man1" / "vramscope.1"
        manual.parent.mkdir(parents=True, exist_ok=True)
        with manual.open("w", encoding="utf-8") as file:
            reference = [sys.executable, str(ROOT / "tools" / "reference.py"), "man", str(build / BINARIES[0])]
            subprocess.check_call(reference, stdout=file)
        for name in BINARIES:
            target = native / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(build / name, target)
            # Debug information is nine tenths of the program, and of no use without the sources.
            if shutil.which("strip"):
                subprocess.check_call(["strip", "--strip-unneeded", target])


class Wheel(bdist_wheel):
    """One wheel serves every Python: nothing in it is linked with libpython."""

    def get_tag(self):
        machine = os.uname().machine
        native = pathlib.Path(self.bdist_dir) / "vramscope" / "_native"
        binaries = [native / name for name in BINARIES]
        if not all(binary.is_file() for binary in binaries):
            return "py3", "none", f"linux_{machine}"
        return "py3", "none", f"{platform_tag(binaries)}_{machine}"


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


if sys.platform != "linux":
    sys.exit("vramscope: only Linux is supported")
setup(
    cmdclass={"build_py": BuildPackage, "bdist_wheel": Wheel},
    distclass=BinaryDistribution,
    # setuptools' own default, build/, is CMake's.
    options={"build": {"build_base": "build-wheel/setuptools"}},
)
