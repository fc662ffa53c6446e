// SPDX-License-Identifier: Apache-2.0
// The page's data as columns, and the questions that every view asks of it.
import { categoryOf, categoryOfGroup } from "./category.js";
import { baseName } from "./format.js";
import { History } from "./history.js";
import { Kinds } from "./kinds.js";
import { NOT_LISTED, OTHER_PLACES, inOrder, isKnown } from "./palette.js";
import { choosePlaces, isMostlyUnknown, placeNameOf } from "./places.js";

/** @typedef {import("./types.js").PageData} PageData */

/**
 * A frame as people read it.
 * @typedef {object} FrameText
 * @property {string} name
 * @property {string} file
 * @property {number} line
 * @property {string} source
 * @property {boolean} library
 */

// Bit of a frame's kind: code that the user did not write.
const LIBRARY = 2;

export class Model {
  /** @param {PageData} page */
  constructor(page) {
    this.page = page;
    this.duration = Math.max(1, page.duration_ns);
    const lives = page.lives;
    const count = lives.bytes.length;
    this.lifeCount = count;
    this.lifeDevice = Uint16Array.from(lives.device);
    this.lifeBytes = Float64Array.from(lives.bytes);
    this.lifeAlloc = Float64Array.from(lives.alloc);
    this.lifeFree = Float64Array.from(lives.free, (at) => (at < 0 ? Infinity : at));

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
    /** Places that stacks are named by, and which each stack has. 0: none. */
    this.places = [""];
    this.stackPlace = this.namePlaces();

    /** Where nobody knows what most memory is for, layers and places have the colours of that. */
    this.byPlace = isMostlyUnknown(this);
    const { heaviest, stacked } = this.byPlace ? choosePlaces(this) : { heaviest: [], stacked: [] };
    /** Names with a colour of their own, heaviest first. */
    this.heaviest = heaviest;
    /** Category names in stacking order; views speak of categories by index. */
    this.categories = inOrder([...this.namesInUse(), ...stacked, ...(stacked.length > 0 ? [OTHER_PLACES] : [])]);
    this.categoryIndex = new Map(this.categories.map((name, index) => [name, index]));
    this.kinds = new Kinds(page, this.categoryFinder());
    this.lifeCategory = Uint8Array.from(this.kinds.ofLife, (kind) => this.kinds.category[kind]);
    /** What the timeline's bands count a kind for: they know no places. */
    this.kindBand = Uint8Array.from(this.kinds.category, (category) =>
      (isKnown(this.categories[category]) && this.categories[category] !== OTHER_PLACES ? category
        : this.categoryIndex.get("unknown") ?? category));
    /** Iterations of the first process that has any. */
    this.iterations = page.iterations.filter(([process]) => process === page.iterations[0][0]);
    /** Marks to show: the borders of iterations are shown as such. */
    this.marks = page.marks.filter(([, name]) => this.iterations.length === 0 || !/^iteration\b/.test(name));
    /** Whether several processes share a device. */
    this.several = page.devices.map((_, device) => this.processesOf(device).size > 1);
    /** @type {History[]} */
    this.histories = page.devices.map((_, device) => this.makeHistory(device));
  }

  /** Names of categories that the page's data can have. */
  namesInUse() {
    const { page } = this;
    const names = page.timelines.flatMap((timeline) => timeline.groups.map((group) => categoryOfGroup(group)));
    for (const row of page.report.rows) names.push(categoryOf(row.path));
    if (page.left_out.count > 0 || page.lives.bytes.length > 0) names.push(NOT_LISTED);
    for (const category of new Set(page.lives.category)) names.push(page.categories[category] ?? "unknown");
    return names;
  }

  /** @param {number} device */
  processesOf(device) {
    const index = this.page.devices[device].index;
    return new Set(this.page.report.rows.filter((row) => row.device === index && row.pid !== null).map((row) => row.pid));
  }

  namePlaces() {
    /** @type {Map<string, number>} */
    const known = new Map([["", 0]]);
    return Uint32Array.from(this.stackParent, (_, stack) => {
      const name = stack === 0 ? "" : this.placeName(stack);
      let place = known.get(name);
      if (place === undefined) {
        place = this.places.length;
        known.set(name, place);
        this.places.push(name);
      }
      return place;
    });
  }

  /**
   * "model.py:58 in Block.forward"
   * @param {number} stack
   */
  placeName(stack) {
    const frame = this.frames[this.placeOf(stack)];
    if (!frame.file) return frame.name;
    return `${baseName(frame.file)}${frame.line > 0 ? `:${frame.line}` : ""} in ${frame.name}`;
  }

  /**
   * How lives get their categories, by number.
   * @returns {(life: number) => number}
   */
  categoryFinder() {
    const { lives, categories } = this.page;
    const unknown = categories.indexOf("unknown");
    const numbers = categories.map((name) => this.categoryIndex.get(name) ?? 0);
    const other = this.categoryIndex.get(OTHER_PLACES);
    return (life) => {
      const category = lives.category[life];
      if (other === undefined || category !== unknown) return numbers[category] ?? 0;
      return this.categoryIndex.get(placeNameOf(this, life)) ?? other;
    };
  }

  /** @param {string[]} path */
  categoryOfPath(path) {
    return this.categoryIndex.get(categoryOf(path)) ?? 0;
  }

  /**
   * Stack ids, callers before callees. Depths come on the way; a damaged table with a cycle is cut.
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

  /** @param {number} device */
  makeHistory(device) {
    const page = this.page;
    const timeline = page.timelines.find((other) => other.device === device);
    let count = 0;
    for (let i = 0; i < this.lifeCount; ++i) count += this.lifeDevice[i] === device ? 1 : 0;
    const lives = new Uint32Array(count);
    for (let i = 0, next = 0; i < this.lifeCount; ++i) {
      if (this.lifeDevice[i] === device) lives[next++] = i;
    }
    return new History(this, lives, timeline);
  }

  /**
   * The number of the iteration that an instant lies in, or null.
   * @param {number} at
   */
  iterationAt(at) {
    const found = this.iterations.find(([, , begin, end]) => begin <= at && at < end);
    return found && found[1] >= 0 ? found[1] : null;
  }

  /**
   * When the device's report was taken: its peak, in nanoseconds from the start.
   * @param {number} device
   */
  peakTime(device) {
    const report = this.reportDevices[device];
    // A device on which nothing was live has no peak.
    if (!report || report.ledger_bytes === 0) return 0;
    return Math.min(this.duration, Math.max(0, report.at.time_ns - this.page.start_ns));
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
   * The frame to name a stack by: the innermost of the user's own, else the innermost.
   * @param {number} stack
   */
  placeOf(stack) {
    for (let id = stack; id !== 0; id = this.stackParent[id]) {
      if (!this.frames[this.stackFrame[id]].library) return this.stackFrame[id];
    }
    return this.stackFrame[stack];
  }

  /**
   * Lives of the device at an instant, as indices into the columns.
   * @param {number} device
   * @param {number} at
   */
  liveAt(device, at) {
    const { lives } = this.histories[device];
    const live = [];
    for (const life of lives) {
      if (this.lifeAlloc[life] <= at && this.lifeFree[life] > at) live.push(life);
    }
    return live;
  }
}
