// SPDX-License-Identifier: Apache-2.0
// The lifetime of each allocation as a bar, by layer or line, over the timeline's window. The largest product of bytes
// and time comes first.
import { MARGIN, WindowAxis } from "../timeline/axis.js";
import { Choice } from "../dom/choice.js";
import { h, perFrame, sized, styleColours, swatch, tip } from "../dom/dom.js";
import { formatAllocations, formatBytes, formatCount, formatTime } from "../base/format.js";
import { NO_MODULE } from "../base/names.js";
import { foldRepeated } from "../base/repeats.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/palette.js").Palette} Palette */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/view.js").View} View */
/** @typedef {import("../model/filter.js").Filter} Filter */

/** @typedef {"module"|"line"|"category"} Group */

/**
 * @typedef {object} Lane
 * @property {number} y
 * @property {number[]} allocations Ordered by begin, without overlap.
 */

/**
 * @typedef {object} Band
 * @property {string} name
 * @property {boolean|null} open Whether a group of repeated layers is open; null: not a group.
 * @property {boolean} inner A layer of an open group.
 * @property {number} y
 * @property {number} count
 * @property {number} bytes Sum of all drawn allocations, not of those live at one time.
 * @property {Lane[]} lanes
 * @property {number} hidden Allocations without room in a lane.
 */

const DRAWN = 4000;
const LANES = 10;
const BANDS = 60;
const LANE = 7;
const TITLE = 20;
const AXIS = 22;

/**
 * The number at a place of the sorted order (quickselect; reorders the numbers without sorting them).
 * @param {Float64Array} numbers
 * @param {number} place
 */
function selected(numbers, place) {
  let [low, high] = [0, numbers.length - 1];
  while (low < high) {
    const pivot = numbers[(low + high) >> 1];
    let [left, right] = [low, high];
    while (left <= right) {
      while (numbers[left] < pivot) ++left;
      while (numbers[right] > pivot) --right;
      if (left > right) break;
      const number = numbers[left];
      numbers[left++] = numbers[right];
      numbers[right--] = number;
    }
    if (place <= right) high = right;
    else if (place >= left) low = left;
    else break;
  }
  return numbers[place];
}

/**
 * The `limit` heaviest items in input order. Ties keep the first.
 * @param {number[]} all
 * @param {(i: number) => number} weightOf
 * @param {number} limit
 */
export function heaviestOf(all, weightOf, limit) {
  if (all.length <= limit) return all;
  const weights = new Float64Array(all.length);
  for (let at = 0; at < all.length; ++at) weights[at] = weightOf(all[at]);
  const least = selected(weights.slice(), all.length - limit);
  let room = limit;
  for (let at = 0; at < all.length; ++at) room -= Number(weights[at] > least);
  const kept = [];
  for (let at = 0; at < all.length; ++at) {
    if (weights[at] > least || (weights[at] === least && room-- > 0)) kept.push(all[at]);
  }
  return kept;
}

/**
 * Groups repeated layers; the largest product of bytes and time comes first.
 * @param {Model} model
 * @param {Map<string, {weight: number, bytes: number, all: number[]}>} groups
 * @param {Group} group
 * @param {Set<string>} unfolded
 */
function foldBands({ page, begin }, groups, group, unfolded) {
  const bands = [...groups.entries()].map(([name, of]) => ({ name, ...of, open: /** @type {boolean|null} */ (null), inner: false }));
  bands.sort((a, b) => b.bytes - a.bytes);
  // Compare all allocations of the layers, because the drawn ones differ from layer to layer.
  const folded = foldRepeated(bands, ({ name }) => ({
    name, type: group === "module" ? page.module_types[name] ?? "" : name, bytes: 0, holds: "",
  }));
  const rows = folded.map(({ name, items }) => {
    if (items.length === 1) return { ...items[0], below: [] };
    const sum = (/** @type {"weight"|"bytes"} */ key) => items.reduce((total, band) => total + band[key], 0);
    const all = items.flatMap((band) => band.all).sort((a, b) => begin[a] - begin[b]);
    return { name: `${name} x${items.length}`, weight: sum("weight"), bytes: sum("bytes"), all, open: unfolded.has(`${name} x${items.length}`), inner: false, below: items };
  });
  rows.sort((a, b) => b.weight - a.weight);
  return rows.flatMap(({ below, ...row }) => [row, ...(row.open ? below.map((band) => ({ ...band, inner: true })) : [])]);
}

/**
 * Runs all steps at once.
 * @template Result
 * @param {Generator<void, Result>} steps
 */
function finish(steps) {
  let step = steps.next();
  while (!step.done) step = steps.next();
  return step.value;
}

/**
 * The drawn allocations of a window, ordered by time. If there are too many: those with the largest bytes times time.
 * @param {Model} model
 * @param {Filter} filter
 * @param {number} device
 * @param {[number, number]} window
 * @returns {Generator<void, {drawn: number[], hidden: number}>} In steps.
 */
function* chooseDrawn(model, filter, device, [from, to]) {
  const { begin, end, bytes } = model;
  const of = (/** @type {number} */ i) => bytes[i] * (Math.min(end[i], to) - Math.max(begin[i], from));
  const inside = [];
  for (const i of model.allocationsOf(device)) {
    if (begin[i] >= to) break;
    if (end[i] > from && filter.passes(i)) inside.push(i);
  }
  yield;
  const drawn = heaviestOf(inside, of, DRAWN).sort((a, b) => begin[a] - begin[b] || of(b) - of(a));
  return { drawn, hidden: inside.length - drawn.length };
}

/**
 * The bands of a window.
 * @param {Model} model
 * @param {Filter} filter
 * @param {number} device
 * @param {[number, number]} window
 * @param {Group} group
 * @param {Set<string>} [unfolded] Repeated layers that the reader opened.
 */
export function layOutLifetimes(model, filter, device, window, group, unfolded = new Set()) {
  return layOutBands(model, finish(chooseDrawn(model, filter, device, window)), window, group, unfolded);
}

/**
 * @param {Model} model
 * @param {{drawn: number[], hidden: number}} chosen
 * @param {[number, number]} window
 * @param {Group} group
 * @param {Set<string>} unfolded
 * @returns {{bands: Band[], height: number, hidden: number}}
 */
function layOutBands(model, { drawn, hidden: hiddenBefore }, [from, to], group, unfolded) {
  const { page, kinds, begin, end, bytes } = model;
  const of = (/** @type {number} */ i) => bytes[i] * (Math.min(end[i], to) - Math.max(begin[i], from));
  const nameOf = (/** @type {number} */ kind) => (group === "category" ? model.categories[kinds.category[kind]]
    : group === "module" ? page.names[kinds.module[kind]] || NO_MODULE : page.names[kinds.line[kind]] || "(no line)");
  /** @type {Map<string, {weight: number, bytes: number, all: number[]}>} */
  const groups = new Map();
  for (const i of drawn) {
    const name = nameOf(page.allocations.site[i]);
    const found = groups.get(name) ?? { weight: 0, bytes: 0, all: [] };
    found.weight += of(i);
    found.bytes += bytes[i];
    found.all.push(i);
    groups.set(name, found);
  }
  let y = AXIS;
  let hidden = hiddenBefore;
  /** @type {Band[]} */
  const bands = [];
  for (const { name, all, bytes: sum, open, inner } of foldBands(model, groups, group, unfolded)) {
    if (bands.length === BANDS) {
      hidden += open === true ? 0 : all.length;
      continue;
    }
    /** @type {Band} */
    const band = { name, open, inner, y, count: all.length, bytes: sum, lanes: [], hidden: 0 };
    bands.push(band);
    y += TITLE;
    // Its layers are drawn instead.
    if (open === true) continue;
    for (const i of all) {
      let lane = band.lanes.find(({ allocations }) => end[allocations[allocations.length - 1]] <= begin[i]);
      if (!lane && band.lanes.length < LANES) band.lanes.push(lane = { y: y + band.lanes.length * LANE, allocations: [] });
      if (lane) lane.allocations.push(i);
      else ++band.hidden;
    }
    hidden += band.hidden;
    y += band.lanes.length * LANE + 4;
  }
  return { bands, height: y, hidden };
}

export class Lifetimes {
  /**
   * @param {Model} model
   * @param {Palette} palette
   * @param {Store} store
   */
  constructor(model, palette, store) {
    this.model = model;
    this.palette = palette;
    this.store = store;
    /** @type {Group} */
    this.group = model.kinds.module.some((module) => module !== 0) ? "module" : "line";
    this.by = new Choice("Lifetimes by", [["module", "Layer"], ["line", "Line"], ["category", "Category"]], (group) => {
      this.group = /** @type {Group} */ (group);
      if (this.view) this.render(this.view);
    });
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "lifetimes", role: "img" }));
    this.text = h("p", { class: "soft" });
    this.hint = "over the window of the timeline · click to inspect an instant";
    this.copy = h("span", {});
    this.element = h("div", {}, h("div", { class: "tools" }, this.by.element, this.text), h("div", { class: "lifetimes-scroll" }, this.canvas));
    /** @type {Set<string>} Repeated layers that are open. */
    this.unfolded = new Set();
    this.fold = h("button", { class: "chip", type: "button", click: () => this.openAll() });
    this.by.element.after(this.fold);
    this.axis = new WindowAxis(model, store, this.canvas);
    this.layout = { bands: /** @type {Band[]} */ ([]), height: 0, hidden: 0 };
    /** @type {unknown[]} What the layout was made of: another instant leaves it as it is. */
    this.laidOut = [];
    /** @type {unknown[]} What was chosen, and for what. */
    this.chosenFor = [];
    this.chosen = { drawn: /** @type {number[]} */ ([]), hidden: 0 };
    this.draw = perFrame(() => this.paint());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.describe(event));
    this.canvas.addEventListener("pointerleave", () => tip.hide());
    this.canvas.addEventListener("click", (event) => {
      const title = this.layout.bands.find(({ y, open }) => open !== null && event.offsetY >= y && event.offsetY < y + TITLE);
      if (title) this.toggle(title.name);
      else store.set({ at: Math.round(this.axis.timeAt(event.offsetX)) });
    });
    this.axis.whenItRests(() => { if (this.view) this.render(this.view); });
  }

  /** @param {string} name */
  toggle(name) {
    if (!this.unfolded.delete(name)) this.unfolded.add(name);
    this.redraw();
  }

  /** Opens or closes all repeated layers, so that it works without a pointer. */
  openAll() {
    const closed = this.layout.bands.filter(({ open }) => open === false);
    this.unfolded = new Set(closed.map(({ name }) => name));
    this.redraw();
  }

  redraw() {
    this.laidOut = [];
    if (this.view) this.render(this.view);
  }

  /**
   * The slow half of the work.
   * @param {View} view
   */
  * choosing(view) {
    const { window } = this.axis;
    const wanted = [view.filter, view.device, ...window];
    if (wanted.every((each, at) => each === this.chosenFor[at])) return;
    const chosen = yield* chooseDrawn(this.model, view.filter, view.device, window);
    this.chosenFor = wanted;
    this.chosen = chosen;
  }

  /** @param {View} view */
  render(view) {
    this.view = view;
    this.by.show(this.group);
    const { window } = this.axis;
    const wanted = [view.filter, view.device, ...window, this.group];
    if (wanted.some((each, at) => each !== this.laidOut[at])) {
      this.laidOut = wanted;
      finish(this.choosing(view));
      this.layout = layOutBands(this.model, this.chosen, window, this.group, this.unfolded);
    }
    const { bands, hidden } = this.layout;
    const { left_out: leftOut } = this.model.page;
    const unlisted = leftOut.count > 0 ? `; ${formatCount(leftOut.count)} small or short-lived ones are only in the sums` : "";
    this.fold.textContent = bands.some(({ open }) => open === false) ? "Open repeated layers" : "Group repeated layers";
    this.fold.classList.toggle("gone", bands.every(({ open }) => open === null));
    const drawn = bands.reduce((sum, band) => sum + (band.open === true ? 0 : band.count - band.hidden), 0);
    this.text.textContent = `${formatAllocations(drawn)} in this window` +
      `${hidden > 0 ? `, the heaviest; ${formatCount(hidden)} others are not drawn` : ""}${unlisted}`;
    this.canvas.setAttribute("aria-label", `Lifetimes: ${this.text.textContent}`);
    this.draw();
  }

  paint() {
    const width = this.canvas.clientWidth;
    if (width === 0 || !this.view) return;
    const { bands, height } = this.layout;
    this.canvas.style.height = `${height}px`;
    const colours = styleColours();
    const context = sized(this.canvas, width, height);
    const { kinds, page, begin, end } = this.model;
    const [from, to] = this.axis.window;
    const { width: axisWidth } = this.axis;
    const xOf = (/** @type {number} */ time) => MARGIN.left + (Math.max(0, time - from) / (to - from)) * axisWidth;
    context.font = `11px ${colours.font}`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const { x, text } of this.axis.ticks()) {
      context.fillStyle = colours.line;
      context.fillRect(Math.round(x), AXIS - 4, 1, height);
      context.fillStyle = colours.soft;
      context.fillText(text, x, 8);
    }
    context.textAlign = "left";
    for (const band of bands) {
      context.fillStyle = colours.ink;
      const title = `${band.inner ? "    " : ""}${band.open === null ? "" : band.open ? "▾ " : "▸ "}${band.name}`;
      context.fillText(title, 4, band.y + TITLE / 2);
      const name = context.measureText(title).width;
      context.fillStyle = colours.soft;
      context.fillText(`${formatBytes(band.bytes)} allocated over time, in ${formatAllocations(band.count)}${band.hidden > 0 ? `, ${formatCount(band.hidden)} not drawn` : ""}`,
        14 + name, band.y + TITLE / 2);
      for (const { y, allocations } of band.lanes) {
        for (const i of allocations) {
          const x = xOf(begin[i]);
          const right = xOf(Math.min(end[i], to));
          context.fillStyle = this.palette.fill(context, kinds.category[page.allocations.site[i]]);
          context.fillRect(x, y, Math.max(1, right - x - (right - x > 3 ? 0.5 : 0)), LANE - 1);
        }
      }
    }
    context.fillStyle = colours.accent;
    if (this.axis.shows(this.view.at)) context.fillRect(this.axis.xOf(this.view.at) - 0.75, AXIS - 4, 1.5, height);
  }

  /** @param {PointerEvent} event */
  describe(event) {
    const { model, model: { page, kinds, begin, end, bytes } } = this;
    const lane = this.layout.bands.flatMap(({ lanes }) => lanes).find(({ y }) => event.offsetY >= y && event.offsetY < y + LANE);
    const at = this.axis.timeAt(event.offsetX);
    const slack = this.axis.timeAt(event.offsetX + 2) - at;
    const i = lane?.allocations.find((each) => begin[each] <= at + slack && end[each] >= at - slack);
    if (i === undefined) {
      tip.hide();
      return;
    }
    const kind = page.allocations.site[i];
    const lasted = end[i] < Infinity ? `lived ${formatTime(end[i] - begin[i])}, freed at ${formatTime(end[i])}` : "never freed";
    tip.show(event.clientX, event.clientY,
      h("div", { class: "tip-head" }, h("span", {}, page.names[kinds.name[kind]] || page.names[kinds.line[kind]] || "allocation"), h("b", {}, formatBytes(bytes[i]))),
      h("div", { class: "tip-row" }, swatch(kinds.category[kind]), h("span", {}, model.categories[kinds.category[kind]]), h("span", {})),
      h("div", { class: "soft" }, `from ${formatTime(begin[i])}, ${lasted}`),
      h("div", { class: "soft" }, [page.names[kinds.module[kind]], page.names[kinds.line[kind]]].filter(Boolean).join(" · ")));
  }
}
