// SPDX-License-Identifier: Apache-2.0
// Which places in the program get a colour, where the ledger knows no purposes of memory.
import { categoryOf } from "./category.js";
import { isKnown } from "./palette.js";

/** @typedef {import("./model.js").Model} Model */

const COLOURED = 8;

/**
 * The places that hold most, at the devices' peaks above all: heaviest first, and in stacking order,
 * where what lives longest lies at the bottom.
 * @param {Model} model
 */
export function choosePlaces(model) {
  const count = model.places.length;
  const weight = new Float64Array(count);
  const bytes = new Float64Array(count);
  const byteTime = new Float64Array(count);
  const { lives, paths } = model.page;
  const named = Uint8Array.from(paths, (path) => (isKnown(categoryOf(path)) ? 0 : 1));
  const peaks = model.page.devices.map((_, device) => model.peakTime(device));
  for (let life = 0; life < model.lifeCount; ++life) {
    if (named[lives.path[life]] === 0) continue;
    const place = model.stackPlace[lives.stack[life]];
    const size = model.lifeBytes[life];
    const [alloc, free] = [model.lifeAlloc[life], Math.min(model.lifeFree[life], model.duration)];
    const peak = peaks[model.lifeDevice[life]];
    weight[place] += (alloc <= peak && model.lifeFree[life] > peak ? size : 0) +
      (0.25 * size * (free - alloc)) / model.duration;
    bytes[place] += size;
    byteTime[place] += size * (free - alloc);
  }
  const heaviest = [...weight.keys()].filter((place) => place !== 0 && bytes[place] > 0)
    .sort((a, b) => weight[b] - weight[a] || a - b)
    .slice(0, COLOURED);
  const stacked = heaviest.slice()
    .sort((a, b) => byteTime[b] / bytes[b] - byteTime[a] / bytes[a] || a - b);
  return { heaviest, stacked };
}
