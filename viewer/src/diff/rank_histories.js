// SPDX-License-Identifier: Apache-2.0
// The histories of all ranks as lines over one time axis. The heaviest and the median are highlighted.
import { MARGIN, bytesToY, paintAxes } from "../timeline/axis.js";
import { forgetColours, h, perFrame, sized, styleColours, tip } from "../dom/dom.js";
import { formatBytes, formatTime } from "../base/format.js";
import { lastNotAbove } from "../model/events.js";

/** @typedef {import("./ranks.js").Page} Page */

const HEIGHT = 320;
// The tip lists this many ranks: those with most bytes at the pointer.
const TOLD = 12;

export class RankHistories {
  /** @param {Page} page */
  constructor({ report, histories }) {
    this.names = report.ranks.map(({ name }) => name);
    this.heaviest = this.names.indexOf(report.heaviest ?? "");
    this.median = this.names.indexOf(report.median ?? "");
    this.times = histories.map(({ t }) => Float64Array.from(t));
    this.bytes = histories.map(({ bytes }) => bytes);
    this.ends = histories.map(({ end }) => end);
    this.end = this.ends.reduce((a, b) => Math.max(a, b), 1);
    this.top = 1.05 * this.bytes.reduce((most, of) => of.reduce((a, b) => Math.max(a, b), most), 1);
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "devices-axis", role: "img",
      "aria-label": `Memory of ${this.names.length} ranks over time, one line each; the table below lists their peaks` }));
    const key = (/** @type {string} */ name, /** @type {string} */ colour) => h("span", { class: "legend-chip" },
      h("span", { class: "line-swatch", style: `border-color:var(--${colour})` }), name);
    this.element = h("section", { class: "card", "aria-label": "Over time" },
      h("div", { class: "card-head" }, h("h2", {}, "Over time"),
        h("span", { class: "hint" }, "bytes of each rank over time (host clocks)")),
      h("div", { class: "legend-line" }, key(`heaviest: ${report.heaviest}`, "bad"), key(`median: ${report.median}`, "accent"), key("the others", "ink-faint")),
      this.canvas);
    this.width = 0;
    this.draw = perFrame(() => this.paint());
    new ResizeObserver(() => {
      this.width = this.canvas.clientWidth;
      this.draw();
    }).observe(this.canvas);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      forgetColours();
      this.draw();
    });
    this.canvas.addEventListener("pointermove", (event) => this.describe(event));
    this.canvas.addEventListener("pointerleave", () => tip.hide());
  }

  get plotWidth() {
    return Math.max(1, this.width - MARGIN.left - MARGIN.right);
  }

  /** @param {number} time */
  xOf(time) {
    return MARGIN.left + (time / this.end) * this.plotWidth;
  }

  /** @param {number} bytes */
  yOf(bytes) {
    return bytesToY(bytes, this.top, HEIGHT);
  }

  paint() {
    if (this.width === 0) return;
    this.canvas.style.height = `${HEIGHT}px`;
    const colours = styleColours();
    const context = sized(this.canvas, this.width, HEIGHT);
    paintAxes(context, colours, { width: this.width, height: HEIGHT, top: this.top, window: [0, this.end] });
    const stands = (/** @type {number} */ rank) => (rank === this.heaviest ? 2 : rank === this.median ? 1 : 0);
    for (const rank of [...this.names.keys()].sort((a, b) => stands(a) - stands(b))) {
      context.strokeStyle = [colours.faint, colours.accent, colours.bad][stands(rank)];
      context.globalAlpha = stands(rank) > 0 ? 1 : 0.6;
      context.lineWidth = stands(rank) > 0 ? 2 : 1;
      context.stroke(this.lineOf(rank));
    }
    context.globalAlpha = 1;
  }

  /** @param {number} rank */
  lineOf(rank) {
    const line = new Path2D();
    const [times, bytes] = [this.times[rank], this.bytes[rank]];
    for (let i = 0; i < times.length; ++i) {
      const y = this.yOf(bytes[i]);
      if (i === 0) line.moveTo(this.xOf(times[i]), y);
      else line.lineTo(this.xOf(times[i]), y);
      line.lineTo(this.xOf(i + 1 < times.length ? times[i + 1] : Math.max(times[i], this.ends[rank])), y);
    }
    return line;
  }

  /** @param {PointerEvent} event */
  describe(event) {
    const share = (event.offsetX - MARGIN.left) / this.plotWidth;
    if (share < 0 || share > 1) {
      tip.hide();
      return;
    }
    const time = share * this.end;
    const had = this.names.map((name, rank) => {
      const at = lastNotAbove(this.times[rank], time);
      return { name, bytes: at < 0 || time > this.ends[rank] ? 0 : this.bytes[rank][at] };
    }).sort((a, b) => b.bytes - a.bytes);
    tip.show(event.clientX, event.clientY, h("div", { class: "tip-head" }, h("span", {}, formatTime(time))),
      ...had.slice(0, TOLD).map(({ name, bytes }) => h("div", { class: "tip-row" }, h("span", {}), h("span", {}, name), h("b", {}, formatBytes(bytes)))),
      had.length > TOLD ? h("div", { class: "soft" }, `and ${had.length - TOLD} smaller`) : "");
  }
}
