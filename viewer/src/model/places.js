// SPDX-License-Identifier: Apache-2.0
// Chooses the layers and places that get a colour if most memory has no known category.
import { isKnown, isPurpose } from "./palette.js";

/** @typedef {import("./model.js").Model} Model */

const COLOURED = 8;

/**
 * Whether most of the bytes, over time, have no known purpose.
 * @param {Model} model
 */
export function isMostlyUnknown(model) {
  const { categories, allocations, sites } = model.page;
  const weight = categories.map(() => 0);
  for (let i = 0; i < model.allocationCount; ++i) {
    const site = allocations.site[i];
    if (sites.backing[site] === 1) continue;
    weight[sites.category[site]] += model.bytes[i] * (Math.min(model.end[i], model.duration) - model.begin[i] + 1);
  }
  const known = weight.reduce((sum, each, category) => sum + (isPurpose(categories[category]) ? each : 0), 0);
  return known < (weight[categories.indexOf("unknown")] ?? 0) || known === 0;
}

/**
 * The name used instead of a category: the layer, or the line if there is none.
 * @param {Model} model
 * @param {number} kind
 */
export function placeNameOf(model, kind) {
  const { kinds, page: { names } } = model;
  return names[kinds.module[kind]] || names[kinds.line[kind]];
}

/**
 * The layers and places with most of the memory without a category, mainly at the devices' peaks: ordered by weight, and
 * in stacking order with the longest-lived at the bottom.
 * @param {Model} model
 */
export function choosePlaces(model) {
  const unknown = model.page.categories.indexOf("unknown");
  /** @type {Map<string, {weight: number, bytes: number, byteTime: number}>} */
  const sums = new Map();
  const peaks = model.page.devices.map((_, device) => model.peakTime(device));
  const { allocations, sites, accounts } = model.page;
  for (let i = 0; i < model.allocationCount; ++i) {
    const site = allocations.site[i];
    if (sites.category[site] !== unknown || sites.backing[site] === 1) continue;
    const name = placeNameOf(model, site);
    const size = model.bytes[i];
    if (name === "" || isKnown(name) || size === 0) continue;
    const [begin, end] = [model.begin[i], Math.min(model.end[i], model.duration)];
    const peak = peaks[accounts.device[sites.account[site]]];
    let sum = sums.get(name);
    if (!sum) sums.set(name, sum = { weight: 0, bytes: 0, byteTime: 0 });
    sum.weight += (begin <= peak && model.end[i] > peak ? size : 0) + (0.25 * size * (end - begin)) / model.duration;
    sum.bytes += size;
    sum.byteTime += size * (end - begin);
  }
  const heaviest = [...sums.entries()].sort(([a, x], [b, y]) => y.weight - x.weight || (a < b ? -1 : 1)).slice(0, COLOURED);
  const stacked = heaviest.slice()
    .sort(([a, x], [b, y]) => y.byteTime / y.bytes - x.byteTime / x.bytes || (a < b ? -1 : 1));
  return { heaviest: heaviest.map(([name]) => name), stacked: stacked.map(([name]) => name) };
}
