#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes page data of an invented but realistic training: the viewer's test data.

    make_sample.py > data.json            the data alone
    make_sample.py --page out.html        the whole page, from viewer/dist and viewer/src/page.html

The figures are made here, not recorded; the title of the page says so. The same arguments give the
same bytes. `--allocations` grows the sample for measurements of speed.
"""

import argparse
import json
import pathlib
import random

MIB = 1 << 20
MS = 1_000_000
VIEWER = pathlib.Path(__file__).resolve().parent.parent
CONTEXT_BYTES = 505 * MIB
CODE_BYTES = 38 * MIB
NATIVE, LIBRARY = 1, 2
TORCH = "/usr/lib/python3/site-packages/torch"


# By the numbers of src/format/categories.def.
CATEGORIES = ["parameter", "gradient", "optimizer state", "buffer", "activation", "temporary", "input", "workspace",
              "communication", "rounding", "cached", "fragmentation", "driver", "unknown", "graph pool",
              "retained", "kv cache"]
TYPES = {"wte": "Embedding", "wpe": "Embedding", "c_attn": "Linear", "c_proj": "Linear", "c_fc": "Linear",
         "lm_head": "Linear", "ln_1": "LayerNorm", "ln_2": "LayerNorm", "attn": "CausalSelfAttention"}


class Tables:
    """Strings, frames and stacks, each stored once; index 0 of frames and stacks means none."""

    def __init__(self):
        self.strings, self.string_ids = [""], {"": 0}
        self.frames, self.frame_ids = [[0, 0, 0, 0]], {}
        self.stacks, self.stack_ids = [[0, 0]], {}
        self.paths, self.path_ids = [], {}
        self.names, self.name_ids = [""], {"": 0}
        self.types = {}
        self.sources = {}

    def string(self, text):
        if text not in self.string_ids:
            self.string_ids[text] = len(self.strings)
            self.strings.append(text)
        return self.string_ids[text]

    def name(self, text, type_name=""):
        if text not in self.name_ids:
            self.name_ids[text] = len(self.names)
            self.names.append(text)
        if type_name:
            self.types[text] = type_name
        return self.name_ids[text]

    def frame(self, function, file, line, source="", kind=0):
        if file.startswith(TORCH) or kind == NATIVE:
            kind |= LIBRARY
        key = (self.string(function), self.string(file), line, kind)
        if key not in self.frame_ids:
            self.frame_ids[key] = len(self.frames)
            self.frames.append(list(key))
            if source:
                self.sources[f"{key[1]}:{line}"] = source
        return self.frame_ids[key]

    def stack(self, frames):
        """Frames outermost first."""
        parent = 0
        for frame in frames:
            key = (parent, frame)
            if key not in self.stack_ids:
                self.stack_ids[key] = len(self.stacks)
                self.stacks.append([parent, frame])
            parent = self.stack_ids[key]
        return parent

    def line(self, stack):
        """The line that people mean: the innermost frame of the user's own code, else the innermost of all."""
        at, innermost = stack, self.stacks[stack][1]
        while at and self.frames[self.stacks[at][1]][3] & LIBRARY:
            at = self.stacks[at][0]
        function, file, number, _ = self.frames[self.stacks[at][1] if at else innermost]
        if not file:
            return self.strings[function] or "(no stack)"
        return f"{self.strings[file].rsplit('/', 1)[-1]}:{number} in {self.strings[function]}"

    def path(self, *levels):
        if levels not in self.path_ids:
            self.path_ids[levels] = len(self.paths)
            self.paths.append(list(levels))
        return self.path_ids[levels]


class Device:
    def __init__(self, index, kind, name, total):
        self.record = {"index": index, "kind": kind, "name": name, "total_bytes": total}
        self.allocations = []  # [process, bytes, begin, end, stack, path, address, category, module, name]
        self.address = 0x7F0000000000 + (index + 3) * 0x1000000000


class Training:
    """A GPT-like model: forward and backward saw teeth over parameters and optimizer state."""

    def __init__(self, tables, rng, device, process, layers, iterations, width, start):
        self.t, self.rng, self.device, self.process = tables, rng, device, process
        self.layers, self.iterations, self.width = layers, iterations, width
        self.now = start
        self.marks = []
        self.iteration_ends = []
        f = tables.frame
        self.main = [
            f("<module>", "train_gpt2.py", 214, "main()"),
            f("main", "train_gpt2.py", 187, "train(model, loader, optimizer, args)"),
        ]
        self.call = [
            f("Module._wrapped_call_impl", f"{TORCH}/nn/modules/module.py", 1775,
              "return self._call_impl(*args, **kwargs)"),
            f("Module._call_impl", f"{TORCH}/nn/modules/module.py", 1786,
              "return forward_call(*args, **kwargs)"),
        ]

    def step(self, low=0.2, high=0.9):
        self.now += int(self.rng.uniform(low, high) * MS)
        return self.now

    def alloc(self, size, frames, path, category, module="", name=""):
        size = max(512, int(size) // 512 * 512)
        row = [self.process, size, self.step(), -1, self.t.stack(frames), self.t.path(*path),
                self.device.address, CATEGORIES.index(category), self.t.name(module, TYPES.get(module.split(".")[-1], "")),
                self.t.name(name)]
        self.device.address += size
        self.device.allocations.append(row)
        return row

    def free(self, row):
        row[3] = self.step(0.02, 0.1)

    def tensor(self, size, frames, category, module="", name=""):
        return self.alloc(size, frames, ("PyTorch", "allocated"), category, module, name)

    def site(self, function, file, line, source):
        return self.t.frame(function, file, line, source)

    def run(self):
        t, width = self.t, self.width
        driver = [t.frame("cuDevicePrimaryCtxRetain", "", 0, kind=NATIVE)]
        self.alloc(CONTEXT_BYTES, [], ("driver-owned", "context"), "driver")
        self.alloc(CODE_BYTES, driver, ("driver-owned", "module code and globals"), "driver")
        self.step(60, 90)
        build = [self.main[0], self.site("main", "train_gpt2.py", 171,
                                         "model = GPT(config).to(args.device)")]
        to = self.site("Module.to", f"{TORCH}/nn/modules/module.py", 1369,
                       "return self._apply(convert)")
        parameters = []
        shapes = [("wte", 50304 * width), ("wpe", 1024 * width)]
        for i in range(self.layers):
            shapes += [(f"h.{i}.attn.c_attn", 3 * width * width), (f"h.{i}.attn.c_proj", width * width),
                       (f"h.{i}.mlp.c_fc", 4 * width * width), (f"h.{i}.mlp.c_proj", 4 * width * width),
                       (f"h.{i}.ln_1", 2 * width), (f"h.{i}.ln_2", 2 * width)]
        for module, count in shapes:
            name = module + ".weight"
            parameters.append((module, self.tensor(count * 4, build + [to], "parameter", module, name), name))
        for i in range(self.layers):
            self.tensor(1024 * 1024, build + [to], "buffer", f"h.{i}.attn", f"h.{i}.attn.bias")
        self.alloc(32 * MIB, self.main + [self.site("train", "train_gpt2.py", 141,
                   "logits, loss = model(x, y)")], ("cuBLAS", "allocated"), "workspace")
        self.marks.append([self.step(30, 60), "warm-up done"])
        states = []
        self.begin = self.now
        for iteration in range(self.iterations):
            states = self.iterate(iteration, parameters, states)
            self.iteration_ends.append(self.now)
        self.marks.append([self.step(10, 20), "training done"])
        for row in states[: len(states) // 2]:
            self.free(row)
        self.step(150, 200)

    def forward(self):
        width = self.width
        train = self.main + [self.site("train", "train_gpt2.py", 141, "logits, loss = model(x, y)")]
        model = train + self.call
        blocks = [self.site("GPT.forward", "model.py", 178, "x = block(x)")]
        tokens = 8 * 512
        saved = []
        embed = model + [self.site("GPT.forward", "model.py", 175, "x = self.wte(idx) + self.wpe(pos)")]
        saved.append(self.tensor(tokens * width * 4, embed, "activation", "wte"))
        for i in range(self.layers):
            block = model + blocks + self.call
            attn = block + [self.site("Block.forward", "model.py", 96, "x = x + self.attn(self.ln_1(x))")]
            mlp = block + [self.site("Block.forward", "model.py", 97, "x = x + self.mlp(self.ln_2(x))")]
            in_attn, in_mlp = attn + self.call, mlp + self.call
            for frames, scale, module in [
                (attn, 1, f"h.{i}.ln_1"),
                (in_attn + [self.site("CausalSelfAttention.forward", "model.py", 52,
                            "q, k, v = self.c_attn(x).split(self.n_embd, dim=2)")] + self.call +
                 [self.site("Linear.forward", f"{TORCH}/nn/modules/linear.py", 134,
                            "return F.linear(input, self.weight, self.bias)")], 3, f"h.{i}.attn.c_attn"),
                (in_attn + [self.site("CausalSelfAttention.forward", "model.py", 58,
                            "att = F.softmax(att, dim=-1)")], 4, f"h.{i}.attn"),
                (mlp, 1, f"h.{i}.ln_2"),
                (in_mlp + [self.site("MLP.forward", "model.py", 78, "x = self.gelu(self.c_fc(x))")] +
                 self.call + [self.site("Linear.forward", f"{TORCH}/nn/modules/linear.py", 134, "")],
                 4, f"h.{i}.mlp.c_fc"),
                (in_mlp + [self.site("MLP.forward", "model.py", 79, "x = self.c_proj(x)")], 1,
                 f"h.{i}.mlp.c_proj"),
            ]:
                saved.append(self.tensor(tokens * width * 4 * scale, frames, "activation", module))
                scratch = self.tensor(tokens * width * 2, frames, "temporary", module)
                self.free(scratch)
        head = model + [self.site("GPT.forward", "model.py", 181, "logits = self.lm_head(self.ln_f(x))")]
        saved.append(self.tensor(tokens * 50304 * 2, head, "activation", "lm_head"))
        return saved

    def iterate(self, iteration, parameters, states):
        loader = self.main + [self.site("train", "train_gpt2.py", 138,
                              "x, y = x.to(device), y.to(device)")]
        batch = self.tensor(8 * 512 * 16, loader, "input")
        saved = self.forward()
        back = self.main + [self.site("train", "train_gpt2.py", 144, "loss.backward()"),
                            self.site("Tensor.backward", f"{TORCH}/_tensor.py", 630, "")]
        gradients = []
        for position, row in enumerate(reversed(saved)):
            scratch = self.tensor(row[1] * self.rng.uniform(0.4, 0.9), back, "temporary")
            share = len(parameters) * (position + 1) // len(saved)
            while len(gradients) < share:
                module, parameter, name = parameters[len(parameters) - 1 - len(gradients)]
                gradients.append(self.tensor(parameter[1], back, "gradient", module, name))
            self.free(row)
            self.free(scratch)
        step = self.main + [self.site("train", "train_gpt2.py", 147, "optimizer.step()"),
                            self.site("AdamW.step", f"{TORCH}/optim/adamw.py", 232, ""),
                            self.site("_init_group", f"{TORCH}/optim/adamw.py", 181,
                                      "state[\"exp_avg\"] = torch.zeros_like(p)")]
        if not states:
            for module, parameter, name in parameters:
                for _ in range(2):
                    states.append(self.tensor(parameter[1], step, "optimizer state", module, name))
        foreach = [self.tensor(p[1], step[:-1], "temporary") for _, p, _ in parameters[::3]]
        for row in foreach:
            self.free(row)
        for row in gradients:
            self.free(row)
        self.free(batch)
        if iteration % 5 == 4:
            self.evaluate()
        self.step(4, 8)
        return states

    def evaluate(self):
        frames = self.main + [self.site("train", "train_gpt2.py", 152, "val = evaluate(model, loader)"),
                              self.site("evaluate", "train_gpt2.py", 112, "logits, loss = model(x, y)")]
        for _ in range(6):
            row = self.tensor(8 * 512 * 50304 * 2, frames, "temporary")
            self.step(2, 5)
            self.free(row)


GROUPS = ["driver", "parameter", "buffer", "optimizer state", "gradient", "activation",
          "temporary", "input", "workspace", "cached", "fragmentation"]
BANDS = {"driver": "driver-owned / context"}


def fold(device, duration, buckets):
    """Exact sums by replay: the timeline's buckets at their highest instants, the peak, and what the allocator keeps."""
    events = []
    for row in device.allocations:
        category = GROUPS.index(CATEGORIES[row[7]])
        events.append((row[2], 1, row[1], category))
        if row[3] >= 0:
            events.append((row[3], 0, -row[1], category))
    events.sort()
    edges = [duration * b // buckets for b in range(buckets)]
    now, reserved = [0] * len(GROUPS), 0
    best, best_at, best_now = (-1, 0), 0, None
    peak = [[0] * buckets for _ in GROUPS]
    position = 0
    kept = []  # time, cached, fragmentation
    cached, fragmentation = GROUPS.index("cached"), GROUPS.index("fragmentation")
    for bucket in range(buckets):
        end = edges[bucket + 1] if bucket + 1 < buckets else duration + 1
        top, top_score = list(now), (sum(now), sum(now) - now[cached] - now[fragmentation])
        while position < len(events) and events[position][0] < end:
            at, _, delta, category = events[position]
            now[category] += delta
            position += 1
            # What the caching allocator keeps: it grows with the tensors and is never given back.
            tensors = sum(now) - now[cached] - now[fragmentation] - now[0]
            reserved = max(reserved, tensors)
            if device.record["kind"] == "gpu":
                now[fragmentation] = (reserved - tensors) // 9
                now[cached] = reserved - tensors - now[fragmentation]
                kept.append((at, now[cached], now[fragmentation]))
            total = sum(now)
            # Among equal totals the one with the most tensors says more.
            score = (total, tensors)
            if score > top_score:
                top, top_score = list(now), score
            if score > best:
                best, best_at, best_now = score, at, list(now)
        for category, value in enumerate(top):
            peak[category][bucket] = value
    return edges, peak, best_at, best_now, kept


def report_of(devices, tables, folded, start_ns, processes):
    report = {"schema": "vramscope.report/1", "devices": [], "processes": [], "rows": [],
              "losses": [{"name": "events dropped", "count": 0, "bytes": 0},
                         {"name": "stacks without Python", "count": 14, "bytes": 3 * MIB}],
              "invariants": [
                  {"name": "children sum to parent", "holds": True, "detail": ""},
                  {"name": "nothing freed twice", "holds": True, "detail": ""},
                  {"name": "no live block outside a live segment", "holds": True, "detail": ""},
                  {"name": "rows + residual = NVML", "holds": True, "detail": "412 of 412 samples"}]}
    for device, (_, _, at, now, _) in zip(devices, folded):
        gpu = device.record["kind"] == "gpu"
        ledger = sum(now)
        by_process = {}
        for row in device.allocations:
            if row[2] <= at and (row[3] < 0 or row[3] > at):
                row = by_process.setdefault((row[0], row[5]), [0, 0])
                row[0] += row[1]
                row[1] += 1
        rows = [{"device": device.record["index"], "pid": processes[p + 1]["pid"],
                 "path": tables.paths[path], "bytes": size, "count": count}
                for (p, path), (size, count) in by_process.items()]
        for name in ("cached", "fragmentation"):
            value = now[GROUPS.index(name)]
            if value:
                rows.append({"device": device.record["index"], "pid": processes[1]["pid"],
                             "path": ["PyTorch", name], "bytes": value, "count": 0})
        rows.sort(key=lambda row: -row["bytes"])
        report["rows"] += rows
        residual = 1_310_720 if gpu else None
        report["devices"].append({
            "index": device.record["index"], "kind": device.record["kind"],
            "uuid": "GPU-00000000-sample" if gpu else "", "name": device.record["name"],
            "total_bytes": device.record["total_bytes"],
            "nvml_bytes": ledger + residual if gpu else None, "ledger_bytes": ledger,
            "residual_bytes": residual,
            "at": {"kind": "peak", "time_ns": start_ns + at, "iteration": 7}})
        report["processes"].append({
            "device": device.record["index"], "pid": processes[1]["pid"], "rank": None,
            "command": processes[1]["command"], "nvml_bytes": None, "ledger_bytes": ledger,
            "residual_bytes": None})
    return report


class Sites:
    """What bytes stand under, each once; 0: nothing."""

    COLUMNS = ("account", "path", "category", "backing", "unbacked", "held", "line", "module", "name", "stack", "place")

    def __init__(self):
        self.rows, self.ids = [(0,) * len(self.COLUMNS)], {}

    def of(self, **values):
        row = tuple(values.get(column, 0) for column in self.COLUMNS)
        if row not in self.ids:
            self.ids[row] = len(self.rows)
            self.rows.append(row)
        return self.ids[row]

    def table(self):
        return {column: [row[at] for row in self.rows] for at, column in enumerate(self.COLUMNS)}


def deltas(values):
    return [value - before for value, before in zip(values, [0, *values])]


def ledger_of(devices, tables, folded):
    """The tables that the page adds up. Accounts are numbered as devices are, from 1 on."""
    sites, rows = Sites(), []
    for account, device in enumerate(devices, 1):
        for _, size, begin, end, stack, path, address, category, module, name in device.allocations:
            site = sites.of(account=account, path=path, category=category, held=1, line=tables.name(tables.line(stack)), module=module,
                            name=name, stack=stack)
            rows.append((begin, site, size, -1 if end < 0 else end - begin, format(address, "x")))
    rows.sort()
    nowhere = tables.name("(no stack)")
    counters, steps = [0], []
    for account, (*_, kept) in enumerate(folded, 1):
        for which, name in enumerate(("cached", "fragmentation"), 1):
            counters.append(sites.of(account=account, path=tables.path("PyTorch", name), category=CATEGORIES.index(name), line=nowhere))
            before = 0
            for at, *values in kept:
                if values[which - 1] != before:
                    steps.append((at, len(counters) - 1, values[which - 1] - before))
                    before = values[which - 1]
    steps.sort()
    transit = sites.of(path=tables.path("driver-owned", "in transit"), category=CATEGORIES.index("driver"), line=nowhere)
    nothing = [0] * len(rows)
    return {
        "accounts": {"device": [-1, *range(len(devices))], "process": [0, *(1 for _ in devices)]},
        "checkpointed": {"account": [], "begin": [], "end": []},
        "allocations": {"site": [row[1] for row in rows], "rounding_site": nothing, "segment": nothing,
                        "begin": deltas([row[0] for row in rows]), "duration": [row[3] for row in rows],
                        "bytes": [row[2] for row in rows], "rounding": nothing, "address": [row[4] for row in rows]},
        "left_out": {"count": 0, "instants": [], "at": [], "site": [], "segment": [], "bytes": [], "counts": []},
        "segments": {"address": ["0"], "size": [0], "free_site": [0], "free_site_in_use": [0]},
        "counters": {"site": counters, "segment": [0] * len(counters)},
        "steps": {"counter": [step[1] for step in steps], "t": deltas([step[0] for step in steps]),
                  "bytes": [step[2] for step in steps]},
        "changes": {"device": [], "t": []}, "in_transit_site": transit, "sites": sites.table(),
    }


def sample_of(peak_at, total, nvml):
    """One, at the first device's peak."""
    return {"device": [0], "t": [peak_at], "lasted": [0], "used": [nvml], "ledger": [total], "low": [0], "high": [0]}


def make(wanted, seed=7):
    rng = random.Random(seed)
    tables = Tables()
    gpu = Device(0, "gpu", "NVIDIA H200 (invented)", 150_754_820_096)
    host = Device(-2, "host", "pinned host memory", 270 * 1024 * MIB)
    processes = [{"pid": 0, "rank": None, "command": ""}, {"pid": 41327, "rank": None, "command": "python train_gpt2.py --layers 12 --width 768"}]
    per_iteration = 12 * 6 * 3 + 120
    iterations = max(12, wanted // per_iteration)
    training = Training(tables, rng, gpu, 0, layers=12, iterations=iterations, width=768, start=180 * MS)
    training.run()
    duration = training.now
    pin = tables.stack([training.main[0], tables.frame("DataLoader.__iter__",
                        f"{TORCH}/utils/data/dataloader.py", 1402, "data = pin_memory(data)")])
    for worker in range(4):
        host.allocations.append([0, 24 * MIB, (300 + 40 * worker) * MS, -1, pin,
                           tables.path("PyTorch", "pinned"), 0x7E0000000000 + worker,
                           CATEGORIES.index("input"), 0, 0])
    devices = [gpu, host]
    folded = [fold(device, duration, 600) for device in devices]
    start_ns = 81_220_000_000_000
    timelines = []
    for position, (device, (edges, peak, _, _, _)) in enumerate(zip(devices, folded)):
        used = [g for g in range(len(GROUPS)) if any(peak[g])]
        nvml = []
        if device.record["kind"] == "gpu":
            for bucket in range(0, 600, 3):
                nvml.append([edges[bucket], sum(row[bucket] for row in peak) + rng.randint(0, 2 * MIB)])
        timelines.append({"device": position, "groups": [BANDS.get(GROUPS[g], GROUPS[g]) for g in used], "t": edges,
                          "peak": [peak[g] for g in used], "unbacked": [], "nvml": nvml})
    report = report_of(devices, tables, folded, start_ns, processes)
    peak = report["devices"][0]
    report["residuals"] = [{"device": 0, "samples": 412, "samples_in_transit": 2, "worst_bytes": 2_031_616,
                            "worst_at_ns": start_ns, "p99_bytes": 1_835_008, "estimated_bytes": CONTEXT_BYTES + CODE_BYTES,
                            "ledger_peak_bytes": peak["ledger_bytes"]}]
    ledger = ledger_of(devices, tables, folded)
    report["top_churn"] = churn_of(devices, tables, ledger)
    return {
        "schema": "vramscope.page/2", "title": "train_gpt2 (invented sample)",
        "file": "train_gpt2.vram", "command": processes[1]["command"] + " --data shakespeare.txt --device cuda:0",
        "recorded_at": "2026-01-15T10:24:31Z", "version": "", "duration_ns": duration,
        "start_ns": str(start_ns), "finished": True, "counted": "", "instant": False, "folded_layers": 0, "report": report, **ledger,
        "leaks": {"verdict": "", "unused": "", "expected": "", "growing": [], "never_freed": []}, "out_of_memory": [], "explained": [],
        "phases": None, "savings": None, "savings_left_out": False,
        "iteration_table": {"source": "", "categories": {}, **{key: [] for key in (
            "device", "process", "number", "begin", "end", "peak", "peak_at", "end_allocated", "allocated", "reserved")}},
        "samples": sample_of(peak["at"]["time_ns"] - start_ns, peak["ledger_bytes"], peak["nvml_bytes"]),
        "devices": [{**device.record, "peak_at": told["at"]["time_ns"] - start_ns, "allocated_peak_at": None} for device, told in zip(devices, report["devices"])], "processes": processes,
        "timelines": timelines, "strings": tables.strings, "frames": tables.frames,
        "stacks": tables.stacks, "sources": tables.sources, "paths": tables.paths,
        "marks": training.marks,
        "lines": [],
        "categories": CATEGORIES, "names": tables.names, "module_types": tables.types,
        "iterations": [[1, number, begin, end] for number, (begin, end) in
                       enumerate(zip([training.begin, *training.iteration_ends], training.iteration_ends))],
    }


def churn_of(devices, tables, ledger):
    """What each line allocated over the whole run, most first."""
    sums = {}
    sites = ledger["sites"]
    for site, size in zip(ledger["allocations"]["site"], ledger["allocations"]["bytes"]):
        if sites["backing"][site] or not sites["line"][site]:
            continue
        key = (devices[ledger["accounts"]["device"][sites["account"][site]]].record["index"], tables.names[sites["line"][site]])
        count, total = sums.get(key, (0, 0))
        sums[key] = (count + 1, total + size)
    rows = [{"device": device, "line": line, "source": "", "bytes": total, "count": count} for (device, line), (count, total) in sums.items()]
    return sorted(rows, key=lambda row: -row["bytes"])[:50]


def page(data):
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    out = (VIEWER / "src" / "page.html").read_text(encoding="utf-8")
    parts = {"TITLE": data["title"], "DATA": text}
    for name in ("css", "js"):
        parts[name.upper()] = (VIEWER / "dist" / f"viewer.{name}").read_text(encoding="utf-8")
    head, tail = "", out
    for key in ("TITLE", "CSS", "DATA", "JS"):
        before, tail = tail.split("{{" + key + "}}", 1)
        head += before + parts[key]
    return head + tail


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allocations", type=int, default=5000, help="about how many allocations")
    parser.add_argument("--page", help="write the whole page there instead of the data to stdout")
    arguments = parser.parse_args()
    data = make(arguments.allocations)
    if arguments.page:
        pathlib.Path(arguments.page).write_text(page(data), encoding="utf-8")
    else:
        print(json.dumps(data, separators=(",", ":")))


if __name__ == "__main__":
    main()
