#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that files are written, renamed and deleted by one module a language.

src/util/owned_file.h has the rule: only what this run made or what is provably ours, named relative to an open
directory, without following links. Whatever else opens for writing would be outside of it. The probe has a module of
its own, src/probe/sink/live_file.cc, which makes files with O_CREAT | O_EXCL. Nor is there a fixed name in a folder that
all users share.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

MODULES = ("src/util/owned_file.cc", "python/vramscope/_files.py")
NOT_CHECKED = re.compile(r"^src/probe/|_test\.cc$|_bench\.cc$|/testing/|_fixture\.(cc|h)$")

# Allowed exceptions: (file, what): reason.
ALLOWED = {
    ("src/cli/main.cc", "O_RDWR"): "/dev/null takes the place of a closed standard stream",
    ("src/top/follower.cc", "ftruncate"): "of a file in memory that it has made",
    ("src/tables/writer.cc", "ftruncate"): "of the descriptor that it was given, to write again",
    ("src/cli/record/cmd_internal.cc", "O_RDWR"): "whether the descriptor that it was given is open for both",
    ("src/cli/cmd_open.cc", "O_RDWR"): "/dev/null takes the place of the browser's streams",
    ("src/top/attachments.cc", "O_RDWR"): "/dev/null takes the place of streams of `attach`",
    ("src/cli/record/cmd_internal.cc", "O_WRONLY"): "/dev/null takes the place of the standard output",
    ("python/vramscope/fleet/engines.py", "open"): "/dev/null takes the place of the standard error of Spark's JVM",
    ("src/checkpoint/state_file.h", "/tmp"): "the folder of a directory of a random name",
    ("src/checkpoint/state_file.h", "/dev/shm"): "the folder of a directory of a random name",
    ("src/cli/cmd_doctor.cc", "temp_directory_path"): "the folder of a directory of a random name",
    ("src/record/attach/shared_folder.cc", "/tmp"): "the folder of a directory of a random name",
    ("src/record/attach/shared_folder.cc", "/var/tmp"): "the folder of a directory of a random name",
    ("src/record/attach/shared_folder.cc", "/dev/shm"): "the folder of a directory of a random name",
    ("src/record/attach/shared_folder.cc", "temp_directory_path"): "the folder of a directory of a random name",
    ("src/record/environment.cc", "/tmp"): "the folder of a directory of a random name",
    ("src/record/recording_place.cc", "temp_directory_path"): "the folder of a directory of a random name",
}

# Folders that all users share: another can take any name there that can be foreseen.
SHARED = re.compile(r"[\"'](/(?:var/)?tmp|/dev/shm)\b|\b(temp_directory_path|gettempdir)\b")

CPP = re.compile(
    r"\b(O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE|creat|ofstream|fstream(?!>)|freopen"
    r"|rename(?:at2?)?|unlink(?:at)?|remove(?:_all)?|rmdir|mkdir(?:at)?|mkstemp|mkostemp|mkdtemp|tmpfile|tempnam|tmpnam"
    r"|mkfifo|mknod|symlink(?:at)?|link(?:at)?|f?truncate|(?:posix_)?fallocate|f?chmod(?:at)?|[fl]?chown(?:at)?"
    r"|create_director(?:y|ies)|create_(?:hard_link|symlink|directory_symlink)|copy(?:_file|_symlink)|resize_file)\b"
)
# Functions of those names count where they are called; a method of that name (vector, path) is another's.
CALLED = re.compile(r"(?<![.>\w])(?:(?:std::)?(?:filesystem|fs)?::)?%s\s*\(")
FLAG = re.compile(r"^(O_\w+|ofstream|fstream)$")
FOPEN = re.compile(r"\bf(?:d)?open\s*\([^;]*,\s*\"(?:[wa]|r[be]*\+)")
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include.*$", re.MULTILINE)

PYTHON = re.compile(
    r"\bopen\s*\([^)]*[\"'](?:[wax]b?\+?|r\+b?)[\"']|\bos\.(?:open|mkdir|makedirs|rename|replace|renames|unlink|remove"
    r"|rmdir|removedirs|truncate|link|symlink|mkfifo|chmod|chown)\b|\bshutil\.(?:rmtree|copy\w*|move)\b"
    r"|\.(?:write_text|write_bytes|mkdir|touch|unlink|rmdir|symlink_to|hardlink_to|chmod)\s*\(|\btempfile\.(?:mk\w+|\w*TemporaryFile|TemporaryDirectory)"
    r"|\b_io\.open\b"
)


def without_comments_and_strings(text):
    """The same lines, with what is not code blanked; mode strings of fopen stay."""
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"/\*.*?\*/", lambda found: "\n" * found.group().count("\n"), text, flags=re.DOTALL)


def lines_of_cpp(text):
    text = without_comments_and_strings(INCLUDE.sub("", text))
    for found in FOPEN.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, "fopen"
    for found in SHARED.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found.group(1) or found.group(2)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    for found in CPP.finditer(text):
        word = found.group(1)
        if not FLAG.match(word):
            call = re.compile(CALLED.pattern % re.escape(word))
            begin = max(0, found.start() - 24)
            if not any(match.end() > found.end() for match in call.finditer(text, begin, found.end() + 8)):
                continue
        yield text.count("\n", 0, found.start()) + 1, word


def lines_of_python(text):
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("  # ")[0]
        if found := PYTHON.search(code):
            yield number, found.group().split("(")[0].strip(" .")
        if found := SHARED.search(code):
            yield number, found.group(1) or found.group(2)


def check(root):
    errors, used = [], set()
    for path in sorted([*root.glob("src/**/*.cc"), *root.glob("src/**/*.h"), *root.glob("python/vramscope/**/*.py")]):
        name = path.relative_to(root).as_posix()
        if name in MODULES or NOT_CHECKED.search(name):
            continue
        text = path.read_text(encoding="utf-8")
        for line, what in lines_of_python(text) if path.suffix == ".py" else lines_of_cpp(text):
            if (name, what) in ALLOWED:
                used.add((name, what))
                continue
            errors.append(f"{name}:{line}: {what}: files are written by {' and '.join(MODULES)} alone")
    errors += [f"tools/check_writes.py: {name} has no {what} any more" for name, what in ALLOWED.keys() - used]
    return errors


def self_test():
    """Each of these must be found, and nothing of the rest."""
    bad = [
        "int fd = open(path, O_WRONLY);", "openat(d, n, O_RDWR | O_CREAT, 0600);", 'FILE* f = fopen(p, "w");',
        'fopen(p.c_str(), "ab")', "std::ofstream out(path);", "rename(a, b);", "::unlink(p);", "fs::remove_all(x, e);",
        "std::filesystem::create_directories(x);", "fallocate(fd, 3, 0, n);", "if (mkdir(p, 0700) != 0)",
        "ftruncate(fd, 0)", 'fmt::format("/tmp/vramscope-{}", geteuid())', "fs::temp_directory_path(error)",
    ]
    good = [
        'fopen(p, "re")', "open(p, O_RDONLY | O_CLOEXEC)", "std::remove_if(a, b, c);", "path.remove_prefix(2);",
        "list.remove(x);", "// rename(a, b)", "std::ifstream in(path);", "std::replace(a, b, c, d);", "fdopendir(fd)",
    ]
    for text in bad:
        assert list(lines_of_cpp(text)), f"not found: {text}"
    for text in good:
        assert not list(lines_of_cpp(text)), f"found: {text}"
    for text in ['open(path, "w")', "open(p, 'ab')", "shutil.rmtree(x)", "self.live.mkdir()", "os.replace(a, b)"]:
        assert list(lines_of_python(text)), f"not found: {text}"
    for text in ["open(path)", 'open("/proc/self/x", encoding="ascii")', "name.replace(a, b)", "frame.remove(x)"]:
        assert not list(lines_of_python(text)), f"found: {text}"


def main():
    self_test()
    errors = check(ROOT)
    for error in errors:
        print(error, file=sys.stderr)
    if not errors:
        print("writes: only in " + ", ".join(MODULES))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
