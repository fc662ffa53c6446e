// SPDX-License-Identifier: Apache-2.0
// Paints the timeline: axes, bands, NVML's line, counters, iterations, marks, failed requests.
import { MARGIN, paintAxes } from "./axis.js";
import { formatBytes } from "../base/format.js";
import { lastNotAbove } from "../model/events.js";

/** @typedef {import("./timeline.js").Timeline} Timeline */
/** @typedef {import("../model/history.js").Columns} Columns */
/** @typedef {import("../dom/dom.js").Colours} Colours */

export const OVERVIEW = 30;
export const CLICK_PIXELS = 4;
// Nearer samples have no dots.
const DOT_PIXELS = 24;
// Of counters, one after the other.
const DASHES = [[6, 3], [2, 2], [9, 3, 2, 3], [14, 4]];
// Nearer iterations are not drawn separately.
const ITERATION_PIXELS = 5;

/**
 * @param {Timeline} timeline
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 */
export function paintPicture(timeline, context, colours) {
  const columns = timeline.columns;
  if (!columns) return;
  paintAxes(context, colours, { width: timeline.width, height: timeline.height, top: timeline.top, window: timeline.window });
  context.save();
  context.beginPath();
  context.rect(MARGIN.left, 0, timeline.plotWidth, timeline.height);
  context.clip();
  paintStack(timeline, context, columns, (bytes) => timeline.yOf(bytes));
  paintAsleep(timeline, context, columns, (bytes) => timeline.yOf(bytes));
  if (!timeline.wholeFilter?.on) timeline.lines.forEach((line) => paintLine(timeline, context, colours, line));
  paintIterations(timeline, context, colours);
  paintMarks(timeline, context, colours);
  paintCapacity(timeline, context, colours);
  paintOutOfMemory(timeline, context, colours);
  context.restore();
}

/**
 * Text that is readable on any background.
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 * @param {string} text
 * @param {number} x
 * @param {number} y
 */
function paintLabel(context, colours, text, x, y) {
  context.strokeStyle = colours.surface;
  context.lineWidth = 4;
  context.lineJoin = "round";
  context.strokeText(text, x, y);
  context.fillText(text, x, y);
}

/**
 * Paints bands from the top down, each filled to the base line, so that there are no seams between them.
 * @param {Timeline} timeline
 * @param {CanvasRenderingContext2D} context
 * @param {Columns} columns
 * @param {(bytes: number) => number} yOf
 */
function paintStack(timeline, context, columns, yOf) {
  const { left } = MARGIN;
  const width = timeline.history.categories;
  const tops = columns.total.slice();
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
    context.fillStyle = timeline.palette.fill(context, c);
    context.fill(outline);
  }
}

/**
 * Paints live memory without device memory, hatched, on top of the device's memory.
 * @param {Timeline} timeline
 * @param {CanvasRenderingContext2D} context
 * @param {Columns} columns
 * @param {(bytes: number) => number} yOf
 */
function paintAsleep(timeline, context, columns, yOf) {
  const { asleep, total, count } = columns;
  if (!asleep) return;
  const area = new Path2D();
  for (let i = 0; i < count; ++i) {
    if (asleep[i] > 0) area.rect(MARGIN.left + i, yOf(total[i] + asleep[i]), 1, yOf(total[i]) - yOf(total[i] + asleep[i]));
  }
  context.fillStyle = timeline.palette.hatched(context, "up", "transparent");
  context.fill(area);
}

/**
 * Paints NVML's figure, or, dashed, a counter.
 * @param {Timeline} timeline
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 * @param {import("../model/history.js").Line} figure
 */
function paintLine(timeline, context, colours, figure) {
  const { time, bytes } = figure;
  const counter = timeline.history.counters.indexOf(figure);
  const [from, to] = timeline.window;
  const first = Math.max(0, lastNotAbove(time, from));
  const end = Math.min(time.length, lastNotAbove(time, to) + 2);
  if (end - first < 1) return;
  const line = new Path2D();
  const dots = new Path2D();
  let [last, high] = [NaN, 0];
  // One level for each pixel: its highest sample. Between samples the level is unknown, so it is drawn as steps without
  // slopes.
  for (let i = first; i < end; ++i) {
    const x = Math.round(timeline.xOf(time[i]));
    if (x === last && bytes[i] <= high) continue;
    const y = timeline.yOf(bytes[i]);
    if (!Number.isNaN(last)) line.lineTo(x, timeline.yOf(high));
    line.lineTo(x, y);
    if (!(x - last < DOT_PIXELS)) {
      dots.moveTo(x + 2, y);
      dots.arc(x, y, 2, 0, 2 * Math.PI);
    }
    [last, high] = [x, bytes[i]];
  }
  // A counter keeps its value; NVML's is unknown after the last sample.
  if (counter >= 0) line.lineTo(Math.min(timeline.xOf(to), timeline.width), timeline.yOf(high));
  context.lineJoin = "round";
  context.strokeStyle = colours.surface;
  context.lineWidth = 3.5;
  context.stroke(line);
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.25;
  if (counter >= 0) context.setLineDash(DASHES[counter % DASHES.length]);
  context.stroke(line);
  context.setLineDash([]);
  context.fillStyle = colours.ink;
  if (counter < 0) context.fill(dots);
}

/**
 * @param {Timeline} timeline
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 */
function paintCapacity(timeline, context, colours) {
  if (timeline.capacity === null) return;
  const y = Math.round(timeline.yOf(timeline.capacity)) + 0.5;
  context.strokeStyle = context.fillStyle = colours.bad;
  context.lineWidth = 1;
  context.setLineDash([6, 4]);
  context.beginPath();
  context.moveTo(MARGIN.left, y);
  context.lineTo(timeline.width - MARGIN.right, y);
  context.stroke();
  context.setLineDash([]);
  context.textAlign = "right";
  context.textBaseline = "top";
  paintLabel(context, colours, `capacity ${formatBytes(timeline.capacity)}`, timeline.width - MARGIN.right - 6, y + 4);
}

/**
 * Paints failed requests for memory.
 * @param {Timeline} timeline
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 */
function paintOutOfMemory(timeline, context, colours) {
  let last = -Infinity;
  context.textBaseline = "top";
  for (const { t, bytes } of timeline.model.outOfMemory[timeline.store.state.device]) {
    const x = Math.round(timeline.xOf(t));
    if (x < MARGIN.left || x > timeline.width - MARGIN.right || x - last < 3) continue;
    context.fillStyle = colours.bad;
    context.fillRect(x - 1, MARGIN.top, 2, timeline.height - MARGIN.bottom - MARGIN.top);
    const right = x > timeline.width / 2;
    context.textAlign = right ? "right" : "left";
    if (x - last > 160) paintLabel(context, colours, `out of memory: request for ${formatBytes(bytes)} failed`, x + (right ? -6 : 6), MARGIN.top + 18);
    last = x;
  }
}

/**
 * Paints a tick at the begin of each iteration.
 * @param {Timeline} timeline
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 */
function paintIterations(timeline, context, colours) {
  const bottom = timeline.height - MARGIN.bottom;
  let last = -Infinity;
  context.fillStyle = colours.ink;
  for (const [, , begin] of timeline.model.iterations) {
    const x = Math.round(timeline.xOf(begin));
    if (x < MARGIN.left || x > timeline.width - MARGIN.right || x - last < ITERATION_PIXELS) continue;
    last = x;
    context.globalAlpha = 0.08;
    context.fillRect(x, MARGIN.top, 1, bottom - MARGIN.top);
    context.globalAlpha = 0.6;
    context.fillRect(x, bottom - 6, 1, 6);
  }
  context.globalAlpha = 1;
}

/**
 * @param {Timeline} timeline
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 */
function paintMarks(timeline, context, colours) {
  let free = -Infinity;
  context.textAlign = "left";
  context.textBaseline = "middle";
  let last = -Infinity;
  /** @type {[string, number][]} What is said of them, over all their lines. */
  const labels = [];
  for (const [time, name] of timeline.model.marks) {
    const x = Math.round(timeline.xOf(time));
    if (x < MARGIN.left || x > timeline.width - MARGIN.right || x === last) continue;
    last = x;
    context.fillStyle = colours.soft;
    context.fillRect(x, 4, 1, timeline.height - MARGIN.bottom - 4);
    const room = timeline.width - MARGIN.right - x - 8;
    const label = context.measureText(name).width > 160 ? `${name.slice(0, 24)}…` : name;
    const size = context.measureText(label).width;
    const left = size > room ? x - size - 8 : x + 5;
    context.beginPath();
    context.moveTo(x, 4);
    context.lineTo(x + (left < x ? -5 : 5), 7.5);
    context.lineTo(x, 11);
    context.fill();
    if (left < free || left < MARGIN.left) continue;
    labels.push([label, left + (left < x ? 0 : 3)]);
    free = left + size + 12;
  }
  for (const [label, left] of labels) paintLabel(context, colours, label, left, 8);
}

/**
 * Paints the whole recording in small, with the window of the picture above.
 * @param {Timeline} timeline
 * @param {CanvasRenderingContext2D} context
 * @param {Colours} colours
 */
export function paintOverview(timeline, context, colours) {
  const { whole, plotWidth: count } = timeline;
  if (!whole) return;
  const yOf = (/** @type {number} */ bytes) => OVERVIEW - 1 - (bytes / timeline.top) * (OVERVIEW - 4);
  context.globalAlpha = 1;
  paintStack(timeline, context, whole, yOf);
  paintAsleep(timeline, context, whole, yOf);
  const [from, to] = timeline.window;
  const left = MARGIN.left + (from / timeline.model.duration) * count;
  const right = MARGIN.left + (to / timeline.model.duration) * count;
  context.globalAlpha = 0.72;
  context.fillStyle = colours.surface;
  context.fillRect(MARGIN.left, 0, left - MARGIN.left, OVERVIEW);
  context.fillRect(right, 0, MARGIN.left + count - right, OVERVIEW);
  context.globalAlpha = 1;
  context.strokeStyle = timeline.store.state.zoom ? colours.accent : colours.line;
  context.lineWidth = 1;
  context.strokeRect(Math.round(left) + 0.5, 0.5, Math.max(3, Math.round(right - left) - 1), OVERVIEW - 1);
}
