// SPDX-License-Identifier: Apache-2.0
// All devices on one axis: a line a device, over the timeline's window.
import { WindowAxis } from "./axis.js";
import { h, perFrame, sized, styleColours, tip } from "./dom.js";
import { bytesStep, formatBytes, formatTime } from "./format.js";
import { deviceLabel } from "./header.js";
import { MARGIN } from "./timeline_picture.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").Store} Store */
/** @typedef {import("./view.js").View} View */

const HEIGHT = 300;
// Hues of the palette that are easiest to tell apart; beyond them lines are dashed.
const HUES = ["#4071b9", "#cf6f19", "#36a17f", "#633792", "#84180e", "#885828", "#4f8fa8", "#6b7a2f"];
const DASHES = [[], [6, 3], [2, 3]];

export class DevicesView {
  /**
   * @param {Model} model
   * @param {Store} store
   */
  constructor(model, store) {
    this.model = model;
    this.store = store;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "devices-axis", role: "img", "aria-label": "Total of each device over time" }));
    this.legend = h("div", { class: "legend-line" });
    this.hint = "the ledger's total of each device · click: that instant, on the nearest line's device";
    this.copy = h("span", {});
    this.element = h("div", {}, this.legend, this.canvas);
    /** @type {Float64Array[]} By device, by column. */
    this.totals = [];
    this.key = "";
    this.top = 1;
    this.axis = new WindowAxis(model, store, this.canvas);
    this.draw = perFrame(() => this.paint());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.describe(event));
    this.canvas.addEventListener("pointerleave", () => tip.hide());
    this.canvas.addEventListener("click", (event) => {
      const device = this.nearest(event.offsetX, event.offsetY);
      if (device >= 0) store.set({ device, at: Math.round(this.axis.timeAt(event.offsetX)) });
    });
    this.axis.whenItRests(this.draw);
  }

  /** @param {number} bytes */
  yOf(bytes) {
    return HEIGHT - MARGIN.bottom - (bytes / this.top) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  }

  /** @param {View} view */
  render(view) {
    this.view = view;
    this.legend.replaceChildren(...this.model.page.devices.map((device, index) => h("button", {
      class: "legend-chip", type: "button", "aria-pressed": String(index === view.device), click: () => this.store.set({ device: index }),
    }, h("span", { class: "line-swatch", style: `border-color:${HUES[index % HUES.length]}` }),
    h("span", {}, `${deviceLabel(device)} ${formatBytes(this.model.histories[index].events.sumsAt(view.at).reduce((a, b) => a + b, 0))}`))));
    this.draw();
  }

  measure() {
    const [from, to] = this.axis.window;
    const count = Math.floor(this.axis.width);
    const key = `${from},${to},${count}`;
    if (key === this.key || !this.view) return;
    this.key = key;
    const { filter } = this.view;
    this.totals = this.model.histories.map((history) => (filter.on ? history.events.sweep(from, to, count) : history.columns(from, to, count, filter)).total);
    this.top = 1.05 * this.totals.reduce((most, totals) => totals.reduce((a, b) => Math.max(a, b), most), 1);
  }

  paint() {
    const width = this.canvas.clientWidth;
    if (width === 0 || !this.view) return;
    this.measure();
    this.canvas.style.height = `${HEIGHT}px`;
    const colours = styleColours();
    const context = sized(this.canvas, width, HEIGHT);
    context.font = `11px ${colours.font}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const step = bytesStep(this.top, 6);
    for (let bytes = 0; bytes <= this.top; bytes += step) {
      context.fillStyle = colours.line;
      context.fillRect(MARGIN.left, Math.round(this.yOf(bytes)), this.axis.width, 1);
      context.fillStyle = colours.soft;
      context.fillText(bytes === 0 ? "0" : formatBytes(bytes).replace(/\.0+ /, " "), MARGIN.left - 8, this.yOf(bytes));
    }
    context.textAlign = "center";
    for (const { x, text } of this.axis.ticks()) context.fillText(text, x, HEIGHT - MARGIN.bottom + 12);
    this.totals.forEach((totals, device) => {
      const line = new Path2D();
      totals.forEach((bytes, column) => {
        if (column > 0) line.lineTo(MARGIN.left + column, this.yOf(totals[column - 1]));
        line.lineTo(MARGIN.left + column, this.yOf(bytes));
      });
      context.strokeStyle = HUES[device % HUES.length];
      context.setLineDash(DASHES[Math.floor(device / HUES.length) % DASHES.length]);
      context.lineWidth = device === this.view?.device ? 2.5 : 1.25;
      context.stroke(line);
    });
    context.setLineDash([]);
    context.fillStyle = colours.accent;
    if (this.axis.shows(this.view.at)) context.fillRect(this.axis.xOf(this.view.at) - 0.75, MARGIN.top, 1.5, HEIGHT - MARGIN.top - MARGIN.bottom);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  nearest(x, y) {
    const column = Math.min(this.axis.width - 1, Math.max(0, Math.floor(x - MARGIN.left)));
    const away = (/** @type {number} */ device) => Math.abs(this.yOf(this.totals[device]?.[column] ?? 0) - y);
    return this.totals.reduce((best, _, device) => (best < 0 || away(device) < away(best) ? device : best), -1);
  }

  /** @param {PointerEvent} event */
  describe(event) {
    const column = Math.floor(event.offsetX - MARGIN.left);
    if (column < 0 || column >= (this.totals[0]?.length ?? 0)) {
      tip.hide();
      return;
    }
    tip.show(event.clientX, event.clientY, h("div", { class: "tip-head" }, h("span", {}, formatTime(this.axis.timeAt(event.offsetX)))),
      ...this.totals.map((totals, device) => h("div", { class: "tip-row" }, h("span", { class: "line-swatch", style: `border-color:${HUES[device % HUES.length]}` }),
        h("span", {}, deviceLabel(this.model.page.devices[device])), h("b", {}, formatBytes(totals[column])))));
  }
}
