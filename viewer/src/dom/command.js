// SPDX-License-Identifier: Apache-2.0
// The command that prints the view of the page on a terminal.
import { shellQuoted } from "./clipboard.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").State} State */
/** @typedef {import("../model/view.js").View} View */

// The command's dimensions for the orders of the icicle. The order by owner has none.
const DIMENSIONS = { module: "module", stack: "python", category: "category", owner: "" };

/**
  * An instant in the form of `--at @NS`.
 * @param {import("../model/types.js").PageData} page
 * @param {number} at From the start.
 */
export function instantOf(page, at) {
  return String(BigInt(page.start_ns) + BigInt(Math.round(at)));
}

/**
  * `vramscope report FILE --at @NS ...` for the instant, the order and the filters of the page. The command has no
  * options for filters by text and size.
 * @param {Model} model
 * @param {State} state
 * @param {View} view
 */
export function commandOf(model, state, view) {
  const { page } = model;
  const words = ["vramscope", "report", page.file];
  // Without --at the command shows each device at its own peak, like the page.
  if (!view.atPeak) words.push("--at", `@${instantOf(page, view.at)}`);
  if (DIMENSIONS[state.by] !== "") words.push("--by", DIMENSIONS[state.by]);
  const device = page.devices[state.device];
  if (page.devices.length > 1) words.push("--where", `device=${device.kind === "gpu" ? device.index : device.kind}`);
  const purposes = state.categories.filter((name) => page.categories.includes(name));
  if (purposes.length === 1) words.push("--where", `category=${purposes[0]}`);
  // The names of grouped layers are unknown to the command.
  if (state.module && page.folded_layers === 0) words.push("--where", `module=${state.module}`);
  return words.map(shellQuoted).join(" ");
}
