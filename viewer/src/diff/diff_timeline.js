// SPDX-License-Identifier: Apache-2.0
// The histories of A and B below each other, with one scale of bytes. The time axis counts iterations or begins at each start.
import { categoryOfGroup } from "../model/category.js";
import { h } from "../dom/dom.js";
import { bytesStep, formatBytes, formatTick, timeStep } from "../base/format.js";
import { KNOWN, inOrder } from "../model/palette.js";

/** @typedef {import("./diff.js").History} History */

const HEIGHT = 150;
const LEFT = 66;
const FOOT = 18;
const SPARE = ["#3f7d4e", "#b08bd0", "#4f8fa8", "#6b7a2f"];

/**
 * @param {string} tag
 * @param {Record<string, string|number>} attributes
 * @param {...(Node|string)} children
 */
function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/**
 * A time in units of iterations: 2.5 is the middle of the third. The parts before the first and after the last have width 1.
 * @param {History} history
 * @param {number} time
 */
export function inIterations(history, time) {
  const all = history.iterations;
  if (time < all[0][0]) return all[0][0] > 0 ? time / all[0][0] - 1 : -1;
  for (let number = 0; number < all.length; ++number) {
    const [begin, end] = all[number];
    if (time <= end || (number + 1 < all.length && time < all[number + 1][0])) {
      return number + Math.min(1, Math.max(0, (time - begin) / Math.max(1, end - begin)));
    }
  }
  const last = all[all.length - 1][1];
  return all.length + Math.min(1, (time - last) / Math.max(1, history.duration_ns - last));
}

/** @param {History} history */
function heights(history) {
  return history.time_ns.map((_, bucket) => history.bytes.reduce((sum, band) => sum + band[bucket], 0));
}

export class HistoryPair {
  /** @param {import("./diff.js").Page} page */
  constructor(page) {
    this.page = page;
    this.device = 0;
    const { a, b } = page.histories;
    this.pairs = Array.from({ length: Math.max(a.length, b.length) }, (_, i) => ({ a: a[i], b: b[i] }));
    this.possible = this.pairs.some(({ a: x, b: y }) => x && y && x.iterations.length > 1 && y.iterations.length > 1);
    this.by_iteration = this.possible;
    this.area = h("div", { class: "histories" });
    this.legend = h("div", { class: "legend-line" });
    const align = h("select", { class: "size", "aria-label": "Alignment of A and B",
      change: (/** @type {Event} */ event) => {
        this.by_iteration = /** @type {HTMLSelectElement} */ (event.target).value === "iteration";
        this.draw();
      } }, h("option", { value: "iteration" }, "by iteration"), h("option", { value: "start" }, "by time since start"));
    const device = h("select", { class: "size", "aria-label": "Device",
      change: (/** @type {Event} */ event) => {
        this.device = Number(/** @type {HTMLSelectElement} */ (event.target).value);
        this.draw();
      } }, ...this.pairs.map(({ a: x, b: y }, index) => h("option", { value: index }, (y ?? x).name)));
    this.element = h("section", { class: "card" },
      h("div", { class: "card-head" }, h("h2", {}, "Over time"), h("span", { class: "hint" }, "stacked by category; each pixel shows its maximum"),
        this.pairs.length > 1 ? device : null, this.possible ? align : null), this.legend, this.area);
    if (this.pairs.length === 0) this.element.classList.add("gone");
  }

  draw() {
    const pair = this.pairs[this.device];
    if (!pair) return;
    const sides = /** @type {[string, History][]} */ ([["A", pair.a], ["B", pair.b]].filter(([, side]) => side));
    const groups = inOrder(sides.flatMap(([, side]) => side.groups.filter((_, i) => side.bytes[i].some((bytes) => bytes > 0))));
    // Every level of driver memory has the colour of the driver.
    const swatchOf = (/** @type {string} */ name) => KNOWN.find((swatch) => swatch.name === name) ??
      (categoryOfGroup(name) === "driver" ? KNOWN.find((swatch) => swatch.name === "driver") : undefined);
    const spare = groups.filter((name) => !swatchOf(name));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const colour = (/** @type {string} */ name) => {
      const known = swatchOf(name);
      return known ? (dark ? known.dark : known.light) : SPARE[spare.indexOf(name) % SPARE.length];
    };
    const top = Math.max(1, ...sides.map(([, side]) => Math.max(...heights(side))));
    const iterations = this.by_iteration && sides.every(([, side]) => side.iterations.length > 0);
    const ends = sides.map(([, side]) => (iterations ? side.iterations.length + 1 : side.duration_ns));
    const begin = iterations ? -1 : 0;
    const end = Math.max(...ends, begin + 1e-9);
    const width = Math.max(240, this.area.clientWidth);
    const x = (/** @type {History} */ side, /** @type {number} */ time) =>
      LEFT + (((iterations ? inIterations(side, time) : time) - begin) / (end - begin)) * (width - LEFT - 2);
    const y = (/** @type {number} */ bytes) => 8 + (1 - bytes / top) * (HEIGHT - 8);
    this.area.replaceChildren(...sides.map(([letter, side]) => {
      const chart = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT + FOOT}`, width, height: HEIGHT + FOOT, role: "img",
        "aria-label": `${letter}: bytes over time, ${formatBytes(Math.max(...heights(side)))} at most` });
      for (let bytes = 0, step = bytesStep(top, 3); bytes <= top; bytes += step) {
        chart.append(svg("line", { x1: LEFT, x2: width, y1: y(bytes), y2: y(bytes), class: "grid" }),
          svg("text", { x: LEFT - 8, y: y(bytes) + 4, class: "tick end" }, formatBytes(bytes)));
      }
      const sum = side.time_ns.map(() => 0);
      for (const name of groups) {
        const band = side.bytes[side.groups.indexOf(name)];
        if (!band) continue;
        const outline = [];
        const below = [];
        for (let i = 0; i < band.length; ++i) {
          const [from, to] = [x(side, side.time_ns[i]), x(side, side.time_ns[i + 1] ?? side.duration_ns)];
          below.push(`${from.toFixed(1)},${y(sum[i]).toFixed(1)}`, `${to.toFixed(1)},${y(sum[i]).toFixed(1)}`);
          sum[i] += band[i];
          outline.push(`${from.toFixed(1)},${y(sum[i]).toFixed(1)}`, `${to.toFixed(1)},${y(sum[i]).toFixed(1)}`);
        }
        chart.append(svg("polygon", { points: [...outline, ...below.reverse()].join(" "), fill: colour(name) },
          svg("title", {}, name)));
      }
      const most = Math.max(2, Math.floor((width - LEFT) / 90));
      const step = iterations ? Math.max(1, Math.ceil((end - begin) / most)) : timeStep(end, most);
      for (let at = 0; at <= end + 1e-9; at += step) {
        const place = LEFT + ((at - begin) / (end - begin)) * (width - LEFT - 2);
        chart.append(svg("text", { x: Math.min(place, width - 14), y: HEIGHT + 13, class: "tick" },
          iterations ? String(at) : formatTick(at, step)));
      }
      chart.append(svg("text", { x: 0, y: 14, class: "side" }, letter));
      return chart;
    }));
    this.legend.replaceChildren(...groups.map((name) => h("span", { class: "legend-chip" },
      h("span", { class: "swatch", style: `background:${colour(name)}` }), h("span", {}, name))));
  }
}
