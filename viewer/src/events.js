// SPDX-License-Identifier: Apache-2.0
// What changes on one device by time, and its sums at and between any instants.

import { SLACK } from "./ledger.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./history.js").Columns} Columns */
/** @typedef {Pick<import("./filter.js").Filter, "min"|"passesKind"|"passes">} Passing */

// How many events lie between two stored sums. A seek replays at most so many.
const STRIDE = 1024;
// How many sums by site a device keeps, of bytes and of allocations: 16 MB.
const STORED_SUMS = 2 ** 20;

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
   * @param {import("./ledger.js").Changes} changes
   */
  constructor(model, changes) {
    this.changes = changes;
    this.model = model;
    this.time = changes.time;
    this.delta = changes.bytes;
    this.categories = model.categories.length;
    /** By category: 1 where somebody uses it. */
    this.use = Uint8Array.from(model.categories, (name) => (SLACK.includes(name) ? 0 : 1));
    const count = this.time.length;
    const { category } = model.kinds;
    this.category = Uint8Array.from(changes.site, (site) => category[site]);
    /** @type {{end: number, bytes: Float64Array, count: Float64Array}[]|null} */
    this.siteSums = null;
    this.siteStride = 1;
    /**
     * The sums by site that were asked for last: after how many events.
     * @type {{end: number, bytes: Float64Array, count: Float64Array}|null}
     */
    this.last = null;
    this.sums = new Float64Array((Math.floor(count / STRIDE) + 1) * this.categories);
    const now = new Float64Array(this.categories);
    for (let i = 0; i <= count; ++i) {
      if (i % STRIDE === 0) this.sums.set(now, (i / STRIDE) * this.categories);
      if (i < count) now[this.category[i]] += this.delta[i];
    }
  }

  /**
   * Those that pass a filter.
   * @param {Passing} filter
   * @param {number} device
   */
  that(filter, device) {
    if (filter.min > 0) return new Events(this.model, this.allocationsThat(filter, device));
    const { time, site, bytes, count } = this.changes;
    const kept = Uint32Array.from(site.keys()).filter((i) => filter.passesKind(site[i]));
    const pick = (/** @type {Float64Array} */ from) => Float64Array.from(kept, (i) => from[i]);
    return new Events(this.model, { time: pick(time), site: Uint32Array.from(kept, (i) => site[i]), bytes: pick(bytes), count: pick(count) });
  }

  /**
   * Only allocations have a size of their own.
   * @param {Passing} filter
   * @param {number} device
   */
  allocationsThat(filter, device) {
    const { begin, end, bytes, page: { allocations } } = this.model;
    const kept = this.model.allocationsOf(device).filter((i) => filter.passes(i));
    /** @type {[number, number, number][]} Time, allocation, sign. */
    const events = [...kept].flatMap((i) => (end[i] < Infinity ? [[begin[i], i, 1], [end[i], i, -1]] : [[begin[i], i, 1]]));
    events.sort((a, b) => a[0] - b[0] || a[2] - b[2]);
    return {
      time: Float64Array.from(events, ([at]) => at), site: Uint32Array.from(events, ([, i]) => allocations.site[i]),
      bytes: Float64Array.from(events, ([, i, sign]) => sign * bytes[i]), count: Float64Array.from(events, ([, , sign]) => sign),
    };
  }

  /**
   * Bytes and allocations by site at an instant. Who drags an instant asks for one near the last: the sums
   * go on from there, or from the stored ones where those are nearer. Whole numbers make it exact either way.
   * @param {number} at
   */
  sitesAt(at) {
    const { site, bytes, count } = this.changes;
    const stores = this.siteSums ?? (this.siteSums = this.storeSites());
    const end = lastNotAbove(this.time, at) + 1;
    const near = stores[Math.min(stores.length - 1, Math.round(end / this.siteStride))];
    if (!this.last || Math.abs(near.end - end) < Math.abs(this.last.end - end)) {
      this.last = { end: near.end, bytes: near.bytes.slice(), count: near.count.slice() };
    }
    const { last } = this;
    for (; last.end < end; ++last.end) {
      last.bytes[site[last.end]] += bytes[last.end];
      last.count[site[last.end]] += count[last.end];
    }
    while (last.end > end) {
      --last.end;
      last.bytes[site[last.end]] -= bytes[last.end];
      last.count[site[last.end]] -= count[last.end];
    }
    return { bytes: last.bytes.slice(), count: last.count.slice() };
  }

  /** Sums by site at events that are equally far apart, as many as there is room for. */
  storeSites() {
    const { site, bytes, count } = this.changes;
    const kinds = this.model.kinds.count;
    const stores = Math.max(1, Math.min(Math.ceil(site.length / STRIDE), Math.floor(STORED_SUMS / kinds)));
    this.siteStride = Math.max(1, Math.ceil(site.length / stores));
    const now = { end: 0, bytes: new Float64Array(kinds), count: new Float64Array(kinds) };
    const stored = [];
    for (; ; ++now.end) {
      if (now.end % this.siteStride === 0) stored.push({ end: now.end, bytes: now.bytes.slice(), count: now.count.slice() });
      if (now.end === site.length) return stored;
      now.bytes[site[now.end]] += bytes[now.end];
      now.count[site[now.end]] += count[now.end];
    }
  }

  /**
   * Bytes by category just after the first `events` of them.
   * @param {number} events
   */
  sumsAfter(events) {
    const stored = Math.floor(events / STRIDE);
    const sums = this.sums.slice(stored * this.categories, (stored + 1) * this.categories);
    for (let i = stored * STRIDE; i < events; ++i) sums[this.category[i]] += this.delta[i];
    return sums;
  }

  /**
   * Bytes by category at an instant.
   * @param {number} at
   */
  sumsAt(at) {
    return this.sumsAfter(lastNotAbove(this.time, at) + 1);
  }

  /**
   * The sum of all of them at instants that only go on.
   * @param {Float64Array} instants
   */
  totalsAt(instants) {
    const totals = new Float64Array(instants.length);
    let [next, sum] = [0, 0];
    for (let i = 0; i < instants.length; ++i) {
      for (; next < this.time.length && this.time[next] <= instants[i]; ++next) sum += this.delta[next];
      totals[i] = sum;
    }
    return totals;
  }

  /** The highest sum of all of them, and when. */
  highest() {
    let [now, best] = [0, { bytes: 0, at: 0 }];
    for (let i = 0; i < this.time.length; ++i) {
      now += this.delta[i];
      if (now > best.bytes && this.time[i + 1] !== this.time[i]) best = { bytes: now, at: this.time[i] };
    }
    return best;
  }

  /**
   * What was there between two instants, cut into columns of equal length: each at its highest instant, among equal
   * ones that with most in use, as query/peaks.h has it.
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
    let used = sums.reduce((a, b, category) => a + b * this.use[category], 0);
    for (let column = 0; column < count; ++column) {
      const end = from + ((to - from) * (column + 1)) / count;
      const offset = column * width;
      bytes.set(sums, offset);
      total[column] = sum;
      at[column] = from + ((to - from) * column) / count;
      let best = -1;
      let bestUsed = used;
      while (event < this.time.length && this.time[event] < end) {
        // No instant is between what happens at one time: a block that begins takes free memory away.
        const now = this.time[event];
        for (; event < this.time.length && this.time[event] === now; ++event) {
          sums[this.category[event]] += this.delta[event];
          sum += this.delta[event];
          used += this.delta[event] * this.use[this.category[event]];
        }
        if (sum > total[column] || (sum === total[column] && used > bestUsed)) {
          total[column] = sum;
          bestUsed = used;
          at[column] = now;
          best = event;
        }
      }
      if (best < 0) continue;
      // Back to the highest: once a column, not at each new height of a burst.
      bytes.set(sums, offset);
      for (let i = best; i < event; ++i) bytes[offset + this.category[i]] -= this.delta[i];
    }
    return { count, bytes, total, at, detailed: true };
  }
}
