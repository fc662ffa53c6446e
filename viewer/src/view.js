// SPDX-License-Identifier: Apache-2.0
// What is live at the chosen instant, after the reader's choices: made once a change, for all views.

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
 * The ledger of the report, which was taken at the device's peak.
 * @param {Model} model
 * @param {number} device
 */
function ledgerAtPeak(model, device) {
  const ledger = new Ledger(model.categories.length);
  const report = model.reportDevices[device];
  if (!report) return ledger.finish();
  const rows = model.page.report.rows.filter((row) => row.device === report.index);
  const names = processNames(model);
  const several = new Set(rows.map((row) => row.pid).filter((pid) => pid !== null)).size > 1;
  for (const row of rows) {
    const process = model.page.processes.findIndex((other) => other.pid === row.pid);
    const name = several ? names[process] ?? "no recorded process" : null;
    ledger.add(levels(name, row.path), row.bytes, row.count, model.categoryOfPath(row.path));
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
    const path = model.lifePath[life];
    const name = several ? names[model.lifeProcess[life]] : null;
    ledger.add(levels(name, model.page.paths[path]), model.lifeBytes[life], 1, model.pathCategory[path]);
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
    return live.filter((life) => model.pathCategory[model.lifePath[life]] === category);
  }
  const names = processNames(model);
  const byProcess = names.includes(only.path[0]);
  const prefix = byProcess ? only.path.slice(1) : only.path;
  const kept = Uint8Array.from(model.page.paths, (path) => (startsWith(path, prefix) ? 1 : 0));
  return live.filter((life) => kept[model.lifePath[life]] === 1 &&
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
  const ledger = atPeak ? ledgerAtPeak(model, device) : ledgerAt(model, device, at, all);
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
