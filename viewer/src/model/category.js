// SPDX-License-Identifier: Apache-2.0
// The category of a level of the ledger, which decides its colour.
import { isKnown } from "./palette.js";

// Levels of the ledger with another name than their category (src/format/parts.def).
const ALIASES = new Map([
  ["graph memory, cached", "cached"], ["slab slack", "rounding"], ["in transit", "driver"],
  ["RM-internal", "driver"], ["UVM driver", "driver"], ["before recording", "unknown"], ["other processes", "unknown"],
  ["context", "driver"], ["module code and globals", "driver"], ["first launches (code, local memory)", "driver"],
  ["limits (stack, heap, printf FIFO)", "driver"], ["streams", "driver"], ["graphs", "driver"],
  ["several calls at once", "driver"],
]);

/**
 * The category of a ledger path: its innermost level that is a category, or "driver" for driver memory.
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
 * The category of a band of the timeline, whose name consists of levels.
 * @param {string} group
 * @param {boolean} [sampled] Only NVML's figures are known, so owners replace categories.
 */
export function categoryOfGroup(group, sampled = false) {
  const path = group.split(" / ");
  return sampled ? path[path.length - 1] : categoryOf(path);
}
