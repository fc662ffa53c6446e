// SPDX-License-Identifier: Apache-2.0
// The timeline's window as the axis of another canvas: what is below a pixel, where a time is, and
// when the window has come to rest.
import { formatTick, timeStep } from "./format.js";
import { MARGIN } from "./timeline_picture.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").Store} Store */

// A window that rests for so long is drawn.
const REST_MS = 120;
const TICK_PIXELS = 110;

export class WindowAxis {
  /**
   * @param {Pick<Model, "duration">} model
   * @param {Pick<Store, "state"|"subscribe">} store
   * @param {Pick<HTMLElement, "clientWidth"|"isConnected">} canvas
   */
  constructor(model, store, canvas) {
    this.model = model;
    this.store = store;
    this.canvas = canvas;
  }

  /** @returns {[number, number]} */
  get window() {
    return this.store.state.zoom ?? [0, this.model.duration];
  }

  get width() {
    return Math.max(1, this.canvas.clientWidth - MARGIN.left - MARGIN.right);
  }

  /** @param {number} x */
  timeAt(x) {
    const [from, to] = this.window;
    return from + Math.min(1, Math.max(0, (x - MARGIN.left) / this.width)) * (to - from);
  }

  /** @param {number} time Outside of the window: its nearest edge. */
  xOf(time) {
    const [from, to] = this.window;
    return MARGIN.left + Math.min(1, Math.max(0, (time - from) / (to - from))) * this.width;
  }

  /** @param {number} time */
  shows(time) {
    const [from, to] = this.window;
    return time >= from && time <= to;
  }

  /** @returns {{x: number, text: string}[]} */
  ticks() {
    const [from, to] = this.window;
    const step = timeStep(to - from, this.width / TICK_PIXELS);
    const ticks = [];
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) ticks.push({ x: this.xOf(time), text: formatTick(time, step) });
    return ticks;
  }

  /** @param {() => void} draw */
  whenItRests(draw) {
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    let resting;
    this.store.subscribe((_, changed) => {
      if (!changed.has("zoom") || !this.canvas.isConnected) return;
      clearTimeout(resting);
      resting = setTimeout(draw, REST_MS);
    });
  }
}
