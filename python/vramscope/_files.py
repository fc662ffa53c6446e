# SPDX-License-Identifier: Apache-2.0
"""All writing and deleting of files by this package. Files are private to this user.

The rules are those of src/util/owned_file.h: follow no link; an existing file must be a regular file of this user
with one link.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import shutil
import stat
import tempfile
from typing import Optional, TextIO, Tuple, Union

_Path = Union[str, "os.PathLike[str]"]
_MAGIC = b"VRAM"


def _why_not_ours(info: os.stat_result) -> Optional[str]:
    if stat.S_ISLNK(info.st_mode):
        return "is a symbolic link"
    if not stat.S_ISREG(info.st_mode):
        return "is not a regular file"
    if info.st_uid != os.geteuid():
        return "belongs to another user"
    if info.st_nlink != 1:
        return "has several links"
    return None


def open_text(path: _Path, append: bool = False, newline: Optional[str] = None) -> TextIO:
    """Opens a text file for writing, emptied unless `append`. Raises OSError if the file breaks the rules."""
    path = os.fspath(path)
    # O_NONBLOCK: opening a FIFO must not wait for its other end.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags | (os.O_APPEND if append else 0), 0o600)
    try:
        why = _why_not_ours(os.fstat(descriptor))
        if why is not None:
            raise PermissionError(1, f"it {why}", path)
        if not append:
            os.ftruncate(descriptor, 0)
        return open(descriptor, "a" if append else "w", encoding="utf-8", newline=newline)
    except BaseException:
        os.close(descriptor)
        raise


def make_directory(path: pathlib.Path) -> Tuple[int, int]:
    """Makes a new directory; returns the identity that `remove_directory` checks."""
    path.mkdir(0o700)
    path.chmod(0o700)  # the umask may have removed bits
    info = path.lstat()
    return info.st_dev, info.st_ino


def make_directories(path: _Path) -> None:
    """Makes a directory and its missing parents."""
    os.makedirs(path, 0o700, exist_ok=True)


def replace(temporary: _Path, path: _Path) -> None:
    """Renames a complete file, so that readers never see a part of it. Raises OSError if `path` breaks the rules."""
    with contextlib.suppress(FileNotFoundError):
        why = _why_not_ours(os.lstat(path))
        if why is not None:
            raise PermissionError(1, f"it {why}", os.fspath(path))
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_whole(path: pathlib.Path, text: str) -> None:
    """Writes a whole file through a temporary name, which readers of datasets skip."""
    temporary = path.with_name(f"_{secrets.token_hex(8)}.tmp")
    with open_text(temporary) as file:
        file.write(text)
    try:
        replace(temporary, path)
    except BaseException:
        remove_file(temporary)
        raise


def remove_file(path: _Path) -> None:
    """Deletes a file of this user, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        if _why_not_ours(os.lstat(path)) is None:
            os.unlink(path)


def temporary_directory() -> pathlib.Path:
    """A new directory that only this user can enter."""
    return pathlib.Path(tempfile.mkdtemp(prefix="vramscope-"))


def remove_directory(path: pathlib.Path, made: Optional[Tuple[int, int]] = None) -> None:
    """Deletes a directory that this process made, with its content. A directory that replaced it stays."""
    try:
        info = path.lstat()
    except OSError:
        return
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        return
    if made is not None and made != (info.st_dev, info.st_ino):
        return
    # The rename ends the recording in one step, so that nothing reads a part of it.
    aside = path.with_name(f".vramscope-gone-{secrets.token_hex(8)}")
    try:
        path.rename(aside)
    except OSError:
        aside = path
    shutil.rmtree(aside, ignore_errors=True)  # uses descriptors, so it follows no link


def refuse_existing(path: pathlib.Path, overwrite: bool) -> None:
    """Raises unless `path` is free, or is a trace that may be replaced."""
    try:
        info = path.lstat()
    except OSError:
        return
    why = _why_not_ours(info)
    if why is None:
        with path.open("rb") as file:
            if not file.read(4).startswith(_MAGIC):
                why = "is no vramscope trace"
    if why is not None:
        raise FileExistsError(f"vramscope: {path} exists and {why}; choose another path")
    if not overwrite:
        raise FileExistsError(
            f"vramscope: {path} exists and is a recording; choose another path, or use overwrite=True"
        )
