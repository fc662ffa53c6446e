// SPDX-License-Identifier: Apache-2.0
// Bytes by category over time. A drag selects a window or moves the chosen instant, the wheel zooms, a click chooses the
// instant that the rest of the page shows.
import { MARGIN, bytesToY } from "./axis.js";
import { formatBytes, formatTime } from "../base/format.js";
import { h, perFrame, sized, styleColours, swatch, tip } from "../dom/dom.js";
import { lastNotAbove } from "../model/events.js";
import { valueAt } from "../model/history.js";
import { Legend, lineLabel, lineSwatch } from "../dom/legend.js";
import { Pointers } from "./timeline_pointers.js";
import { CLICK_PIXELS, OVERVIEW, paintOverview, paintPicture } from "./timeline_picture.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/palette.js").Palette} Palette */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/history.js").Columns} Columns */
/** @typedef {import("../main.js").Scene} Scene */

const SHORTEST_NS = 1000;
const GRIP_PIXELS = 5;
// From this share of the device's memory on, a peak is near its capacity.
const NEAR = 0.6;
// Events processed in one part of the work for a new filter: one or two milliseconds.
const PART_EVENTS = 150_000;

export class Timeline {
  /**
   * @param {Model} model
   * @param {Palette} palette
   * @param {Store} store
   * @param {Scene} scene
   */
  constructor(model, palette, store, scene) {
    this.model = model;
    this.palette = palette;
    this.store = store;
    this.scene = scene;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {
      class: "timeline", tabindex: 0, role: "application",
      "aria-label": "Memory over time by category. Arrow keys choose an instant, square brackets go to the border of an " +
        "iteration, plus and minus zoom, 0 shows all, Escape returns to the peak.",
    }));
    this.pointers = new Pointers();
    this.overview = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "overview", "aria-hidden": "true" }));
    this.legend = new Legend(model, store, () => this.draw());
    this.reset = h("button", { class: "quiet", type: "button", click: () => store.set({ zoom: null }) }, "Show all");
    this.element = h("section", { class: "card", "aria-label": "Timeline" },
      h("div", { class: "card-head" }, h("h2", {}, "Timeline"),
        model.page.counted ? h("span", { class: "hint" }, `${model.page.counted} without times: one second is one of them`) : null,
        h("span", { class: "hint for-mouse" }, "Click to inspect an instant. Drag or wheel to zoom."),
        h("span", { class: "hint for-touch" }, "Tap to inspect an instant. Drag sideways to zoom."),
        this.reset),
      this.legend.element, h("div", { class: "timeline-stack" }, this.canvas, this.pointers.element), this.overview);
    /** The last reported size: reading it from the element would force a layout. */
    this.width = 0;
    this.height = 1;
    /** @type {Columns|null} */
    this.columns = null;
    /** The window and size of `columns`. */
    this.columnsKey = "";
    /**
     * The whole recording at the width of the overview.
     * @type {Columns|null}
     */
    this.whole = null;
    /** @type {import("../model/filter.js").Filter|null} The filter of `whole`. */
    this.wholeFilter = null;
    /**
     * The same without a filter, kept for when a filter is removed.
     * @type {Columns|null}
     */
    this.unfiltered = null;
    this.hover = -1;
    /** @type {{from: number, to: number, act: "zoom"|"pan"|"scrub", window: [number, number]}|null} */
    this.drag = null;
    this.top = 1;
    /** @type {number|null} */
    this.capacity = null;
    this.stillKey = "";
    this.stillFilter = this.wholeFilter;
    this.highest = 1;
    this.lastForeignWheel = -Infinity;
    /** Called when a dragged instant rests. */
    this.rested = () => {};
    this.draw = perFrame(() => this.paint());
    this.listen();
    this.chooseDevice();
  }

  get history() {
    return this.model.histories[this.store.state.device];
  }

  /** NVML's figure and the counters that are shown. */
  get lines() {
    return [this.history.nvml, ...this.legend.counters];
  }

  /** @returns {[number, number]} */
  get window() {
    return this.store.state.zoom ?? [0, this.model.duration];
  }

  chooseDevice() {
    const history = this.history;
    this.highest = history.highest();
    this.whole = this.unfiltered = null;
    this.legend.show(history);
  }

  listen() {
    const { canvas, overview, store } = this;
    store.subscribe((_, changed) => {
      if (changed.has("device")) this.chooseDevice();
      this.draw();
    });
    new ResizeObserver(() => {
      this.width = canvas.clientWidth;
      this.height = canvas.clientHeight;
      this.paint();
    }).observe(canvas);
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => {
      this.drag = null;
      this.rest();
      this.draw();
    });
    canvas.addEventListener("keyup", () => this.rest());
    canvas.addEventListener("dblclick", () => store.set({ zoom: null }));
    canvas.addEventListener("keydown", (event) => this.key(event));
    // A scroll of the page that reaches the canvas continues to scroll the page.
    window.addEventListener("wheel", (event) => {
      if (event.target !== canvas) this.lastForeignWheel = event.timeStamp;
    }, { passive: true });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    overview.addEventListener("pointerdown", (event) => {
      overview.setPointerCapture(event.pointerId);
      this.centre(event);
    });
    overview.addEventListener("pointermove", (event) => {
      if (overview.hasPointerCapture(event.pointerId)) this.centre(event);
    });
  }

  get plotWidth() {
    return Math.max(1, this.width - MARGIN.left - MARGIN.right);
  }

  /** @param {number} x Pixels from the canvas's left. */
  timeAt(x) {
    const [from, to] = this.window;
    const share = (x - MARGIN.left) / this.plotWidth;
    return from + Math.min(1, Math.max(0, share)) * (to - from);
  }

  /** @param {number} time */
  xOf(time) {
    const [from, to] = this.window;
    return MARGIN.left + ((time - from) / (to - from)) * this.plotWidth;
  }

  /** @param {number} bytes */
  yOf(bytes) {
    return bytesToY(bytes, this.top, this.height);
  }

  /** @param {number} x */
  columnAt(x) {
    return Math.min(this.plotWidth - 1, Math.max(0, Math.floor(x - MARGIN.left)));
  }

  /**
   * The instant of a column: its highest, so that the figures match the picture.
   * @param {number} column
   */
  instantOf(column) {
    const [from, to] = this.window;
    const history = this.history;
    const step = (to - from) / this.plotWidth;
    let [start, end] = [from + step * column, from + step * (column + 1)];
    if (this.columns && !this.columns.detailed && history.buckets > 0) {
      const bucket = Math.max(0, lastNotAbove(history.bucketTime, this.columns.at[column]));
      start = history.bucketTime[bucket];
      end = bucket + 1 < history.buckets ? history.bucketTime[bucket + 1] : this.model.duration;
    }
    return Math.round(this.model.nearestExact(history.eventsOf(this.scene.filter).sweep(start, end, 1).at[0]));
  }

  /** @param {MouseEvent} event */
  xOfEvent(event) {
    return event.clientX - this.canvas.getBoundingClientRect().left;
  }

  /** @param {PointerEvent} event */
  move(event) {
    const x = this.xOfEvent(event);
    if (this.drag) {
      this.drag.to = x;
      if (this.drag.act === "pan") {
        const [from, to] = this.drag.window;
        this.pan(this.drag.window, ((this.drag.from - x) / this.plotWidth) * (to - from));
      } else if (this.drag.act === "scrub") {
        this.scene.moving = true;
        this.store.set({ at: this.instantOf(this.columnAt(x)) });
      }
      tip.hide();
      this.draw();
      return;
    }
    if (x < MARGIN.left || x > this.width - MARGIN.right) {
      this.leave();
      return;
    }
    this.hover = this.columnAt(x);
    this.canvas.style.cursor = this.isOnCursor(x) ? "ew-resize" : "";
    this.describe(event.clientX, event.clientY);
    this.draw();
  }

  leave() {
    this.hover = -1;
    tip.hide();
    this.draw();
  }

  /** @param {PointerEvent} event */
  press(event) {
    if (event.button > 1) return;
    const x = this.xOfEvent(event);
    this.canvas.setPointerCapture(event.pointerId);
    const act = event.shiftKey || event.button === 1 ? "pan" : this.isOnCursor(x) ? "scrub" : "zoom";
    this.drag = { from: x, to: x, act, window: this.window };
  }

  /** The drag of the instant has ended. */
  rest() {
    if (!this.scene.moving) return;
    this.scene.moving = false;
    this.rested();
  }

  /**
   * Whether a drag from there moves the line of the chosen instant.
   * @param {number} x
   */
  isOnCursor(x) {
    const { state } = this.store;
    return Math.abs(x - this.xOf(state.at ?? this.model.peakTime(state.device))) < GRIP_PIXELS;
  }

  /** @param {PointerEvent} event */
  release(event) {
    const drag = this.drag;
    this.drag = null;
    this.rest();
    if (!drag) return;
    const x = this.xOfEvent(event);
    if (Math.abs(x - drag.from) < CLICK_PIXELS) {
      if (x >= MARGIN.left && x <= this.width - MARGIN.right) {
        this.store.set({ at: this.instantOf(this.columnAt(x)) });
      }
    } else if (drag.act === "zoom") {
      this.zoomTo(this.timeAt(Math.min(x, drag.from)), this.timeAt(Math.max(x, drag.from)));
    }
    this.draw();
  }

  /**
   * @param {number} from
   * @param {number} to
   */
  zoomTo(from, to) {
    const { duration } = this.model;
    const span = Math.min(duration, Math.max(SHORTEST_NS, to - from));
    const start = Math.min(Math.max(0, from), duration - span);
    this.store.set({ zoom: span >= duration ? null : [start, start + span] });
  }

  /**
   * @param {[number, number]} window
   * @param {number} shift
   */
  pan([from, to], shift) {
    const start = Math.min(Math.max(0, from + shift), this.model.duration - (to - from));
    this.zoomTo(start, start + (to - from));
  }

  /**
   * @param {number} factor Below 1 zooms in.
   * @param {number} around
   */
  scale(factor, around) {
    const [from, to] = this.window;
    this.zoomTo(around - (around - from) * factor, around + (to - around) * factor);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    if (event.timeStamp - this.lastForeignWheel < 250) {
      this.lastForeignWheel = event.timeStamp;
      return;
    }
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!this.store.state.zoom && (sideways || event.deltaY > 0)) return;
    event.preventDefault();
    const [from, to] = this.window;
    if (sideways) this.pan([from, to], (event.deltaX / this.plotWidth) * (to - from));
    else this.scale(Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.002))), this.timeAt(this.xOfEvent(event)));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const [from, to] = this.window;
    const at = this.store.state.at ?? this.model.peakTime(this.store.state.device);
    const inside = at >= from && at <= to ? at : (from + to) / 2;
    const step = ((to - from) / this.plotWidth) * (event.shiftKey ? 20 : 2);
    const go = (/** @type {number} */ time) => {
      const next = this.model.exactTowards(at, Math.round(Math.min(this.model.duration, Math.max(0, time))));
      this.store.set({ at: next });
      if (next < from || next > to) this.pan([from, to], next - (from + to) / 2);
    };
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowLeft: () => go(inside - step),
      ArrowRight: () => go(inside + step),
      Home: () => go(from),
      End: () => go(to),
      PageUp: () => this.pan([from, to], -(to - from) / 2),
      PageDown: () => this.pan([from, to], (to - from) / 2),
      "+": () => this.scale(0.5, inside),
      "=": () => this.scale(0.5, inside),
      "-": () => this.scale(2, inside),
      "0": () => this.store.set({ zoom: null }),
      "[": () => go(this.model.iterations.reduce((last, [, , begin]) => (begin < at ? begin : last), 0)),
      "]": () => go(this.model.iterations.find(([, , begin]) => begin > at)?.[2] ?? this.model.duration),
      Escape: () => this.store.set({ at: null }),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.scene.moving = event.repeat;
    action();
  }

  /** @param {PointerEvent} event */
  centre(event) {
    if (!this.store.state.zoom) return;
    const box = this.overview.getBoundingClientRect();
    const share = (event.clientX - box.left - MARGIN.left) / this.plotWidth;
    const [from, to] = this.window;
    this.pan([from, to], share * this.model.duration - (from + to) / 2);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  describe(x, y) {
    const columns = this.columns;
    if (!columns || this.hover < 0) return;
    const width = this.history.categories;
    const rows = [];
    for (let c = width - 1; c >= 0; --c) {
      const bytes = columns.bytes[this.hover * width + c];
      if (bytes <= 0) continue;
      rows.push(h("div", { class: "tip-row" }, swatch(c), h("span", {}, this.model.categories[c]),
        h("b", {}, formatBytes(bytes))));
    }
    for (const line of this.wholeFilter?.on ? [] : this.lines) {
      const bytes = valueAt(line, columns.at[this.hover]);
      if (bytes !== null) rows.push(h("div", { class: "tip-row" }, lineSwatch(line), h("span", {}, lineLabel(line)), h("b", {}, formatBytes(bytes))));
    }
    const asleep = columns.asleep?.[this.hover] ?? 0;
    if (asleep > 0) {
      rows.push(h("div", { class: "tip-row" }, h("span", { class: "swatch asleep" }), h("span", {}, "asleep, no device memory"), h("b", {}, formatBytes(asleep))));
    }
    const iteration = this.model.iterationAt(columns.at[this.hover]);
    tip.show(x, y,
      h("div", { class: "tip-head" }, h("span", {}, formatTime(columns.at[this.hover]),
        iteration === null ? "" : h("span", { class: "soft" }, ` · iteration ${iteration}`)),
      h("b", {}, formatBytes(columns.total[this.hover]))), ...rows);
  }

  /**
   * Makes the picture of a new filter in parts. The previous picture stays until it is complete.
   * @returns {import("../base/parts.js").Part}
   */
  refilter() {
    const { filter } = this.scene;
    const choosing = this.history.choose(filter);
    /** @type {import("../model/history.js").Drawing|null} */
    let drawing = null;
    return () => {
      if (this.width === 0 || filter !== this.scene.filter || filter === this.wholeFilter) return false;
      if (!choosing.next().done) return true;
      if (drawing?.columns.count !== this.plotWidth) {
        const { unfiltered } = this;
        drawing = !filter.on && unfiltered?.count === this.plotWidth ? { columns: unfiltered, go: () => true }
          : this.history.drawing(0, this.model.duration, this.plotWidth, filter);
      }
      if (!drawing.go(PART_EVENTS)) return true;
      this.showWhole(drawing.columns, filter);
      this.draw();
      return false;
    };
  }

  /**
   * @param {Columns} columns
   * @param {import("../model/filter.js").Filter} filter
   */
  showWhole(columns, filter) {
    this.whole = columns;
    this.wholeFilter = filter;
    if (!filter.on) this.unfiltered = columns;
    this.columnsKey = "";
  }

  paint() {
    if (this.width === 0) return;
    const [from, to] = this.window;
    const count = this.plotWidth;
    if (!this.whole || !this.wholeFilter || this.whole.count !== count) {
      this.showWhole(this.history.columns(0, this.model.duration, count, this.scene.filter), this.scene.filter);
    }
    const filter = /** @type {import("../model/filter.js").Filter} */ (this.wholeFilter);
    // Filtered memory has its own scale.
    const { total, asleep } = /** @type {Columns} */ (this.whole);
    const highest = asleep ? total.reduce((most, bytes, i) => Math.max(most, bytes + asleep[i]), 0) : 0;
    const counters = [...this.legend.counters];
    const counted = counters.reduce((most, { bytes }) => bytes.reduce((top, value) => Math.max(top, value), most), 0);
    this.top = Math.max(1, highest, filter.on ? Math.max(...total) : Math.max(this.highest, counted)) * 1.04;
    // Show the device's capacity only if the peak is near it.
    const { total_bytes: capacity } = this.model.page.devices[this.store.state.device];
    this.capacity = !filter.on && capacity !== null && this.highest >= NEAR * capacity ? capacity : null;
    if (this.capacity !== null) this.top = Math.max(this.top, this.capacity * 1.04);
    const columnsKey = `${this.store.state.device},${from},${to},${count}`;
    if (columnsKey !== this.columnsKey) {
      this.columns = this.store.state.zoom ? this.history.columns(from, to, count, filter) : this.whole;
    }
    this.columnsKey = columnsKey;
    this.reset.classList.toggle("hidden", !this.store.state.zoom);
    this.legend.choose(filter.on);
    const colours = styleColours();
    this.paintStill(`${columnsKey},${this.width},${this.height},${this.palette.dark},${window.devicePixelRatio},${counters.map((line) => this.history.counters.indexOf(line))}`, colours);
    this.pointers.show(this);
  }

  /**
   * Everything that does not change while an instant is dragged.
   * @param {string} key Its inputs besides the filter.
   * @param {ReturnType<typeof styleColours>} colours
   */
  paintStill(key, colours) {
    if (key === this.stillKey && this.stillFilter === this.wholeFilter) return;
    this.stillKey = key;
    this.stillFilter = this.wholeFilter;
    paintPicture(this, sized(this.canvas, this.width, this.height), colours);
    paintOverview(this, sized(this.overview, this.width, OVERVIEW), colours);
  }
}
