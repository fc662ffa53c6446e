// SPDX-License-Identifier: Apache-2.0
// Small page data for unit tests; make_sample.py makes large ones.

/** A generator of numbers that are the same in every run (mulberry32). */
export function randomNumbers(seed) {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % below;
  };
}

// In the order of src/engine/model/categories.def.
const CATEGORIES = ["parameter", "gradient", "optimizer state", "buffer", "activation", "temporary", "input",
  "workspace", "communication", "rounding", "cached", "fragmentation", "driver", "unknown"];
// Of `paths` below.
const PATH_CATEGORIES = ["parameter", "activation", "driver"];

/**
 * A page of one GPU. `lives` are [bytes, alloc, free, stack, path, category, module, name, place]; what is
 * not given is empty. A category that is not given follows from the path.
 */
export function makePage({ lives = [], ...rest } = {}) {
  const column = (index) => lives.map((life) => life[index] ?? 0);
  return {
    schema: "vramscope.page/1", title: "t", command: "c", recorded_at: "", version: "0",
    duration_ns: 1000, start_ns: 5000,
    report: {
      schema: "vramscope.report/1",
      devices: [{ index: 0, kind: "gpu", uuid: null, name: "G", total_bytes: null, nvml_bytes: null,
        ledger_bytes: 1, residual_bytes: null, at: { kind: "peak", time_ns: 5500, iteration: null } }],
      processes: [], rows: [], losses: [], invariants: [],
    },
    residuals: [],
    devices: [{ index: 0, kind: "gpu", name: "G", total_bytes: null }],
    processes: [{ pid: 7, rank: null, command: "c" }],
    timelines: [],
    strings: ["", "main", "app.py", "forward", "torch.py"],
    frames: [[0, 0, 0, 0], [1, 2, 1, 0], [3, 2, 2, 0], [3, 4, 3, 2]],
    // 1: main; 2: main > forward; 3: main > (torch) forward; 4: main > (torch) forward > forward
    stacks: [[0, 0], [0, 1], [1, 2], [1, 3], [3, 2]],
    sources: { "2:2": "    x = self.mlp(x)" },
    paths: [["PyTorch", "allocated"], ["PyTorch", "other"], ["driver-owned", "context"]],
    lives: {
      device: lives.map(() => 0), process: lives.map(() => 0), bytes: column(0), alloc: column(1),
      free: column(2), stack: column(3), place: column(8), path: column(4), module: column(6), name: column(7),
      category: lives.map((life) => CATEGORIES.indexOf(life[5] ?? PATH_CATEGORIES[life[4]])), address: lives.map(() => "7f00"),
    },
    categories: CATEGORIES,
    names: ["", "h.0.mlp", "h.0", "h.0.mlp.weight", "h.01"],
    module_types: { "h.0.mlp": "MLP" },
    iterations: [],
    left_out: { count: 0, peak_bytes: 0 },
    marks: [],
    ...rest,
  };
}
