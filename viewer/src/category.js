// SPDX-License-Identifier: Apache-2.0
// Which category a level of the ledger counts for: what its colour follows.
import { isKnown } from "./palette.js";

// Levels of the ledger that belong to a category without having its name
// (src/format/parts.def).
const ALIASES = new Map([
  ["graph memory, cached", "cached"], ["slab slack", "rounding"], ["in transit", "driver"],
  ["RM-internal", "driver"], ["UVM driver", "driver"], ["before recording", "unknown"], ["other processes", "unknown"],
  ["context", "driver"], ["module code and globals", "driver"], ["first launches (code, local memory)", "driver"],
  ["limits (stack, heap, printf FIFO)", "driver"], ["streams", "driver"], ["graphs", "driver"],
  ["several calls at once", "driver"],
]);

/**
 * The category of a ledger path: its innermost level that is one, or "driver" for what the driver
 * keeps.
 * @param {string[]} path
 */
export function categoryOf(path) {
  for (let i = path.length - 1; i >= 0; --i) {
    if (isKnown(path[i])) return path[i];
    const alias = ALIASES.get(path[i]);
    if (alias) return alias;
  }
  return path[0]?.startsWith("driver") ? "driver" : "unknown";
}

/**
 * Bands of the timeline are called by their levels.
 * @param {string} group
 * @param {boolean} [sampled] NVML's figures are all that is known: whose they are is what there is to say.
 */
export function categoryOfGroup(group, sampled = false) {
  const path = group.split(" / ");
  return sampled ? path[path.length - 1] : categoryOf(path);
}
