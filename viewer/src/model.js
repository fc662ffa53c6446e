// SPDX-License-Identifier: Apache-2.0
// The page's data as columns, and the questions that every view asks of it.
import { categoryOf, categoryOfGroup } from "./category.js";
import { baseName } from "./format.js";
import { History } from "./history.js";
import { NOT_LISTED, OTHER_PLACES, inOrder, isKnown, isPurpose } from "./palette.js";
import { choosePlaces } from "./places.js";

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
    this.lifeProcess = Uint16Array.from(lives.process);
    this.lifeBytes = Float64Array.from(lives.bytes);
    this.lifeAlloc = Float64Array.from(lives.alloc);
    this.lifeFree = Float64Array.from(lives.free, (at) => (at < 0 ? Infinity : at));
    this.lifeStack = Uint32Array.from(lives.stack);
    this.lifePath = Uint32Array.from(lives.path);

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

    const levels = page.timelines.flatMap((timeline) => timeline.groups.map(categoryOfGroup));
    for (const path of page.paths) levels.push(categoryOf(path));
    for (const row of page.report.rows) levels.push(categoryOf(row.path));
    if (page.left_out.count > 0) levels.push(NOT_LISTED);
    /** Where the ledger knows no purposes, places in the program have the colours. */
    this.byPlace = !levels.some(isPurpose);
    const { heaviest, stacked } = this.byPlace ? choosePlaces(this) : { heaviest: [], stacked: [] };
    /** Places with a colour of their own, heaviest first. */
    this.heaviest = heaviest.map((place) => this.places[place]);
    /** Category names in stacking order; views speak of categories by index. */
    this.categories = inOrder([...levels, ...stacked.map((place) => this.places[place]),
      ...(stacked.length > 0 ? [OTHER_PLACES] : [])]);
    this.categoryIndex = new Map(this.categories.map((name, index) => [name, index]));
    this.pathCategory = Uint8Array.from(page.paths, (path) => this.categoryOfPath(path));
    this.lifeCategory = this.findLifeCategories(new Set(stacked));
    /** @type {History[]} */
    this.histories = page.devices.map((_, device) => this.makeHistory(device));
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

  /** @param {Set<number>} coloured Places that have a category of their own. */
  findLifeCategories(coloured) {
    const other = this.categoryIndex.get(OTHER_PLACES);
    return Uint8Array.from(this.lifeBytes, (_, life) => {
      const path = this.pathCategory[this.lifePath[life]];
      if (other === undefined || isKnown(this.categories[path])) return path;
      const place = this.stackPlace[this.lifeStack[life]];
      return coloured.has(place) ? this.categoryIndex.get(this.places[place]) ?? other : other;
    });
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
