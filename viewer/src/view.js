// SPDX-License-Identifier: Apache-2.0
// What is live at the chosen instant, after the reader's filters: made once a change, for all views.
import { NOT_LISTED } from "./palette.js";
import { processOf } from "./ways.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").State} State */
/** @typedef {import("./filter.js").Filter} Filter */

/**
 * Bytes that no life explains: free memory of allocators, what the page does not list.
 * @typedef {object} Slack
 * @property {number} process -1: of no recorded one.
 * @property {string[]} path Levels of the ledger below process.
 * @property {number} bytes
 * @property {number} count
 * @property {number} category
 */

/**
 * @typedef {object} View
 * @property {number} device
 * @property {number} at
 * @property {boolean} atPeak
 * @property {number} total Of the device, filtered or not.
 * @property {number|null} nvml At the peak.
 * @property {Filter} filter
 * @property {Float64Array} kindBytes Of what passes the filter.
 * @property {Uint32Array} kindCount
 * @property {number[]} shown Kinds that have any of it.
 * @property {Slack[]} slack That passes the filter.
 * @property {Float64Array} byCategory Of what passes the filter but for its categories.
 * @property {number} bytes Of what passes the filter, slack included.
 * @property {number} listed Bytes of lives among it.
 * @property {number} count Of lives among it.
 */

/**
 * @param {number} process
 * @param {string[]} path
 */
const rowKey = (process, path) => `${process}\u0000${path.join("\u0000")}`;

/**
 * Slack at the device's peak: what the report's rows have and lives do not explain. What an owner's
 * lives have beyond one of its rows (they know their purpose from their whole life, the row from the
 * instant) is taken from its other rows, so that the sum stays the report's.
 * @param {Model} model
 * @param {number} device
 * @param {Float64Array} listed Bytes by kind.
 * @param {Uint32Array} counts
 * @returns {Slack[]}
 */
function slackAtPeak(model, device, listed, counts) {
  const { page, kinds } = model;
  /** @type {Map<string, {bytes: number, count: number, owner: string}>} */
  const lives = new Map();
  for (let kind = 0; kind < kinds.count; ++kind) {
    if (counts[kind] === 0) continue;
    const path = page.paths[kinds.path[kind]] ?? [];
    const key = rowKey(kinds.process[kind], path);
    const known = lives.get(key) ?? { bytes: 0, count: 0, owner: rowKey(kinds.process[kind], path.slice(0, 1)) };
    lives.set(key, { ...known, bytes: known.bytes + listed[kind], count: known.count + counts[kind] });
  }
  const rows = page.report.rows.filter((row) => row.device === page.devices[device].index).map((row) => {
    const process = page.processes.findIndex((other) => other.pid === row.pid);
    const key = rowKey(process, row.path);
    const explained = lives.get(key) ?? { bytes: 0, count: 0 };
    lives.delete(key);
    return { row, process, owner: rowKey(process, row.path.slice(0, 1)), explained, over: explained.bytes - row.bytes };
  });
  /** @type {Map<string, number>} */
  const over = new Map();
  const add = (/** @type {string} */ owner, /** @type {number} */ bytes) => over.set(owner, (over.get(owner) ?? 0) + bytes);
  for (const each of rows) if (each.over > 0) add(each.owner, each.over);
  for (const each of lives.values()) add(each.owner, each.bytes);
  const slack = [];
  for (const { row, process, owner, explained } of rows) {
    let bytes = row.bytes - explained.bytes;
    if (bytes <= 0) continue;
    // Free memory of an allocator is nobody's life.
    const taken = row.count > 0 ? Math.min(bytes, over.get(owner) ?? 0) : 0;
    add(owner, -taken);
    bytes -= taken;
    if (bytes === 0) continue;
    const category = model.categoryOfPath(row.path);
    const cut = page.left_out.count > 0 && row.count > 0 && (explained.bytes > 0 || model.categories[category] === "unknown");
    slack.push({
      process, bytes, count: Math.max(0, row.count - explained.count),
      path: cut ? [...row.path, NOT_LISTED] : row.path,
      category: cut ? model.categoryIndex.get(NOT_LISTED) ?? category : category,
    });
  }
  return slack;
}

/**
 * Slack at another instant, which the page knows by category only.
 * @param {Model} model
 * @param {number} device
 * @param {number} at
 * @param {Float64Array} listed
 * @returns {Slack[]}
 */
function slackAt(model, device, at, listed) {
  const rest = model.histories[device].bytesAt(at);
  listed.forEach((bytes, kind) => { rest[model.kinds.category[kind]] -= bytes; });
  const process = model.page.processes.length === 1 ? 0 : -1;
  return [...rest].map((bytes, category) => ({ process, path: [model.categories[category]], bytes, count: 0, category }))
    .filter(({ bytes }) => bytes > 0);
}

/**
 * @param {Model} model
 * @param {State} state
 * @param {Filter} filter
 * @returns {View}
 */
export function makeView(model, state, filter) {
  const { device } = state;
  const { kinds, lifeBytes } = model;
  const atPeak = state.at === null;
  const at = state.at ?? model.peakTime(device);
  const allBytes = new Float64Array(kinds.count);
  const allCount = new Uint32Array(kinds.count);
  const kindBytes = new Float64Array(kinds.count);
  const kindCount = new Uint32Array(kinds.count);
  for (const life of model.liveAt(device, at)) {
    const kind = kinds.ofLife[life];
    allBytes[kind] += lifeBytes[life];
    allCount[kind] += 1;
    if (filter.kind[kind] === 0 || lifeBytes[life] < filter.min) continue;
    kindBytes[kind] += lifeBytes[life];
    kindCount[kind] += 1;
  }
  const allSlack = atPeak ? slackAtPeak(model, device, allBytes, allCount) : slackAt(model, device, at, allBytes);
  const sum = (/** @type {Iterable<number>} */ values) => [...values].reduce((a, b) => a + b, 0);
  const total = sum(allBytes) + sum(allSlack.map((slack) => slack.bytes));
  const byCategory = new Float64Array(model.categories.length);
  const several = model.several[device];
  const slack = allSlack.filter(({ process, path, bytes, category }) => {
    if (!filter.passesSlack(several ? [processOf(model, process), ...path] : path)) return false;
    byCategory[category] += bytes;
    return filter.category[category] === 1;
  });
  const shown = [];
  let [listed, count] = [0, 0];
  for (let kind = 0; kind < kinds.count; ++kind) {
    if (kindCount[kind] === 0) continue;
    byCategory[kinds.category[kind]] += kindBytes[kind];
    if (filter.category[kinds.category[kind]] === 0) {
      kindBytes[kind] = kindCount[kind] = 0;
      continue;
    }
    shown.push(kind);
    listed += kindBytes[kind];
    count += kindCount[kind];
  }
  return {
    device, at, atPeak, total, filter, kindBytes, kindCount, shown, slack, byCategory, listed, count,
    bytes: listed + sum(slack.map((row) => row.bytes)),
    // A sample belongs to its own instant: beside another one it would make a false residual.
    nvml: atPeak ? model.reportDevices[device]?.nvml_bytes ?? null : null,
  };
}

/**
 * The view's lives of some kinds, largest first.
 * @param {Model} model
 * @param {View} view
 * @param {number} kind
 */
export function livesOf(model, view, kind) {
  return model.liveAt(view.device, view.at)
    .filter((life) => model.kinds.ofLife[life] === kind && view.filter.passes(life))
    .sort((a, b) => model.lifeBytes[b] - model.lifeBytes[a]);
}

/**
 * @typedef {object} Entry
 * @property {number} id Of a name or a place.
 * @property {number} bytes
 * @property {number} count
 * @property {Float64Array} byCategory
 * @property {number} stack A stack that ends there.
 */

/**
 * What the view holds by a number that each kind has, largest first. 0 is nobody.
 * @param {Model} model
 * @param {View} view
 * @param {(kind: number) => number} idOf
 */
export function heaviest(model, view, idOf) {
  /** @type {Map<number, Entry>} */
  const entries = new Map();
  for (const kind of view.shown) {
    const id = idOf(kind);
    if (id === 0) continue;
    let entry = entries.get(id);
    if (!entry) {
      entry = { id, bytes: 0, count: 0, byCategory: new Float64Array(model.categories.length), stack: model.kinds.placeStack[kind] };
      entries.set(id, entry);
    }
    entry.bytes += view.kindBytes[kind];
    entry.count += view.kindCount[kind];
    entry.byCategory[model.kinds.category[kind]] += view.kindBytes[kind];
  }
  return [...entries.values()].sort((a, b) => b.bytes - a.bytes || a.id - b.id);
}
