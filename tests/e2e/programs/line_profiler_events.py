# SPDX-License-Identifier: Apache-2.0
"""The line profiler on this interpreter, without PyTorch: which line gets what. Ends with `ok`."""
from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import os
import sys
import threading
import warnings

sys.path.insert(0, sys.argv[1])
import stand_in_torch
from stand_in_torch import Block

from vramscope import _line_tracer
from vramscope._line_profiler import LineProfiler, clear_global_line_profiler, profile_every, set_target_gpu

KIB = 1 << 10
PEAK, ALLOCATED = "allocated_bytes.all.peak", "allocated_bytes.all.allocated"
ALL = (PEAK, ALLOCATED, "hits", "net", "gross", "growth")


def figures(profiler, function, device=None, columns=ALL):
    """By code of a line, without blanks around: its values in KiB (hits: as they are)."""
    found = {}
    for entry in profiler.display(function, columns).to_dict()["functions"]:
        if device is not None and entry["device"] != device:
            continue
        for line in entry["lines"]:
            found[line["code"].strip()] = tuple(
                value if value is None or name == "hits" else value / KIB
                for name, value in ((name, line[name]) for name in columns)
            )
    return found


def check(found, **expected):
    for code, value in expected.items():
        assert found[code] == value, (code, found[code], value)


def inner():
    a = Block(8 * KIB)
    del a
    return Block(4 * KIB)


def outer():
    kept = Block(1 * KIB)
    got = inner()
    del kept
    return got


def nested_calls():
    before = Block(16 * KIB)
    with LineProfiler(outer, inner) as profiler:
        result = outer()
        outside = Block(64 * KIB)
    del result, outside, before
    found = figures(profiler, outer)
    assert found["def outer():"] == (16, 0, 1, 0, 0, 0), found
    assert found["kept = Block(1 * KIB)"] == (17, 1, 1, 1, 1, 0), found
    assert found["got = inner()"] == (25, 12, 1, 4, 12, 4), found
    assert found["del kept"] == (21, 0, 1, -1, 0, 0), found
    found = figures(profiler, "inner")
    assert found["a = Block(8 * KIB)"] == (25, 8, 1, 8, 8, 0), found
    assert found["return Block(4 * KIB)"] == (21, 4, 1, 4, 4, 4), found
    assert "Peak 25.00K in line" in str(profiler.display(inner))


def several_profilers_and_devices():
    def work():
        a = Block(4 * KIB, 0)
        b = Block(8 * KIB, 1)
        return a, b

    first = LineProfiler(work, target_gpu=[0, "cuda:1"])
    second = LineProfiler(work, target_gpu=1)
    with first:
        work()
        with second:
            work()
        assert second.enabled is False
        work()
    assert figures(first, work, "cuda:0")["a = Block(4 * KIB, 0)"] == (4, 4, 3, 12, 12, 4)
    assert figures(first, work, "cuda:1")["b = Block(8 * KIB, 1)"] == (8, 8, 3, 24, 24, 8)
    found = figures(second, work)
    assert found["a = Block(4 * KIB, 0)"] == (0, 0, 1, 0, 0, 0), found
    assert found["b = Block(8 * KIB, 1)"] == (8, 8, 1, 8, 8, 8), found
    assert "## " in str(first.display()) and " on cuda:1" in str(first.display())


def recursion():
    def down(n):
        held = Block(KIB)
        if n:
            down(n - 1)
        return held.size

    with LineProfiler(down) as profiler:
        down(9)
    found = figures(profiler, down)
    assert found["held = Block(KIB)"] == (10, 1, 10, 10, 10, 1), found
    assert found["down(n - 1)"] == (10, 9, 9, 0, 45, 0), found
    with LineProfiler(down) as profiler:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(8000)
        down(1500)
        sys.setrecursionlimit(limit)
        down(0)
    assert figures(profiler, down)["held = Block(KIB)"][2] == 1024 + 1


def exceptions():
    def fails(n):
        a = Block(KIB)
        raise ValueError(n)

    def catches():
        for i in range(3):
            with contextlib.suppress(ValueError):
                fails(i)
        return Block(KIB)

    with LineProfiler(fails, catches) as profiler:
        catches()
        catches()
    assert figures(profiler, fails)["a = Block(KIB)"][2] == 6
    assert figures(profiler, catches)["return Block(KIB)"] == (1, 1, 2, 2, 2, 1)


def generators():
    def numbers():
        a = Block(2 * KIB)
        yield a
        b = Block(4 * KIB)
        try:
            yield b
        except KeyError:
            c = Block(8 * KIB)
            del c
        yield None

    with LineProfiler(numbers) as profiler:
        one, two = numbers(), numbers()
        next(one), next(two), next(one), next(two)
        one.throw(KeyError())
        two.close()
    del one, two
    found = figures(profiler, numbers)
    assert found["a = Block(2 * KIB)"][1:5] == (2, 2, 4, 4), found
    assert found["b = Block(4 * KIB)"][1:5] == (4, 2, 8, 8), found
    assert found["c = Block(8 * KIB)"][1:5] == (8, 1, 8, 8), found
    assert found["yield b"][2] == 2, found

    async def waits():
        a = Block(2 * KIB)
        await asyncio.sleep(0)
        b = Block(4 * KIB)
        await asyncio.sleep(0)
        return a, b

    async def both():
        await asyncio.gather(waits(), waits())

    with LineProfiler(waits) as profiler:
        asyncio.run(both())
    found = figures(profiler, waits)
    assert found["b = Block(4 * KIB)"][1:3] == (4, 2), found


def threads():
    def work(n):
        for _ in range(200):
            a = Block(KIB)
            del a
        return n

    started = threading.Event()
    done = threading.Event()

    def early():
        started.set()
        done.wait()
        work(1)

    first = threading.Thread(target=early)
    first.start()
    started.wait()
    with LineProfiler(work) as profiler:
        others = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in others:
            thread.start()
        done.set()
        for thread in [first, *others]:
            thread.join()
    assert figures(profiler, work)["a = Block(KIB)"][2] == 5 * 200, figures(profiler, work)
    assert figures(profiler, work)["return n"][2] == 5


def what_can_be_profiled():
    def plain():
        return Block(KIB)

    class Thing:
        def method(self):
            return Block(KIB)

        @staticmethod
        def static():
            return Block(KIB)

        @property
        def size(self):
            return Block(KIB)

        @functools.cached_property
        def kept(self):
            return Block(KIB)

        @functools.lru_cache(None)
        def known(self):
            return Block(KIB)

    thing = Thing()
    with LineProfiler(plain, Thing, functools.partial(plain)) as profiler:
        thing.method(), thing.static(), thing.size, thing.kept, thing.known(), plain()
    assert len(profiler.display().tables) == 6
    profiler = LineProfiler(Thing.size, Thing.__dict__["kept"], Thing.known)
    assert len(profiler._functions) == 3
    Thing.known.cache_clear()
    del thing
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LineProfiler(len)
    (warning,) = caught
    assert str(warning.message).startswith("vramscope: <built-in function len> has no Python code"), warning
    assert "\n" not in str(warning.message)
    for target, part in ((9, "GPU 9 does not exist: this process sees 2"), ("tpu", "'tpu' is not a device")):
        try:
            LineProfiler(plain, target_gpu=target).enable()
        except ValueError as error:
            assert part in str(error), error
        else:
            raise AssertionError(target)
    with LineProfiler(plain, target_gpu=1) as profiler:
        try:
            profiler.target_gpu = 9
        except ValueError:
            assert profiler.target_gpu == 1, "a refused device leaves the former"
        else:
            raise AssertionError("a GPU that is not there")
    profiler.enable()
    profiler.disable()
    profiler = LineProfiler(plain)
    for names, part in ((["nothing"], "three dot-separated parts"), (["a.b.c"], "should be fields of torch.cuda."),
                        (3, "3 is not a list of columns")):
        try:
            profiler.display(columns=names)
        except (ValueError, TypeError) as error:
            assert part in str(error) and "\n" not in str(error), error
        else:
            raise AssertionError(names)
    for wrong, part in ((lambda: profile_every(plain), "@profile_every(10)"),
                        (lambda: profile_every(2)(Thing), "use @profile for a class")):
        try:
            wrong()
        except (ValueError, TypeError) as error:
            assert part in str(error) and "\n" not in str(error), error
        else:
            raise AssertionError(part)
    assert str(profiler.display()) == "No data collected\n"


def code_that_looks_alike():
    """Of two files, or of a cell that is run again: code objects that are equal are not the same."""
    source = "def work(n):\n    a = Block(n)\n    return a\n"
    works = []
    for n in range(2):
        names = {"Block": Block}
        exec(compile(source, f"file{n}.py", "exec"), names)
        works.append(names["work"])
    assert works[0].__code__ == works[1].__code__
    with LineProfiler(*works) as profiler:
        works[0](KIB), works[1](2 * KIB), works[1](2 * KIB)
    hits = [table.lines[1].values for table in profiler.display(columns=["hits", "gross"]).tables]
    assert hits == [[1, KIB], [2, 4 * KIB]], hits
    hits = [table.lines[1].values for table in profiler.display(works[1], columns=["hits"]).tables]
    assert hits == [[2]], hits


def a_function_in_one_line():
    work = lambda: Block(KIB)  # noqa: E731
    with LineProfiler(work) as profiler:
        for _ in range(2):
            work()
    assert figures(profiler, work)["work = lambda: Block(KIB)  # noqa: E731"] == (1, 1, 2, 2, 2, 1)


def sampled_columns():
    kept = []

    def work():
        kept.append(Block(3 << 20))
        return kept

    with LineProfiler(work) as profiler:
        work()
        kept.clear()
    before = stand_in_torch.BOOKS[0].reserved >> 21
    display = profiler.display(columns=["segment.all.current", "reserved_bytes.all.peak"])
    (table,) = display.tables
    assert [line.values for line in table.lines][1:] == [[before, before << 21]] * 2
    assert "current~" in str(display) and "~ sampled" in str(display)


def changes_while_it_runs():
    def work():
        set_target_gpu(1)
        a = Block(4 * KIB, 1)
        set_target_gpu(0)
        b = Block(8 * KIB, 1)
        return a, b

    clear_global_line_profiler()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run = profile_every(2, columns=[PEAK, ALLOCATED])(work)
        for _ in range(3):
            run()
    assert out.getvalue().count("## ") == 1, out.getvalue()
    lines = {line.rsplit("  ", 1)[-1].strip(): line.split() for line in out.getvalue().splitlines()}
    assert lines["a = Block(4 * KIB, 1)"][:2] == ["4.00K", "4.00K"], out.getvalue()
    assert lines["b = Block(8 * KIB, 1)"][:2] == ["0.00B", "0.00B"], out.getvalue()
    clear_global_line_profiler()

    def stops():
        a = Block(KIB)
        profiler.disable()
        b = Block(KIB)
        return a, b

    for _ in range(3):
        profiler = LineProfiler(stops)
        profiler.enable()
        stops()
        assert figures(profiler, stops)["a = Block(KIB)"][2] == 1
        assert figures(profiler, stops)["b = Block(KIB)"][2] is None
    number = next(iter(profiler._functions.values())).number
    del profiler
    assert _line_tracer.get().probe.read(number) is None, "what a profiler had is gone with it"


def other_tracers():
    seen = []

    def tracer(frame, event, argument):
        if frame.f_code is traced.__code__:
            seen.append((event, frame.f_lineno - frame.f_code.co_firstlineno))
        return tracer

    def traced():
        a = Block(KIB)
        return a

    sys.settrace(tracer)
    traced()
    plain = list(seen)
    seen.clear()
    with LineProfiler(traced) as profiler:
        assert sys.gettrace() is tracer
        traced()
    assert sys.gettrace() is tracer
    assert seen == plain and len(plain) == 4, (seen, plain)
    seen.clear()
    traced()
    assert seen == plain
    sys.settrace(None)
    assert figures(profiler, traced)["a = Block(KIB)"] == (1, 1, 1, 1, 1, 1)


def many_blocks():
    def loop():
        for _ in range(40_000):
            a = Block(KIB)
        kept = [Block(KIB) for _ in range(40_000)]
        return kept

    with LineProfiler(loop) as profiler:
        loop()
    found = figures(profiler, loop)
    assert found["kept = [Block(KIB) for _ in range(40_000)]"][5] == 40_000, found
    assert found["a = Block(KIB)"][2:] == (40_000, 1, 40_000, 1), found


def forked_child():
    def work():
        return Block(KIB)

    with LineProfiler(work) as profiler:
        work()
        pid = os.fork()
        if pid == 0:
            work()
            work()
            hits = figures(profiler, work)["return Block(KIB)"][2]
            os._exit(0 if hits == 3 else 1)
        assert os.waitpid(pid, 0)[1] == 0
    assert figures(profiler, work)["return Block(KIB)"][2] == 1


def silent_allocator():
    def work():
        return Block(KIB)

    stand_in_torch.BOOKS[0].speaks = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with LineProfiler(work) as profiler:
            work()
    stand_in_torch.BOOKS[0].speaks = True
    (warning,) = caught
    assert "cuda:0 has an allocator that does not say what it gives out" in str(warning.message), warning
    assert str(warning.message) in str(profiler.display())


for test in (
    nested_calls,
    several_profilers_and_devices,
    recursion,
    exceptions,
    generators,
    threads,
    what_can_be_profiled,
    code_that_looks_alike,
    a_function_in_one_line,
    sampled_columns,
    changes_while_it_runs,
    other_tracers,
    many_blocks,
    forked_child,
    silent_allocator,
):
    test()
    assert stand_in_torch.BOOKS[0].allocated == stand_in_torch.BOOKS[1].allocated == 0, test
    assert sys.version_info < (3, 12) or all(sys.monitoring.get_tool(tool) is None for tool in range(6)), test
print("ok")
