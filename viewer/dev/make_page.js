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

// By the numbers of src/format/categories.def.
const CATEGORIES = ["parameter", "gradient", "optimizer state", "buffer", "activation", "temporary", "input",
  "workspace", "communication", "rounding", "cached", "fragmentation", "driver", "unknown", "graph pool", "retained", "kv cache"];
// Of `paths` below.
const PATH_CATEGORIES = ["parameter", "activation", "driver", "cached", "fragmentation", "rounding", "unknown", "driver"];
const PATHS = [["PyTorch", "allocated"], ["PyTorch", "other"], ["driver-owned", "context"], ["PyTorch", "cached"],
  ["PyTorch", "fragmentation"], ["PyTorch", "rounding"], ["other processes"], ["driver-owned", "in transit"]];
const [CACHED, FRAGMENTATION, ROUNDING, IN_TRANSIT] = [3, 4, 5, 7];
// Lines of `stacks` below, of `names`.
const LINES = [5, 6, 7, 6, 7];

const deltas = (values) => values.map((value, i) => value - (i > 0 ? values[i - 1] : 0));

/** Sites as they are made, each once. */
class Sites {
  constructor() {
    this.rows = [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
  }

  of({ account = 1, path = 0, category = PATH_CATEGORIES[path], backing = 0, unbacked = 0, module = 0, name = 0, stack = 0, place = 0 }) {
    const row = [account, path, CATEGORIES.indexOf(category), backing, LINES[place || stack] ?? 5, module, name, stack, place,
      [CACHED, FRAGMENTATION].includes(path) || unbacked === 1 ? 0 : 1, unbacked];
    const known = this.rows.findIndex((other, i) => i > 0 && other.every((value, at) => value === row[at]));
    return known > 0 ? known : this.rows.push(row) - 1;
  }

  table() {
    const keys = ["account", "path", "category", "backing", "line", "module", "name", "stack", "place", "held", "unbacked"];
    return Object.fromEntries(keys.map((key, at) => [key, this.rows.map((row) => row[at])]));
  }
}

/**
 * A page of one GPU. `allocations` are [bytes, begin, end, more]: `more` says what they stand under,
 * their segment and rounding; an end below 0 is never. `segments` is their number. `steps` are
 * [site as of `more`, time, bytes]: a counter each; `segment` there is what it holds. What is not given is empty.
 */
export function makePage({ allocations = [], segments = 0, steps = [], samples = [], changes = [], leftOut = null, ...rest } = {}) {
  const sites = new Sites();
  const transit = sites.of({ account: 0, path: IN_TRANSIT });
  const rows = allocations.map(([bytes, begin, end, more = {}]) => ({
    bytes, begin, end, site: sites.of(more), segment: more.segment ?? 0, rounding: more.rounding ?? 0,
    roundingSite: more.rounding ? sites.of({ ...more, backing: 0, path: ROUNDING, category: "rounding" }) : 0,
  })).sort((a, b) => a.begin - b.begin);
  const column = (key) => rows.map((row) => row[key]);
  const counters = [...new Map(steps.map(([more]) => [JSON.stringify(more), more])).values()];
  const ordered = steps.slice().sort((a, b) => a[1] - b[1]);
  const left = leftOut ?? { count: 0, instants: [], rows: [] };
  return {
    schema: "vramscope.page/2", title: "t", file: "t.vram", command: "c", recorded_at: "", version: "0",
    duration_ns: 1000, start_ns: "5000", finished: true, counted: "", instant: false, folded_layers: 0,
    report: {
      schema: "vramscope.report/1",
      devices: [{ index: 0, kind: "gpu", uuid: null, name: "G", total_bytes: null, nvml_bytes: null,
        ledger_bytes: 1, residual_bytes: null, at: { kind: "peak", time_ns: 5500, iteration: null } }],
      processes: [], rows: [], residuals: [], top_churn: [], losses: [], invariants: [],
    },
    devices: [{ index: 0, kind: "gpu", name: "G", total_bytes: null, peak_at: 500, allocated_peak_at: null }],
    processes: [{ pid: 0, rank: null, command: "" }, { pid: 7, rank: null, command: "c" }],
    accounts: { device: [-1, 0, 0], process: [0, 1, 0] },
    checkpointed: { account: [], begin: [], end: [] },
    timelines: [],
    strings: ["", "main", "app.py", "forward", "torch.py"],
    frames: [[0, 0, 0, 0], [1, 2, 1, 0], [3, 2, 2, 0], [3, 4, 3, 2]],
    // 1: main; 2: main > forward; 3: main > (torch) forward; 4: main > (torch) forward > forward
    stacks: [[0, 0], [0, 1], [1, 2], [1, 3], [3, 2]],
    sources: { "2:2": "    x = self.mlp(x)" },
    paths: PATHS,
    allocations: {
      site: column("site"), rounding_site: column("roundingSite"), segment: column("segment"), begin: deltas(column("begin")),
      duration: rows.map(({ begin, end }) => (end < 0 ? -1 : end - begin)), bytes: column("bytes"), rounding: column("rounding"),
      address: rows.map(() => "7f00"),
    },
    left_out: {
      count: left.count, instants: deltas(left.instants), site: left.rows.map(([more]) => sites.of(more)),
      segment: left.rows.map(([more]) => more.segment ?? 0), at: left.rows.map(([, at]) => at),
      bytes: left.rows.map(([, , bytes]) => bytes), counts: left.rows.map(([, , bytes]) => Math.sign(bytes)),
    },
    iteration_table: { source: "", device: [], process: [], number: [], begin: [], end: [], peak: [], peak_at: [], end_allocated: [], allocated: [], reserved: [], categories: {} },
    leaks: { verdict: "", unused: "", expected: "", growing: [], never_freed: [] },
    out_of_memory: [], explained: [], phases: null, savings: null, savings_left_out: false,
    segments: {
      address: Array.from({ length: segments + 1 }, () => "0"), size: Array.from({ length: segments + 1 }, () => 0),
      free_site: [0, ...Array.from({ length: segments }, () => sites.of({ path: CACHED }))],
      free_site_in_use: [0, ...Array.from({ length: segments }, () => sites.of({ path: FRAGMENTATION }))],
    },
    counters: { site: [0, ...counters.map((more) => sites.of(more))], segment: [0, ...counters.map((more) => more.segment ?? 0)] },
    steps: {
      counter: ordered.map(([more]) => counters.findIndex((other) => JSON.stringify(other) === JSON.stringify(more)) + 1),
      t: deltas(ordered.map(([, at]) => at)), bytes: ordered.map(([, , bytes]) => bytes),
    },
    samples: {
      device: samples.map(() => 0), t: deltas(samples.map(([at]) => at)), lasted: samples.map(() => 1), used: samples.map(([, used]) => used),
      ledger: samples.map(([, , ledger]) => ledger), low: samples.map(([, , , low = 0]) => low), high: samples.map(([, , , , high = 0]) => high),
    },
    changes: { device: changes.map(() => 0), t: deltas(changes) },
    in_transit_site: transit,
    sites: sites.table(),
    categories: CATEGORIES,
    names: ["", "h.0.mlp", "h.0", "h.0.mlp.weight", "h.01", "(no stack)", "app.py:1 in main", "app.py:2 in forward"],
    module_types: { "h.0.mlp": "MLP" },
    iterations: [],
    marks: [],
    lines: [],
    ...rest,
  };
}
