// SPDX-License-Identifier: Apache-2.0
// Bytes by category over time. Drag cuts out a window, the wheel zooms, a click chooses the instant
// that the rest of the page shows.
import { bytesStep, formatBytes, formatTick, formatTime, timeStep } from "./format.js";
import { h, perFrame, sized, styleColours, swatch, tip } from "./dom.js";
import { lastNotAbove } from "./history.js";
import { mix } from "./palette.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./palette.js").Palette} Palette */
/** @typedef {import("./state.js").Store} Store */
/** @typedef {import("./history.js").Columns} Columns */

const HEIGHT = 288;
const OVERVIEW = 30;
const MARGIN = { left: 74, right: 10, top: 22, bottom: 24 };
const CLICK_PIXELS = 4;
const SHORTEST_NS = 1000;

export class Timeline {
  /**
   * @param {Model} model
   * @param {Palette} palette
   * @param {Store} store
   */
  constructor(model, palette, store) {
    this.model = model;
    this.palette = palette;
    this.store = store;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {
      class: "timeline", tabindex: 0, role: "application",
      "aria-label": "Memory over time by category. Arrow keys choose an instant, plus and minus zoom, " +
        "0 shows all, Escape returns to the peak.",
    }));
    this.overview = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "overview", "aria-hidden": "true" }));
    this.legend = h("div", { class: "legend-line" });
    this.reset = h("button", { class: "quiet", type: "button", click: () => store.set({ zoom: null }) }, "Show all");
    this.element = h("section", { class: "card", "aria-label": "Timeline" },
      h("div", { class: "card-head" }, h("h2", {}, "Timeline"),
        h("span", { class: "hint" }, "click: who was live then · drag: zoom · wheel: zoom · shift-drag: pan"),
        this.reset),
      this.legend, this.canvas, this.overview);
    this.width = 0;
    /** @type {Columns|null} */
    this.columns = null;
    /** What `columns` was made for. */
    this.columnsKey = "";
    /**
     * The whole recording at the overview's width.
     * @type {Columns|null}
     */
    this.whole = null;
    this.hover = -1;
    /** @type {{from: number, to: number, pan: boolean, window: [number, number]}|null} */
    this.drag = null;
    this.top = 1;
    this.lastForeignWheel = -Infinity;
    this.draw = perFrame(() => this.paint());
    this.listen();
    this.chooseDevice();
  }

  get history() {
    return this.model.histories[this.store.state.device];
  }

  /** @returns {[number, number]} */
  get window() {
    return this.store.state.zoom ?? [0, this.model.duration];
  }

  chooseDevice() {
    const history = this.history;
    this.top = Math.max(1, history.highest()) * 1.04;
    this.whole = null;
    const present = this.model.categories.map((name, category) => ({ name, category }))
      .filter(({ category }) => history.present[category] === 1);
    this.legend.replaceChildren(...present.map(({ name, category }) =>
      h("span", {}, swatch(category), name)));
    if (history.nvmlTime.length > 0) {
      this.legend.append(h("span", {}, h("span", { class: "line-swatch" }), "NVML"));
    }
  }

  listen() {
    const { canvas, overview, store } = this;
    store.subscribe((_, changed) => {
      if (changed.has("device")) this.chooseDevice();
      this.draw();
    });
    new ResizeObserver(() => this.paint()).observe(canvas);
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => {
      this.drag = null;
      this.draw();
    });
    canvas.addEventListener("dblclick", () => store.set({ zoom: null }));
    canvas.addEventListener("keydown", (event) => this.key(event));
    // A scroll of the page that happens to reach the canvas stays a scroll of the page.
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
    return HEIGHT - MARGIN.bottom - (bytes / this.top) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  }

  /** @param {number} x */
  columnAt(x) {
    return Math.min(this.plotWidth - 1, Math.max(0, Math.floor(x - MARGIN.left)));
  }

  /**
   * The instant to show for a column: its highest, so that the figures match the picture.
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
    return Math.round(history.lives.length > 0 ? history.sweep(start, end, 1).at[0] : start);
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
      if (this.drag.pan) {
        const [from, to] = this.drag.window;
        this.pan(this.drag.window, ((this.drag.from - x) / this.plotWidth) * (to - from));
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
    this.drag = { from: x, to: x, pan: event.shiftKey || event.button === 1, window: this.window };
  }

  /** @param {PointerEvent} event */
  release(event) {
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    const x = this.xOfEvent(event);
    if (Math.abs(x - drag.from) < CLICK_PIXELS) {
      if (x >= MARGIN.left && x <= this.width - MARGIN.right) {
        this.store.set({ at: this.instantOf(this.columnAt(x)) });
      }
    } else if (!drag.pan) {
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
      const next = Math.min(this.model.duration, Math.max(0, time));
      this.store.set({ at: Math.round(next) });
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
      Escape: () => this.store.set({ at: null }),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
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
    const nvml = this.history.nvmlAt(columns.at[this.hover]);
    if (nvml !== null) {
      rows.push(h("div", { class: "tip-row" }, h("span", { class: "line-swatch" }), h("span", {}, "NVML"),
        h("b", {}, formatBytes(nvml))));
    }
    tip.show(x, y,
      h("div", { class: "tip-head" }, h("span", {}, formatTime(columns.at[this.hover])),
        h("b", {}, formatBytes(columns.total[this.hover]))), ...rows);
  }

  paint() {
    this.width = this.canvas.clientWidth;
    if (this.width === 0) return;
    const [from, to] = this.window;
    const count = this.plotWidth;
    const columnsKey = `${this.store.state.device},${from},${to},${count}`;
    if (columnsKey !== this.columnsKey) this.columns = this.history.columns(from, to, count);
    this.columnsKey = columnsKey;
    const columns = /** @type {Columns} */ (this.columns);
    this.reset.classList.toggle("hidden", !this.store.state.zoom);
    const colours = styleColours();
    const context = sized(this.canvas, this.width, HEIGHT);
    context.font = `11px ${colours.font}`;
    this.paintGrid(context, colours);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, 0, count, HEIGHT);
    context.clip();
    this.paintStack(context, columns, MARGIN.left, (bytes) => this.yOf(bytes));
    this.paintNvml(context, colours);
    this.paintMarks(context, colours);
    this.paintCursor(context, colours);
    context.restore();
    this.paintOverview(colours);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {ReturnType<typeof styleColours>} colours
   */
  paintGrid(context, colours) {
    const [from, to] = this.window;
    const right = this.width - MARGIN.right;
    context.strokeStyle = colours.line;
    context.fillStyle = colours.faint;
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const step = bytesStep(this.top, 6);
    for (let bytes = 0; bytes <= this.top; bytes += step) {
      const y = Math.round(this.yOf(bytes)) + 0.5;
      context.beginPath();
      context.moveTo(MARGIN.left, y);
      context.lineTo(right, y);
      context.stroke();
      const label = bytes === 0 ? "0" : formatBytes(bytes).replace(/\.0+ /, " ");
      context.fillText(label, MARGIN.left - 8, y);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const tick = timeStep(to - from, this.plotWidth / 110);
    for (let time = Math.ceil(from / tick) * tick; time <= to; time += tick) {
      const x = this.xOf(time);
      context.fillRect(Math.round(x), HEIGHT - MARGIN.bottom, 1, 4);
      const label = formatTick(time, tick);
      const half = context.measureText(label).width / 2;
      if (x + half <= this.width && x - half >= MARGIN.left - 16) {
        context.fillText(label, x, HEIGHT - MARGIN.bottom + 8);
      }
    }
  }

  /**
   * Bands from the top down, each filled to the base line, so that no seams show between them.
   * @param {CanvasRenderingContext2D} context
   * @param {Columns} columns
   * @param {number} left
   * @param {(bytes: number) => number} yOf
   */
  paintStack(context, columns, left, yOf) {
    const width = this.history.categories;
    const only = this.store.state.only;
    const lit = only && "category" in only ? this.model.categoryIndex.get(only.category) : undefined;
    const tops = columns.total.slice();
    const surface = styleColours().surface;
    for (let c = width - 1; c >= 0; --c) {
      let any = false;
      for (let i = 0; i < columns.count && !any; ++i) any = columns.bytes[i * width + c] > 0;
      if (!any) continue;
      const outline = new Path2D();
      outline.moveTo(left, yOf(0));
      let last = NaN;
      for (let i = 0; i < columns.count; ++i) {
        const y = yOf(tops[i]);
        if (y !== last) {
          if (i > 0) outline.lineTo(left + i, last);
          outline.lineTo(left + i, y);
        }
        last = y;
        tops[i] -= columns.bytes[i * width + c];
      }
      outline.lineTo(left + columns.count, last);
      outline.lineTo(left + columns.count, yOf(0));
      outline.closePath();
      const colour = this.palette.colour(c);
      context.fillStyle = lit === undefined || lit === c ? colour : mix(colour, surface, 0.22);
      context.fill(outline);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {ReturnType<typeof styleColours>} colours
   */
  paintNvml(context, colours) {
    const { nvmlTime, nvmlBytes } = this.history;
    const [from, to] = this.window;
    const first = Math.max(0, lastNotAbove(nvmlTime, from));
    const end = Math.min(nvmlTime.length, lastNotAbove(nvmlTime, to) + 2);
    if (end - first < 2) return;
    const line = new Path2D();
    let [last, high] = [NaN, 0];
    // One point a pixel: the highest sample of those that fall on it.
    for (let i = first; i < end; ++i) {
      const x = Math.round(this.xOf(nvmlTime[i]));
      if (x === last && nvmlBytes[i] <= high) continue;
      line.lineTo(x, this.yOf(nvmlBytes[i]));
      [last, high] = [x, nvmlBytes[i]];
    }
    context.lineJoin = "round";
    context.strokeStyle = colours.surface;
    context.lineWidth = 3.5;
    context.stroke(line);
    context.strokeStyle = colours.ink;
    context.lineWidth = 1.25;
    context.stroke(line);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {ReturnType<typeof styleColours>} colours
   */
  paintMarks(context, colours) {
    let free = -Infinity;
    context.textAlign = "left";
    context.textBaseline = "middle";
    let last = -Infinity;
    for (const [time, name] of this.model.page.marks) {
      const x = Math.round(this.xOf(time));
      if (x < MARGIN.left || x > this.width - MARGIN.right || x === last) continue;
      last = x;
      context.fillStyle = colours.soft;
      context.fillRect(x, 4, 1, HEIGHT - MARGIN.bottom - 4);
      const room = this.width - MARGIN.right - x - 8;
      const label = context.measureText(name).width > 160 ? `${name.slice(0, 24)}…` : name;
      const size = context.measureText(label).width;
      const left = size > room ? x - size - 8 : x + 5;
      context.beginPath();
      context.moveTo(x, 4);
      context.lineTo(x + (left < x ? -5 : 5), 7.5);
      context.lineTo(x, 11);
      context.fill();
      if (left < free || left < MARGIN.left) continue;
      context.fillText(label, left + (left < x ? 0 : 3), 8);
      free = left + size + 12;
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {ReturnType<typeof styleColours>} colours
   */
  paintCursor(context, colours) {
    const { state } = this.store;
    const bottom = HEIGHT - MARGIN.bottom;
    const x = Math.round(this.xOf(state.at ?? this.model.peakTime(state.device)));
    context.fillStyle = colours.accent;
    context.fillRect(x - 0.75, MARGIN.top - 6, 1.5, bottom - MARGIN.top + 6);
    context.beginPath();
    context.arc(x, MARGIN.top - 6, 3.5, 0, 2 * Math.PI);
    context.fill();
    if (this.hover >= 0 && !this.drag) {
      context.fillStyle = colours.soft;
      context.fillRect(MARGIN.left + this.hover, MARGIN.top, 1, bottom - MARGIN.top);
    }
    if (this.drag && !this.drag.pan && Math.abs(this.drag.to - this.drag.from) >= CLICK_PIXELS) {
      const left = Math.min(this.drag.from, this.drag.to);
      const size = Math.abs(this.drag.to - this.drag.from);
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.16;
      context.fillRect(left, MARGIN.top - 6, size, bottom - MARGIN.top + 6);
      context.globalAlpha = 1;
    }
  }

  /**
   * The whole recording in small, with the window that the picture above shows.
   * @param {ReturnType<typeof styleColours>} colours
   */
  paintOverview(colours) {
    const context = sized(this.overview, this.width, OVERVIEW);
    const count = this.plotWidth;
    if (!this.whole || this.whole.count !== count) this.whole = this.history.columns(0, this.model.duration, count);
    const yOf = (/** @type {number} */ bytes) => OVERVIEW - 1 - (bytes / this.top) * (OVERVIEW - 4);
    context.globalAlpha = 1;
    this.paintStack(context, this.whole, MARGIN.left, yOf);
    const [from, to] = this.window;
    const left = MARGIN.left + (from / this.model.duration) * count;
    const right = MARGIN.left + (to / this.model.duration) * count;
    context.globalAlpha = 0.72;
    context.fillStyle = colours.surface;
    context.fillRect(MARGIN.left, 0, left - MARGIN.left, OVERVIEW);
    context.fillRect(right, 0, MARGIN.left + count - right, OVERVIEW);
    context.globalAlpha = 1;
    context.strokeStyle = this.store.state.zoom ? colours.accent : colours.line;
    context.lineWidth = 1;
    context.strokeRect(Math.round(left) + 0.5, 0.5, Math.max(3, Math.round(right - left) - 1), OVERVIEW - 1);
  }
}
