// SPDX-License-Identifier: Apache-2.0
// What is live at the chosen instant, after the reader's filters: made once a change, for all views.

import { NAMES } from "./trie.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").State} State */
/** @typedef {import("./filter.js").Filter} Filter */

/**
 * @typedef {object} View
 * @property {number} device
 * @property {number} at Where all sums are exact.
 * @property {number} asked The instant that was asked for: another one where allocations are left out.
 * @property {boolean} atPeak
 * @property {number} total Of the device, filtered or not.
 * @property {number} free Of the total: free bytes of allocators' segments.
 * @property {number|null} nvml Of the sample that shows the device as it stood then.
 * @property {Filter} filter
 * @property {Float64Array} kindBytes Of what passes the filter.
 * @property {Float64Array} kindCount
 * @property {number[]} shown Kinds that have any of it.
 * @property {Float64Array} byCategory Of what passes the filter but for its categories.
 * @property {number} bytes Of what passes the filter.
 * @property {number} listed Bytes of allocations among it.
 * @property {number} count Of allocations among it.
 * @property {{bytes: number, count: number, byCategory: Float64Array, kindBytes: Float64Array}} asleep The same of what is live
 *     for its allocator and has no device memory.
 */

/**
 * What has no device memory, of kinds that pass the filter.
 * @param {Model} model
 * @param {number} device
 * @param {number} at
 * @param {Filter} filter
 */
function asleepAt(model, device, at, filter) {
  const { asleep } = model.histories[device];
  const byCategory = new Float64Array(model.categories.length);
  if (asleep.time.length === 0) return { bytes: 0, count: 0, byCategory, kindBytes: new Float64Array(0) };
  const { bytes: kindBytes, count: kindCount } = asleep.sitesAt(at);
  let [bytes, count] = [0, 0];
  for (let kind = 0; kind < kindBytes.length; ++kind) {
    if (!filter.passesKind(kind)) kindBytes[kind] = kindCount[kind] = 0;
    byCategory[model.kinds.category[kind]] += kindBytes[kind];
    bytes += kindBytes[kind];
    count += kindCount[kind];
  }
  return { bytes, count, byCategory, kindBytes };
}

/**
 * @param {Model} model
 * @param {State} state
 * @param {Filter} filter
 * @returns {View}
 */
export function makeView(model, state, filter) {
  const { device } = state;
  const { kinds, page } = model;
  const atPeak = state.at === null;
  const asked = state.at ?? model.peakTime(device);
  const at = model.nearestExact(asked);
  const { bytes: kindBytes, count: kindCount } = model.histories[device].events.sitesAt(at);
  const sum = (/** @type {Float64Array} */ values) => values.reduce((a, b) => a + b, 0);
  const sample = model.samples[device].find(at, sum(kindBytes));
  if (sample && sample.transit > 0) kindBytes[page.in_transit_site] = sample.transit;
  const total = sum(kindBytes);
  let free = 0;
  for (let kind = 0; kind < kinds.count; ++kind) if (model.free[page.sites.category[kind]]) free += kindBytes[kind];
  if (filter.min > 0) {
    kindBytes.fill(0);
    kindCount.fill(0);
    for (const i of model.liveAt(device, at)) {
      if (model.bytes[i] < filter.min) continue;
      kindBytes[page.allocations.site[i]] += model.bytes[i];
      kindCount[page.allocations.site[i]] += 1;
    }
  }
  const byCategory = new Float64Array(model.categories.length);
  const shown = [];
  let [bytes, listed, count] = [0, 0, 0];
  for (let kind = 0; kind < kinds.count; ++kind) {
    if (kindBytes[kind] === 0 && kindCount[kind] === 0) continue;
    if (filter.kind[kind] === 1) byCategory[kinds.category[kind]] += kindBytes[kind];
    if (!filter.passesKind(kind)) {
      kindBytes[kind] = kindCount[kind] = 0;
      continue;
    }
    shown.push(kind);
    bytes += kindBytes[kind];
    listed += kindCount[kind] > 0 ? kindBytes[kind] : 0;
    count += kindCount[kind];
  }
  return {
    device, at, asked, atPeak, total, free, filter, kindBytes, kindCount, shown, byCategory, bytes, listed, count, nvml: sample?.used ?? null,
    asleep: asleepAt(model, device, at, filter),
  };
}

/**
 * The view's allocations of a kind, largest first.
 * @param {Model} model
 * @param {View} view
 * @param {number} kind
 */
export function allocationsOf(model, view, kind) {
  return model.liveAt(view.device, view.at)
    .filter((i) => model.page.allocations.site[i] === kind && view.filter.passes(i))
    .sort((a, b) => model.bytes[b] - model.bytes[a]);
}

/**
 * @typedef {object} Entry
 * @property {number} id Of a name or a place.
 * @property {number} bytes
 * @property {number} count
 * @property {Float64Array} byCategory
 * @property {Map<number, number>} purposes Bytes by the recording's own categories.
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
      entry = {
        id, bytes: 0, count: 0, byCategory: new Float64Array(model.categories.length), purposes: new Map(),
        stack: model.kinds.placeStack[kind],
      };
      entries.set(id, entry);
    }
    entry.bytes += view.kindBytes[kind];
    entry.count += view.kindCount[kind];
    entry.byCategory[model.kinds.category[kind]] += view.kindBytes[kind];
    const purpose = model.page.sites.category[kind];
    entry.purposes.set(purpose, (entry.purposes.get(purpose) ?? 0) + view.kindBytes[kind]);
  }
  return [...entries.values()].sort((a, b) => b.bytes - a.bytes || NAMES.compare(model.page.names[a.id], model.page.names[b.id]));
}
