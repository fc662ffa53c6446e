// SPDX-License-Identifier: Apache-2.0
// The totals of all devices, or of all processes (ranks), as lines over the timeline's window.
import { MARGIN, WindowAxis, bytesToY, paintAxes } from "../timeline/axis.js";
import { Choice } from "../dom/choice.js";
import { h, perFrame, sized, styleColours, tip } from "../dom/dom.js";
import { formatBytes, formatCount, formatExact, formatTime } from "../base/format.js";
import { deviceLabel } from "./header.js";
import { processOf } from "../model/tree_paths.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/palette.js").Palette} Palette */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/view.js").View} View */
/** @typedef {import("../model/events.js").Events} Events */

/**
 * @typedef {object} Line
 * @property {string} name
 * @property {number} device
 * @property {Events} events
 */

const HEIGHT = 300;
const DASHES = [[], [6, 3], [2, 3]];
// More lines are unreadable.
const MOST_LINES = 32;

/**
 * The accounts of the page that belong to a process.
 * @param {Model} model
 */
function accountsOf(model) {
  const { accounts } = model.page;
  return [...accounts.process.keys()].filter((account) => accounts.process[account] !== 0 && accounts.device[account] < model.page.devices.length);
}

/**
 * Whether there is anything to compare.
 * @param {Model} model
 */
export function hasSeveral(model) {
  return model.page.devices.length > 1 || accountsOf(model).length > 1;
}

export class DevicesView {
  /**
   * @param {Model} model
   * @param {Palette} palette
   * @param {Store} store
   */
  constructor(model, palette, store) {
    this.model = model;
    this.palette = palette;
    this.store = store;
    this.accounts = accountsOf(model);
    this.byProcess = model.page.devices.length === 1;
    this.by = new Choice("One line for each", [["device", "Device"], ["process", "Process"]], (chosen) => {
      this.byProcess = chosen === "process";
      if (this.view) this.render(this.view);
    });
    const ranks = new Set(this.accounts.map((account) => model.page.accounts.process[account])).size > 1;
    this.by.element.classList.toggle("gone", !ranks || model.page.devices.length === 1);
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "devices-axis", role: "img", "aria-label": "Totals over time, one line each" }));
    this.legend = h("div", { class: "legend-line" });
    this.text = h("span", { class: "soft" });
    this.hint = "totals of the ledger on one axis · click to inspect an instant on the device of the nearest line";
    this.copy = h("span", {});
    this.element = h("div", {}, h("div", { class: "tools" }, this.by.element, this.text), this.legend, this.canvas);
    /** @type {Line[]} */
    this.lines = [];
    this.linesKey = "";
    /** @type {Float64Array[]} By line, by column. */
    this.totals = [];
    this.key = "";
    this.top = 1;
    this.axis = new WindowAxis(model, store, this.canvas);
    this.draw = perFrame(() => this.paint());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.describe(event));
    this.canvas.addEventListener("pointerleave", () => tip.hide());
    this.canvas.addEventListener("click", (event) => {
      const line = this.lines[this.nearest(event.offsetX, event.offsetY)];
      if (line) store.set({ device: line.device, at: Math.round(this.axis.timeAt(event.offsetX)) });
    });
    this.axis.whenItRests(this.draw);
  }

  /** @param {number} bytes */
  yOf(bytes) {
    return bytesToY(bytes, this.top, HEIGHT);
  }

  /**
   * @param {View} view
   * @returns {Line[]}
   */
  chooseLines({ filter }) {
    const { model, model: { page, histories } } = this;
    if (!this.byProcess) {
      return page.devices.map((device, index) => ({ name: deviceLabel(device), device: index, events: histories[index].eventsOf(filter) }));
    }
    const { accounts, sites } = page;
    const lines = this.accounts.map((account) => {
      const device = accounts.device[account];
      const events = histories[device].eventsOf(filter).that(Uint8Array.from(sites.account, (of) => Number(of === account)));
      const where = page.devices.length > 1 ? ` on ${deviceLabel(page.devices[device])}` : "";
      return { name: processOf(model, accounts.process[account]) + where, device, events, peak: events.sweep(0, model.duration, 1).total[0] };
    });
    return lines.sort((a, b) => b.peak - a.peak).slice(0, MOST_LINES);
  }

  /** @param {View} view */
  render(view) {
    if (view.filter !== this.view?.filter || this.linesKey !== String(this.byProcess)) {
      this.lines = this.chooseLines(view);
      this.linesKey = String(this.byProcess);
      this.key = "";
    }
    this.view = view;
    this.by.show(this.byProcess ? "process" : "device");
    const hidden = this.byProcess ? this.accounts.length - this.lines.length : 0;
    this.text.textContent = hidden > 0 ? `the ${MOST_LINES} highest lines; ${formatCount(hidden)} others are not drawn` : "";
    this.draw();
  }

  /** @param {View} view */
  renderLegend(view) {
    this.legend.replaceChildren(...this.lines.map(({ name, device, events }, line) => h("button", {
      class: "legend-chip", type: "button", title: name, "aria-pressed": String(!this.byProcess && device === view.device),
      click: () => this.store.set({ device }),
    }, this.swatch(line), h("span", { class: "legend-name" }, name), this.figure(events, view))));
  }

  /**
   * @param {Events} events
   * @param {View} view
   */
  figure(events, view) {
    const bytes = events.sumsAt(view.at).reduce((a, b) => a + b, 0);
    return h("b", { title: formatExact(bytes) }, formatBytes(bytes));
  }

  /** @param {number} line */
  colour(line) {
    const colours = this.palette.lines();
    return colours[line % colours.length];
  }

  /** @param {number} line */
  swatch(line) {
    return h("span", { class: "line-swatch", style: `border-color:${this.colour(line)}` });
  }

  measure() {
    const [from, to] = this.axis.window;
    const count = Math.floor(this.axis.width);
    const key = `${from},${to},${count}`;
    if (key === this.key || !this.view) return;
    this.key = key;
    const { filter } = this.view;
    this.totals = this.lines.map(({ device, events }) =>
      (this.byProcess || filter.on ? events.sweep(from, to, count) : this.model.histories[device].columns(from, to, count, filter)).total);
    this.top = 1.05 * this.totals.reduce((most, totals) => totals.reduce((a, b) => Math.max(a, b), most), 1);
  }

  paint() {
    const width = this.canvas.clientWidth;
    if (width === 0 || !this.view) return;
    this.measure();
    this.canvas.style.height = `${HEIGHT}px`;
    const colours = styleColours();
    const context = sized(this.canvas, width, HEIGHT);
    paintAxes(context, colours, { width, height: HEIGHT, top: this.top, window: this.axis.window });
    context.lineJoin = "round";
    const hues = this.palette.lines().length;
    this.totals.forEach((totals, at) => {
      const line = new Path2D();
      totals.forEach((bytes, column) => {
        if (column > 0) line.lineTo(MARGIN.left + column, this.yOf(totals[column - 1]));
        line.lineTo(MARGIN.left + column, this.yOf(bytes));
      });
      context.strokeStyle = this.colour(at);
      context.setLineDash(DASHES[Math.floor(at / hues) % DASHES.length]);
      context.lineWidth = !this.byProcess && this.lines[at].device === this.view?.device ? 2.5 : 1.25;
      context.stroke(line);
    });
    context.setLineDash([]);
    context.fillStyle = colours.accent;
    if (this.axis.shows(this.view.at)) context.fillRect(this.axis.xOf(this.view.at) - 0.75, MARGIN.top, 1.5, HEIGHT - MARGIN.top - MARGIN.bottom);
    this.renderLegend(this.view);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  nearest(x, y) {
    const column = Math.min(this.axis.width - 1, Math.max(0, Math.floor(x - MARGIN.left)));
    const away = (/** @type {number} */ line) => Math.abs(this.yOf(this.totals[line]?.[column] ?? 0) - y);
    return this.totals.reduce((best, _, line) => (best < 0 || away(line) < away(best) ? line : best), -1);
  }

  /** @param {PointerEvent} event */
  describe(event) {
    const column = Math.floor(event.offsetX - MARGIN.left);
    if (column < 0 || column >= (this.totals[0]?.length ?? 0)) {
      tip.hide();
      return;
    }
    tip.show(event.clientX, event.clientY, h("div", { class: "tip-head" }, h("span", {}, formatTime(this.axis.timeAt(event.offsetX)))),
      ...this.totals.map((totals, line) => h("div", { class: "tip-row" }, this.swatch(line),
        h("span", {}, this.lines[line].name), h("b", {}, formatBytes(totals[column])))));
  }
}
