// SPDX-License-Identifier: Apache-2.0
// The page's data as columns, with the queries that all views share.
import { categoryOfGroup } from "./category.js";
import { lastNotAbove } from "./events.js";
import { History } from "./history.js";
import { Kinds } from "./kinds.js";
import { Ledger, Samples, fromDeltas } from "./ledger.js";
import { OTHER_PLACES, inOrder } from "./palette.js";
import { choosePlaces, isMostlyUnknown, placeNameOf } from "./places.js";

/** @typedef {import("./types.js").PageData} PageData */

/**
 * The text of a frame.
 * @typedef {object} FrameText
 * @property {string} name
 * @property {string} file
 * @property {number} line
 * @property {string} source
 * @property {boolean} library
 */

// A bit of a frame's kind: library code.
const LIBRARY = 2;

// Categories of free memory in allocators.
const FREE = ["cached", "fragmentation", "graph pool"];
// The window that the page opens on: its margin, the share of the recording above which it is not worth a zoom, and the
// share of the peak at which a device begins to be used.
const WINDOW_MARGIN = 0.04;
const WINDOW_SHARE = 0.6;
const NOTICEABLE = 0.02;

export class Model {
  /** @param {PageData} page */
  constructor(page) {
    this.page = page;
    this.duration = Math.max(1, page.duration_ns);
    this.ledger = new Ledger(page);
    /** Indexed by category of a site: whether its bytes are free in an allocator's segments. */
    this.free = page.categories.map((name) => FREE.includes(name));
    /** The number of allocations with rows. */
    this.allocationCount = this.ledger.count;
    this.begin = this.ledger.begin;
    this.end = this.ledger.end;
    /** Bytes without rounding, which has its own site. */
    this.bytes = Float64Array.from(page.allocations.bytes, (bytes, i) => bytes - page.allocations.rounding[i]);
    /** @type {Float64Array|null} Where allocations are left out: instants at which all sums are exact. */
    this.instants = page.left_out.count > 0 ? fromDeltas(page.left_out.instants) : null;

    const stacks = page.stacks.length;
    this.stackParent = Uint32Array.from(page.stacks, (stack) => stack[0]);
    this.stackFrame = Uint32Array.from(page.stacks, (stack) => stack[1]);
    this.stackDepth = new Uint16Array(stacks);
    this.stackOrder = this.orderStacks();
    /** @type {FrameText[]} */
    this.frames = page.frames.map((_, frame) => this.frameText(frame));

    this.reportDevices = page.devices.map((device) =>
      page.report.devices.find((other) => other.index === device.index && other.kind === device.kind),
    );
    this.kinds = new Kinds(page);

    /** If most memory has no known category, layers and places have colours instead. */
    this.byPlace = isMostlyUnknown(this);
    const { heaviest, stacked } = this.byPlace ? choosePlaces(this) : { heaviest: [], stacked: [] };
    /** Names with their own colour, heaviest first. */
    this.heaviest = heaviest;
    /** Category names in stacking order. Views use their indices. */
    this.categories = inOrder([...this.namesInUse(), ...stacked, ...(stacked.length > 0 ? [OTHER_PLACES] : [])]);
    this.categoryIndex = new Map(this.categories.map((name, index) => [name, index]));
    this.kinds.category = this.chooseCategories();
    /** The iterations of the first process with iterations. */
    this.iterations = page.iterations.filter(([process]) => process === page.iterations[0][0]);
    /** Marks to show. Borders of iterations are drawn as iterations instead. */
    this.marks = page.marks.filter(([, name]) => this.iterations.length === 0 || !/^iteration\b/.test(name));
    /** Whether several processes share a device. */
    this.several = page.devices.map((_, device) => this.processesOf(device).size > 1);
    /** @type {History[]} */
    this.histories = page.devices.map((_, device) => new History(this, device,
      page.timelines.find((timeline) => timeline.device === device)));
    this.samples = page.devices.map((_, device) => new Samples(page, device));
    /** Failed requests, by device. */
    this.outOfMemory = page.devices.map((_, device) => page.out_of_memory.filter((row) => row.device === device));
    /** @type {Uint32Array[]} */
    this.ofDevice = [];
    /** @type {Uint32Array[]} */
    this.endsOfDevice = [];
  }

  /** All category names in the page's data. */
  namesInUse() {
    const { page } = this;
    const names = page.timelines.flatMap((timeline) => timeline.groups.map((group) => categoryOfGroup(group, page.report.sampled)));
    for (let kind = 1; kind < this.kinds.count; ++kind) names.push(this.ownCategory(kind));
    return names;
  }

  /**
   * The category in the recording. In a sampled recording: the owner.
   * @param {number} kind
   */
  ownCategory(kind) {
    const { sites, paths, categories, report } = this.page;
    const path = paths[sites.path[kind]] ?? [];
    return report.sampled && path.length > 0 ? path[path.length - 1] : categories[sites.category[kind]] ?? "unknown";
  }

  /** The category of each site that decides its colour, as index into `categories`. */
  chooseCategories() {
    const { page, kinds } = this;
    const unknown = page.categories.indexOf("unknown");
    const numbers = page.categories.map((name) => this.categoryIndex.get(name) ?? 0);
    if (page.report.sampled) return Uint8Array.from(page.sites.category, (_, kind) => this.categoryIndex.get(this.ownCategory(kind)) ?? 0);
    const other = this.categoryIndex.get(OTHER_PLACES);
    return Uint8Array.from(page.sites.category, (category, kind) => {
      // Slack and driver memory have no place.
      if (other === undefined || category !== unknown || !kinds.isAllocated[kind]) return numbers[category] ?? 0;
      return this.categoryIndex.get(placeNameOf(this, kind)) ?? other;
    });
  }

  /** @param {number} device */
  processesOf(device) {
    const { accounts } = this.page;
    return new Set(accounts.process.filter((process, account) => process !== 0 && accounts.device[account] === device));
  }

  /**
   * Stack ids, callers before callees. Also fills the depths. A cycle in a damaged table is cut.
   */
  orderStacks() {
    const count = this.stackParent.length;
    const order = new Uint32Array(Math.max(0, count - 1));
    const done = new Uint8Array(count);
    if (count > 0) done[0] = 2;
    let next = 0;
    /** @type {number[]} */
    const pending = [];
    for (let id = 1; id < count; ++id) {
      for (let at = id; done[at] === 0; at = this.stackParent[at]) {
        if (this.stackParent[at] >= count) this.stackParent[at] = 0;
        done[at] = 1;
        pending.push(at);
        if (done[this.stackParent[at]] === 1) this.stackParent[at] = 0;
      }
      for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
        done[at] = 2;
        this.stackDepth[at] = Math.min(65535, this.stackDepth[this.stackParent[at]] + 1);
        order[next++] = at;
      }
    }
    return order;
  }

  /**
   * @param {number} frame
   * @returns {FrameText}
   */
  frameText(frame) {
    const page = this.page;
    if (frame === 0) return { name: "(no stack)", file: "", line: 0, source: "", library: false };
    const [name, file, line, kind] = page.frames[frame];
    const path = page.strings[file] ?? "";
    return {
      name: page.strings[name] || "(unknown function)",
      file: path,
      line,
      source: (page.sources[`${file}:${line}`] ?? "").trim(),
      library: (kind & LIBRARY) !== 0,
    };
  }

  /**
   * The nearest instant with exact sums.
   * @param {number} at
   */
  nearestExact(at) {
    if (this.instants === null || this.instants.length === 0) return at;
    const before = lastNotAbove(this.instants, at);
    if (before < 0) return this.instants[0];
    if (before + 1 === this.instants.length) return this.instants[before];
    return at - this.instants[before] <= this.instants[before + 1] - at ? this.instants[before] : this.instants[before + 1];
  }

  /**
   * Like nearestExact(), but moves to another instant in that direction if there is one.
   * @param {number} from
   * @param {number} to
   */
  exactTowards(from, to) {
    const [here, near] = [this.nearestExact(from), this.nearestExact(to)];
    if (this.instants === null || near !== here || to === from) return near;
    const next = lastNotAbove(this.instants, here) + Math.sign(to - from);
    return this.instants[Math.min(this.instants.length - 1, Math.max(0, next))];
  }

  /**
   * The number of the iteration at an instant, or null.
   * @param {number} at
   */
  iterationAt(at) {
    const found = this.iterations.find(([, , begin, end]) => begin <= at && at < end);
    return found && found[1] >= 0 ? found[1] : null;
  }

    /**
   * The window to open on: iterations, failed requests and the peak, without imports and set-up before them.
   * @param {number} device
   * @returns {[number, number]|null} null: the whole recording.
   */
  firstWindow(device) {
    let [from, to] = [Infinity, 0];
    const include = (/** @type {number} */ begin, /** @type {number} */ end) => {
      from = Math.min(from, begin);
      to = Math.max(to, end);
    };
    for (const [, number, begin, end] of this.page.iterations) if (number >= 0) include(begin, end);
    if (to === 0) include(this.firstUse(device), this.duration);
    include(this.peakTime(device), this.peakTime(device));
    for (const { t } of this.outOfMemory[device]) include(t, t);
    const margin = WINDOW_MARGIN * (to - from);
    from = Math.max(0, Math.floor(from - margin));
    to = Math.min(this.duration, Math.ceil(to + margin));
    return to > from && to - from < WINDOW_SHARE * this.duration ? [from, to] : null;
  }

  /**
   * The first instant with a noticeable part of the device's highest total.
   * @param {number} device
   */
  firstUse(device) {
    const timeline = this.page.timelines.find((other) => other.device === device);
    if (!timeline) return 0;
    const totals = timeline.t.map((_, bucket) => timeline.peak.reduce((sum, group) => sum + group[bucket], 0));
    const highest = totals.reduce((a, b) => Math.max(a, b), 0);
    return timeline.t[totals.findIndex((total) => total >= NOTICEABLE * highest)] ?? 0;
  }

  /**
   * The instant of the device's report (its peak), in nanoseconds from the start.
   * @param {number} device
   */
  peakTime(device) {
    const report = this.reportDevices[device];
    // A device without live memory has no peak.
    if (!report || report.ledger_bytes === 0) return 0;
    return Math.min(this.duration, Math.max(0, this.page.devices[device].peak_at));
  }

  /**
   * The instant with most allocated memory, or null if there is no caching allocator.
   * @param {number} device
   */
  allocatedPeak(device) {
    const at = this.page.devices[device].allocated_peak_at;
    return at === null ? null : Math.min(this.duration, Math.max(0, at));
  }

  /**
   * Frame ids of a stack, outermost first.
   * @param {number} stack
   */
  framesOf(stack) {
    /** @type {number[]} */
    const frames = [];
    for (let id = stack; id !== 0; id = this.stackParent[id]) frames.push(this.stackFrame[id]);
    return frames.reverse();
  }

  /**
   * The frame that names a stack: the innermost user frame, or the innermost frame if there is none.
   * @param {number} stack
   */
  placeOf(stack) {
    for (let id = stack; id !== 0; id = this.stackParent[id]) {
      if (!this.frames[this.stackFrame[id]].library) return this.stackFrame[id];
    }
    return this.stackFrame[stack];
  }

  /**
   * Listed allocations of the device at an instant, without memory of segments and without sleeping memory.
   * @param {number} device
   * @param {number} at
   */
  liveAt(device, at) {
    const live = [];
    for (const i of this.allocationsOf(device)) {
      if (this.begin[i] > at) break;
      if (this.end[i] > at) live.push(i);
    }
    return live;
  }

  /**
   * Allocations of the device, ordered by begin.
   * @param {number} device
   */
  allocationsOf(device) {
    let known = this.ofDevice[device];
    if (!known) {
      const { page: { allocations, sites, accounts } } = this;
      known = this.ofDevice[device] = Uint32Array.from(this.begin.keys()).filter((i) =>
        sites.backing[allocations.site[i]] === 0 && sites.unbacked[allocations.site[i]] === 0 && accounts.device[sites.account[allocations.site[i]]] === device);
    }
    return known;
  }

  /**
   * Freed allocations of the device, ordered by end.
   * @param {number} device
   */
  endsOf(device) {
    let known = this.endsOfDevice[device];
    if (!known) {
      const own = new Uint8Array(this.allocationCount);
      for (const i of this.allocationsOf(device)) own[i] = 1;
      known = this.endsOfDevice[device] = this.ledger.ends.filter((i) => own[i] === 1 && this.end[i] < Infinity);
    }
    return known;
  }
}
