// SPDX-License-Identifier: Apache-2.0
// The rows of the table of top allocations.

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./search.js").Search} Search */

/**
 * @typedef {object} Group
 * @property {number} stack
 * @property {number} path
 * @property {number} bytes
 * @property {number} count
 * @property {number[]} lives
 */

/**
 * Allocations of one stack and one ledger level, largest sum first.
 * @param {Model} model
 * @param {number[]} live
 * @param {Search} search
 */
export function groupLives(model, live, search) {
  /** @type {Map<number, Group>} */
  const groups = new Map();
  const paths = model.page.paths.length + 1;
  for (const life of live) {
    if (search.on && !search.matches(life)) continue;
    const [stack, path] = [model.lifeStack[life], model.lifePath[life]];
    const key = stack * paths + path;
    let group = groups.get(key);
    if (!group) {
      group = { stack, path, bytes: 0, count: 0, lives: [] };
      groups.set(key, group);
    }
    group.bytes += model.lifeBytes[life];
    group.count += 1;
    group.lives.push(life);
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes || a.stack - b.stack || a.path - b.path);
}
