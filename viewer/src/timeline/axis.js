// SPDX-License-Identifier: Apache-2.0
// Axes of time and bytes for all canvases, and a time axis that follows the window of the timeline.
import { bytesStep, formatBytes, formatTick, timeStep } from "../base/format.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../dom/dom.js").Colours} Colours */

export const MARGIN = { left: 74, right: 10, top: 22, bottom: 24 };
// A moving window is drawn when it rests this long.
const REST_MS = 120;
const TICK_PIXELS = 110;
const BYTE_TICKS = 6;

/**
 * The y coordinate of an amount on a canvas whose axis ends at `top`.
 * @param {number} bytes
 * @param {number} top
 * @param {number} height
 */
export function bytesToY(bytes, top, height) {
  return height - MARGIN.bottom - (bytes / top) * (height - MARGIN.top - MARGIN.bottom);
}

/**
 * The labels of a time axis and their positions, as many as fit.
 * @param {[number, number]} window
 * @param {number} width Of the plot, without margins.
 * @returns {{x: number, text: string}[]}
 */
function ticksOf([from, to], width) {
  const step = timeStep(to - from, width / TICK_PIXELS);
  const ticks = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
    ticks.push({ x: MARGIN.left + ((time - from) / (to - from)) * width, text: formatTick(time, step) });
  }
  return ticks;
}

/**
 * Paints the lines and labels of bytes, and the ticks of time.
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 * @param {{width: number, height: number, top: number, window: [number, number]}} picture The whole canvas's size; `top`: bytes.
 */
export function paintAxes(context, colours, { width, height, top, window }) {
  const plot = Math.max(1, width - MARGIN.left - MARGIN.right);
  context.font = `11px ${colours.font}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  const step = bytesStep(top, BYTE_TICKS);
  for (let bytes = 0; bytes <= top; bytes += step) {
    const y = Math.round(bytesToY(bytes, top, height));
    context.fillStyle = colours.line;
    context.fillRect(MARGIN.left, y, plot, 1);
    context.fillStyle = colours.soft;
    context.fillText(bytes === 0 ? "0" : formatBytes(bytes).replace(/\.0+ /, " "), MARGIN.left - 8, y + 0.5);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const { x, text } of ticksOf(window, plot)) {
    context.fillRect(Math.round(x), height - MARGIN.bottom, 1, 4);
    const half = context.measureText(text).width / 2;
    if (x + half <= width && x - half >= MARGIN.left - 16) context.fillText(text, x, height - MARGIN.bottom + 8);
  }
}

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

  /** @param {number} time Clamped to the window. */
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
    return ticksOf(this.window, this.width);
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
