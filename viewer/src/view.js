// SPDX-License-Identifier: Apache-2.0
// What is live at the chosen instant, after the reader's choices: made once a change, for all views.

import { NOT_LISTED } from "./palette.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").State} State */
/** @typedef {import("./state.js").Only} Only */

/**
 * A node of the folding ledger.
 * @typedef {object} LedgerNode
 * @property {string} name
 * @property {string[]} path
 * @property {number} bytes
 * @property {number} count
 * @property {Float64Array} byCategory
 * @property {LedgerNode[]} children
 */

/**
 * @typedef {object} View
 * @property {number} device
 * @property {number} at
 * @property {boolean} atPeak
 * @property {Float64Array} byCategory Of the whole device, not narrowed.
 * @property {number} total
 * @property {number|null} nvml At the peak.
 * @property {LedgerNode} ledger
 * @property {number[]} live Lives at the instant, narrowed by `only`.
 * @property {number} liveBytes
 */

/**
 * @param {string[]} path
 * @param {string[]} prefix
 */
function startsWith(path, prefix) {
  return prefix.length <= path.length && prefix.every((level, i) => level === path[i]);
}

export class Ledger {
  /** @param {number} categories */
  constructor(categories) {
    this.categories = categories;
    this.root = this.node("", []);
    /** @type {Map<string, LedgerNode>} */
    this.known = new Map();
  }

  /**
   * @param {string} name
   * @param {string[]} path
   * @returns {LedgerNode}
   */
  node(name, path) {
    const byCategory = new Float64Array(this.categories);
    return { name, path, bytes: 0, count: 0, byCategory, children: [] };
  }

  /**
   * @param {string[]} path
   * @param {number} bytes
   * @param {number} count
   * @param {number} category
   */
  add(path, bytes, count, category) {
    let at = this.root;
    let key = "";
    this.bump(at, bytes, count, category);
    for (let depth = 0; depth < path.length; ++depth) {
      key += `${path[depth]}\u0000`;
      let child = this.known.get(key);
      if (!child) {
        child = this.node(path[depth], path.slice(0, depth + 1));
        this.known.set(key, child);
        at.children.push(child);
      }
      at = child;
      this.bump(at, bytes, count, category);
    }
  }

  /**
   * @param {LedgerNode} node
   * @param {number} bytes
   * @param {number} count
   * @param {number} category
   */
  bump(node, bytes, count, category) {
    node.bytes += bytes;
    node.count += count;
    node.byCategory[category] += bytes;
  }

  /** Largest first, at every level. */
  finish() {
    for (const node of [this.root, ...this.known.values()]) {
      node.children.sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1));
    }
    return this.root;
  }
}

/**
 * Level names of a row: the process leads where several share the device.
 * @param {string|null} process
 * @param {string[]} path
 */
function levels(process, path) {
  return process === null ? path : [process, ...path];
}

/** @param {Model} model */
function processNames(model) {
  return model.page.processes.map((process) =>
    process.rank === null || process.rank === undefined
      ? `process ${process.pid}`
      : `rank ${process.rank}, process ${process.pid}`);
}

/**
 * Level names of a life: the ledger's, then the place in the program.
 * @param {Model} model
 * @param {number} life
 */
function lifeLevels(model, life) {
  const path = model.page.paths[model.lifePath[life]] ?? [];
  const place = model.stackPlace[model.lifeStack[life]];
  return place === 0 ? path : [...path, model.places[place]];
}

/**
 * @param {number|null} pid
 * @param {string[]} path
 */
const rowKey = (pid, path) => `${pid}\u0000${path.join("\u0000")}`;

/**
 * The ledger of the report, which was taken at the device's peak. Its rows unfold into places as far
 * as the page's lives explain them.
 * @param {Model} model
 * @param {number} device
 * @param {number[]} live
 */
function ledgerAtPeak(model, device, live) {
  const ledger = new Ledger(model.categories.length);
  const report = model.reportDevices[device];
  if (!report) return ledger.finish();
  const { processes } = model.page;
  const rows = model.page.report.rows.filter((row) => row.device === report.index);
  const names = processNames(model);
  const several = new Set(rows.map((row) => row.pid).filter((pid) => pid !== null)).size > 1;
  /** @type {Map<string, number[]>} */
  const byRow = new Map();
  for (const life of live) {
    const pid = processes[model.lifeProcess[life]]?.pid ?? null;
    const key = rowKey(pid, model.page.paths[model.lifePath[life]] ?? []);
    const known = byRow.get(key);
    if (known) known.push(life);
    else byRow.set(key, [life]);
  }
  for (const row of rows) {
    const name = several
      ? names[processes.findIndex((process) => process.pid === row.pid)] ?? "no recorded process" : null;
    const lives = byRow.get(rowKey(row.pid, row.path)) ?? [];
    const listed = lives.reduce((sum, life) => sum + model.lifeBytes[life], 0);
    const category = model.categoryOfPath(row.path);
    if (listed === 0 || listed > row.bytes) {
      ledger.add(levels(name, row.path), row.bytes, row.count, category);
      continue;
    }
    for (const life of lives) {
      ledger.add(levels(name, lifeLevels(model, life)), model.lifeBytes[life], 1, model.lifeCategory[life]);
    }
    if (listed < row.bytes) {
      ledger.add(levels(name, [...row.path, NOT_LISTED]), row.bytes - listed,
        Math.max(0, row.count - lives.length), model.categoryIndex.get(NOT_LISTED) ?? category);
    }
  }
  return ledger.finish();
}

/**
 * The ledger of lives, completed by what no life explains.
 * @param {Model} model
 * @param {number} device
 * @param {number} at
 * @param {number[]} live
 */
function ledgerAt(model, device, at, live) {
  const ledger = new Ledger(model.categories.length);
  const names = processNames(model);
  const several = new Set(live.map((life) => model.lifeProcess[life])).size > 1;
  for (const life of live) {
    const name = several ? names[model.lifeProcess[life]] : null;
    ledger.add(levels(name, lifeLevels(model, life)), model.lifeBytes[life], 1, model.lifeCategory[life]);
  }
  const all = model.histories[device].bytesAt(at);
  all.forEach((bytes, category) => {
    const rest = bytes - ledger.root.byCategory[category];
    if (rest > 0) ledger.add([model.categories[category]], rest, 0, category);
  });
  return ledger.finish();
}

/**
 * Which lives a choice keeps.
 * @param {Model} model
 * @param {Only} only
 * @param {number[]} live
 */
function narrow(model, only, live) {
  if ("category" in only) {
    const category = model.categoryIndex.get(only.category);
    return live.filter((life) => model.lifeCategory[life] === category);
  }
  const names = processNames(model);
  const byProcess = names.includes(only.path[0]);
  const prefix = byProcess ? only.path.slice(1) : only.path;
  return live.filter((life) => startsWith(lifeLevels(model, life), prefix) &&
    (!byProcess || names[model.lifeProcess[life]] === only.path[0]));
}

/**
 * @param {Model} model
 * @param {State} state
 * @returns {View}
 */
export function makeView(model, state) {
  const { device } = state;
  const atPeak = state.at === null;
  const at = state.at ?? model.peakTime(device);
  const all = model.liveAt(device, at);
  const ledger = atPeak ? ledgerAtPeak(model, device, all) : ledgerAt(model, device, at, all);
  const live = state.only ? narrow(model, state.only, all) : all;
  let liveBytes = 0;
  for (const life of live) liveBytes += model.lifeBytes[life];
  const report = model.reportDevices[device];
  return {
    device, at, atPeak, ledger, live, liveBytes,
    byCategory: ledger.byCategory,
    total: ledger.bytes,
    // A sample belongs to its own instant: beside another one it would make a false residual.
    nvml: atPeak ? report?.nvml_bytes ?? null : null,
  };
}
