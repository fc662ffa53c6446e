// SPDX-License-Identifier: Apache-2.0
// Allocations and frees of one device by time, and their sums between any two instants.

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./history.js").Columns} Columns */
/** @typedef {import("./filter.js").Filter} Filter */

// How many events lie between two stored sums. A seek replays at most so many.
const STRIDE = 1024;

/**
 * Index of the last element that is not above `value`, or -1.
 * @param {Float64Array} sorted
 * @param {number} value
 */
export function lastNotAbove(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

export class Events {
  /**
   * @param {Model} model
   * @param {Float64Array} time Ascending.
   * @param {Float64Array} code A life's index, times two, and one more where it begins.
   */
  constructor(model, time, code) {
    this.model = model;
    this.time = time;
    this.code = code;
    this.categories = model.categories.length;
    const count = time.length;
    this.delta = new Float64Array(count);
    this.category = new Uint8Array(count);
    this.sums = new Float64Array((Math.floor(count / STRIDE) + 1) * this.categories);
    const now = new Float64Array(this.categories);
    for (let i = 0; i <= count; ++i) {
      if (i % STRIDE === 0) this.sums.set(now, (i / STRIDE) * this.categories);
      if (i === count) break;
      const life = Math.floor(code[i] / 2);
      this.category[i] = model.lifeCategory[life];
      this.delta[i] = code[i] % 2 === 1 ? model.lifeBytes[life] : -model.lifeBytes[life];
      now[this.category[i]] += this.delta[i];
    }
  }

  /**
   * Frees come first at equal times.
   * @param {Model} model
   * @param {Uint32Array} lives
   */
  static of(model, lives) {
    let frees = 0;
    for (const life of lives) frees += model.lifeFree[life] < Infinity ? 1 : 0;
    const total = lives.length + frees;
    const time = new Float64Array(total);
    const code = new Float64Array(total);
    let next = 0;
    for (const life of lives) {
      time[next] = model.lifeAlloc[life];
      code[next++] = life * 2 + 1;
      if (model.lifeFree[life] < Infinity) {
        time[next] = model.lifeFree[life];
        code[next++] = life * 2;
      }
    }
    const order = new Uint32Array(total).map((_, i) => i);
    order.sort((a, b) => time[a] - time[b] || (code[a] % 2) - (code[b] % 2));
    return new Events(model, time.map((_, i) => time[order[i]]), code.map((_, i) => code[order[i]]));
  }

  /**
   * Those of lives that pass a filter.
   * @param {Filter} filter
   */
  that(filter) {
    const kept = new Uint32Array(this.time.length);
    let count = 0;
    for (let i = 0; i < kept.length; ++i) {
      if (filter.passes(Math.floor(this.code[i] / 2))) kept[count++] = i;
    }
    const pick = (/** @type {Float64Array} */ from) => new Float64Array(count).map((_, i) => from[kept[i]]);
    return new Events(this.model, pick(this.time), pick(this.code));
  }

  /**
   * Bytes by category of the lives just after the first `events` events.
   * @param {number} events
   */
  sumsAfter(events) {
    const stored = Math.floor(events / STRIDE);
    const sums = this.sums.slice(stored * this.categories, (stored + 1) * this.categories);
    for (let i = stored * STRIDE; i < events; ++i) sums[this.category[i]] += this.delta[i];
    return sums;
  }

  /**
   * Bytes by category of the lives at an instant.
   * @param {number} at
   */
  sumsAt(at) {
    return this.sumsAfter(lastNotAbove(this.time, at) + 1);
  }

  /**
   * Lives between two instants, cut into columns of equal length.
   * @param {number} from
   * @param {number} to
   * @param {number} count
   * @returns {Columns}
   */
  sweep(from, to, count) {
    const width = this.categories;
    const bytes = new Float64Array(count * width);
    const total = new Float64Array(count);
    const at = new Float64Array(count);
    let event = lastNotAbove(this.time, from) + 1;
    const sums = this.sumsAfter(event);
    let sum = sums.reduce((a, b) => a + b, 0);
    for (let column = 0; column < count; ++column) {
      const end = from + ((to - from) * (column + 1)) / count;
      const offset = column * width;
      bytes.set(sums, offset);
      total[column] = sum;
      at[column] = from + ((to - from) * column) / count;
      let highest = sum;
      while (event < this.time.length && this.time[event] < end) {
        sums[this.category[event]] += this.delta[event];
        sum += this.delta[event];
        if (sum > highest) {
          // Written late: a burst of allocations raises the sum many times, the last one counts.
          const following = event + 1;
          const falls = following >= this.time.length || this.time[following] >= end ||
            this.delta[following] < 0;
          if (falls) {
            highest = sum;
            bytes.set(sums, offset);
            total[column] = sum;
            at[column] = this.time[event];
          }
        }
        ++event;
      }
    }
    return { count, bytes, total, at, detailed: true };
  }
}
