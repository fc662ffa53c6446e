// SPDX-License-Identifier: Apache-2.0
// Displays call stacks: one line for each frame, innermost first.
import { baseName } from "../base/format.js";
import { h, marked } from "./dom.js";

/** @typedef {import("../model/model.js").Model} Model */

const MOST = 48;

/**
 * Frame ids, innermost first.
 * @param {Model} model
 * @param {number} stack
 */
export function innermostFirst(model, stack) {
  return model.framesOf(stack).slice(-MOST).reverse();
}

/**
 * @param {Model} model
 * @param {number[]} frames
 * @param {string} needle
 */
export function frameList(model, frames, needle) {
  const rows = frames.map((id) => {
    const frame = model.frames[id];
    const place = frame.file ? `${baseName(frame.file)}:${frame.line}` : "";
    return h("li", { class: frame.library ? "library" : "", title: `${frame.file}:${frame.line}` },
      h("span", { class: "frame-name" }, marked(frame.name, needle)),
      h("span", { class: "frame-place" }, marked(place, needle)),
      h("code", {}, marked(frame.source, needle)));
  });
  return h("ol", { class: "frames" }, ...(rows.length > 0 ? rows : [h("li", {}, "No stack was recorded.")]));
}
