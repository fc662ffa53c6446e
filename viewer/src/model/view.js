// SPDX-License-Identifier: Apache-2.0
// The live memory at the chosen instant, after the filters. Made once for all views.

import { NAMES } from "../base/trie.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").State} State */
/** @typedef {import("./filter.js").Filter} Filter */

/**
 * @typedef {object} View
 * @property {number} device
 * @property {number} at The shown instant, with exact sums.
 * @property {number} asked The requested instant. It differs from `at` if allocations are left out.
 * @property {boolean} atPeak
 * @property {number} total Bytes of the device, without filters.
 * @property {number} free Free bytes of allocators' segments in the total.
 * @property {number|null} nvml NVML's figure of the matching sample.
 * @property {Filter} filter
 * @property {Float64Array} kindBytes Filtered bytes of each kind.
 * @property {Float64Array} kindCount
 * @property {number[]} shown Kinds with filtered bytes.
 * @property {Float64Array} byCategory Bytes by category, without the filter of categories.
 * @property {number} bytes All filtered bytes.
 * @property {number} listed Filtered bytes of allocations.
 * @property {number} count Number of filtered allocations.
 * @property {{bytes: number, count: number, byCategory: Float64Array, kindBytes: Float64Array}} asleep The same for
  *     live memory without device memory.
 */

/**
 * Filtered live memory without device memory.
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
 * The live allocations of a kind, largest first.
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
 * @property {number} id Number of a name or a place.
 * @property {number} bytes
 * @property {number} count
 * @property {Float64Array} byCategory
 * @property {Map<number, number>} purposes Bytes by the recording's own categories.
 * @property {number} stack An example of a stack that ends at the place.
 */

/**
 * The bytes of the view, grouped by a number of each kind, largest first. Number 0 is left out.
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
