// SPDX-License-Identifier: Apache-2.0
// Which layers and places in the program get a colour, where nobody knows what most memory is for.
import { isKnown, isPurpose } from "./palette.js";

/** @typedef {import("./model.js").Model} Model */

const COLOURED = 8;

/**
 * Whether most of the lives' bytes, over time, have no known purpose.
 * @param {Model} model
 */
export function isMostlyUnknown(model) {
  const { categories, lives } = model.page;
  const weight = categories.map(() => 0);
  for (let life = 0; life < model.lifeCount; ++life) {
    const until = Math.min(model.lifeFree[life], model.duration);
    weight[lives.category[life]] += model.lifeBytes[life] * (until - model.lifeAlloc[life] + 1);
  }
  const known = weight.reduce((sum, each, category) => sum + (isPurpose(categories[category]) ? each : 0), 0);
  return known < (weight[categories.indexOf("unknown")] ?? 0) || known === 0;
}

/**
 * What stands for a life's purpose: its layer, else its line.
 * @param {Model} model
 * @param {number} life
 */
export function placeNameOf(model, life) {
  const { lives, names } = model.page;
  return names[lives.module[life]] || model.places[model.stackPlace[lives.place[life] || lives.stack[life]]];
}

/**
 * The layers and places that hold most of what has no purpose, at the devices' peaks above all:
 * heaviest first, and in stacking order, where what lives longest lies at the bottom.
 * @param {Model} model
 */
export function choosePlaces(model) {
  const unknown = model.page.categories.indexOf("unknown");
  /** @type {Map<string, {weight: number, bytes: number, byteTime: number}>} */
  const sums = new Map();
  const peaks = model.page.devices.map((_, device) => model.peakTime(device));
  for (let life = 0; life < model.lifeCount; ++life) {
    if (model.page.lives.category[life] !== unknown) continue;
    const name = placeNameOf(model, life);
    const size = model.lifeBytes[life];
    if (name === "" || isKnown(name) || size === 0) continue;
    const [alloc, free] = [model.lifeAlloc[life], Math.min(model.lifeFree[life], model.duration)];
    const peak = peaks[model.lifeDevice[life]];
    let sum = sums.get(name);
    if (!sum) sums.set(name, sum = { weight: 0, bytes: 0, byteTime: 0 });
    sum.weight += (alloc <= peak && model.lifeFree[life] > peak ? size : 0) + (0.25 * size * (free - alloc)) / model.duration;
    sum.bytes += size;
    sum.byteTime += size * (free - alloc);
  }
  const heaviest = [...sums.entries()].sort(([a, x], [b, y]) => y.weight - x.weight || (a < b ? -1 : 1)).slice(0, COLOURED);
  const stacked = heaviest.slice()
    .sort(([a, x], [b, y]) => y.byteTime / y.bytes - x.byteTime / x.bytes || (a < b ? -1 : 1));
  return { heaviest: heaviest.map(([name]) => name), stacked: stacked.map(([name]) => name) };
}
