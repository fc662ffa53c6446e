// SPDX-License-Identifier: Apache-2.0
// The changes on one device over time, and their sums at and between instants.

import { SLACK } from "./ledger.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./history.js").Columns} Columns */
/** @typedef {import("./filter.js").Filter} Filter */

// Events between two stored sums, and thus the most that a seek replays.
const STRIDE = 1024;
// The limit of stored sums by site of a device: 16 MB for bytes and allocations.
const STORED_SUMS = 2 ** 20;

/**
 * The index of the last element <= `value`, or -1.
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

/**
 * The index of the first element >= `value`, from `from` on.
 * @param {Float64Array} sorted
 * @param {number} value
 * @param {number} from
 */
function firstFrom(sorted, value, from) {
  let low = from;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @typedef {{end: number, bytes: Float64Array, count: Float64Array}} SiteSums After so many events. */

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
    /** Indexed by category: 1 if the memory is in use. */
    this.use = Uint8Array.from(model.categories, (name) => (SLACK.includes(name) ? 0 : 1));
    /** Indexed by site: 1 if its events count. */
    this.mask = new Uint8Array(model.kinds.category.length).fill(1);
    /** Whether all events count. */
    this.whole = true;
    const count = this.time.length;
    /** Indexed by event: whether the next event has another time. */
    this.isLast = new Uint8Array(count);
    for (let i = 0; i < count; ++i) this.isLast[i] = Number(this.time[i] !== this.time[i + 1]);
    this.category = new Uint8Array(count);
    for (let i = 0; i < count; ++i) this.category[i] = model.kinds.category[changes.site[i]];
    /** Sums by site at some events, and the last requested sums; the same with and without a mask. */
    this.bySite = { stride: 1, stored: /** @type {SiteSums[]} */ ([]), last: /** @type {SiteSums|null} */ (null) };
    this.sums = new Float64Array((Math.floor(count / STRIDE) + 1) * this.categories);
    const now = new Float64Array(this.categories);
    for (let i = 0; i <= count; ++i) {
      if (i % STRIDE === 0) this.sums.set(now, (i / STRIDE) * this.categories);
      if (i < count) now[this.category[i]] += this.delta[i];
    }
  }

  /**
   * The same events, restricted to some sites.
   * @param {Uint8Array} mask By site.
   * @returns {Events}
   */
  that(mask) {
    return Object.assign(Object.create(Events.prototype), this, { whole: false, mask: mask.map((one, site) => one & this.mask[site]) });
  }

  /**
   * The events of allocations that pass a filter by size; nothing else has a size. A step is a few milliseconds.
   * @param {Model} model
   * @param {Filter} filter
   * @param {number} device
   * @returns {Generator<void, Events>}
   */
  static* ofAllocations(model, filter, device) {
    const { begin, end, bytes, page: { allocations: { site } } } = model;
    const passing = (/** @type {Uint32Array} */ all) => {
      const kept = new Uint32Array(all.length);
      let next = 0;
      for (let at = 0; at < all.length; ++at) if (filter.passes(all[at])) kept[next++] = all[at];
      return kept.subarray(0, next);
    };
    const begins = passing(model.allocationsOf(device));
    yield;
    const ends = passing(model.endsOf(device));
    yield;
    const count = begins.length + ends.length;
    const changes = { time: new Float64Array(count), site: new Uint32Array(count), bytes: new Float64Array(count), count: new Float64Array(count) };
    for (let [at, next, over] = [0, 0, 0]; at < count; ++at) {
      // At the same time, frees come before allocations.
      const ended = over < ends.length && (next === begins.length || end[ends[over]] <= begin[begins[next]]);
      const i = ended ? ends[over++] : begins[next++];
      changes.time[at] = ended ? end[i] : begin[i];
      changes.site[at] = site[i];
      changes.bytes[at] = ended ? -bytes[i] : bytes[i];
      changes.count[at] = ended ? -1 : 1;
    }
    yield;
    return new Events(model, changes);
  }

  /**
   * Bytes and allocations by site at an instant. Continues from the last instant or from stored sums, whichever is nearer:
   * a drag asks for near instants. Whole numbers make both exact.
   * @param {number} at
   */
  sitesAt(at) {
    const last = this.sitesAfter(lastNotAbove(this.time, at) + 1);
    return { bytes: last.bytes.slice(), count: last.count.slice() };
  }

  /**
   * The same after a number of events. Valid until the next call.
   * @param {number} end
   */
  sitesAfter(end) {
    const { site, bytes, count } = this.changes;
    const { bySite } = this;
    if (bySite.stored.length === 0) this.storeSites();
    const { stored, stride } = bySite;
    const near = stored[Math.min(stored.length - 1, Math.round(end / stride))];
    if (!bySite.last || Math.abs(near.end - end) < Math.abs(bySite.last.end - end)) {
      bySite.last = { end: near.end, bytes: near.bytes.slice(), count: near.count.slice() };
    }
    const { last } = bySite;
    for (; last.end < end; ++last.end) {
      last.bytes[site[last.end]] += bytes[last.end];
      last.count[site[last.end]] += count[last.end];
    }
    while (last.end > end) {
      --last.end;
      last.bytes[site[last.end]] -= bytes[last.end];
      last.count[site[last.end]] -= count[last.end];
    }
    return last;
  }

  /** Stores sums by site at equally spaced events, as many as the limit allows. */
  storeSites() {
    const { site, bytes, count } = this.changes;
    const kinds = this.model.kinds.count;
    const stores = Math.max(1, Math.min(Math.ceil(site.length / STRIDE), Math.floor(STORED_SUMS / kinds)));
    const stride = this.bySite.stride = Math.max(1, Math.ceil(site.length / stores));
    const now = { end: 0, bytes: new Float64Array(kinds), count: new Float64Array(kinds) };
    for (; ; ++now.end) {
      if (now.end % stride === 0) this.bySite.stored.push({ end: now.end, bytes: now.bytes.slice(), count: now.count.slice() });
      if (now.end === site.length) return;
      now.bytes[site[now.end]] += bytes[now.end];
      now.count[site[now.end]] += count[now.end];
    }
  }

  /**
   * Bytes by category after the first `events` events.
   * @param {number} events
   */
  sumsAfter(events) {
    if (!this.whole) {
      const { mask } = this;
      const { category } = this.model.kinds;
      const chosen = new Float64Array(this.categories);
      if (events === 0) return chosen;
      const { bytes } = this.sitesAfter(events);
      for (let site = 0; site < bytes.length; ++site) chosen[category[site]] += mask[site] * bytes[site];
      return chosen;
    }
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
   * The sum of all categories at ascending instants.
   * @param {Float64Array} instants
   */
  totalsAt(instants) {
    const { time, delta, mask, changes: { site } } = this;
    const totals = new Float64Array(instants.length);
    let [next, sum] = [0, 0];
    for (let i = 0; i < instants.length; ++i) {
      for (; next < time.length && time[next] <= instants[i]; ++next) sum += mask[site[next]] * delta[next];
      totals[i] = sum;
    }
    return totals;
  }

  /** The highest sum of all categories, and its instant. */
  highest() {
    let [now, best] = [0, { bytes: 0, at: 0 }];
    for (let i = 0; i < this.time.length; ++i) {
      now += this.delta[i];
      if (now > best.bytes && this.time[i + 1] !== this.time[i]) best = { bytes: now, at: this.time[i] };
    }
    return best;
  }

  /**
   * The memory between two instants, in columns of equal duration.
   * @param {number} from
   * @param {number} to
   * @param {number} count
   * @returns {Columns}
   */
  sweep(from, to, count) {
    const sweep = new Sweep(this, from, to, count);
    sweep.go(Infinity);
    return sweep.columns;
  }
}

/**
 * Computes columns. A column shows its highest instant; among equal ones that with most memory in use, like
 * query/core/peaks.h.
 */
export class Sweep {
  /**
   * @param {Events} events
   * @param {number} from
   * @param {number} to
   * @param {number} count
   */
  constructor(events, from, to, count) {
    this.events = events;
    this.from = from;
    this.to = to;
    /** @type {Columns} */
    this.columns = {
      count, bytes: new Float64Array(count * events.categories), total: new Float64Array(count), at: new Float64Array(count), detailed: true,
    };
    this.column = 0;
    this.event = lastNotAbove(events.time, from) + 1;
    this.sums = events.sumsAfter(this.event);
    this.sum = this.sums.reduce((a, b) => a + b, 0);
    this.used = this.sums.reduce((a, b, category) => a + b * events.use[category], 0);
  }

  /**
   * Computes whole columns until `most` events are processed or all is done.
   * @param {number} most
   * @returns {boolean} Whether all is done.
   */
  go(most) {
    const { count } = this.columns;
    for (const until = this.event + most; this.column < count && this.event < until; ++this.column) this.fill(this.column);
    return this.column === count;
  }

  /** @param {number} column */
  fill(column) {
    const { from, to, sums, columns: { count, bytes, total, at } } = this;
    const { time, delta, category, use, mask, isLast, categories: width, changes: { site } } = this.events;
    const end = from + ((to - from) * (column + 1)) / count;
    const stop = firstFrom(time, end, this.event);
    const offset = column * width;
    let { event, sum, used } = this;
    bytes.set(sums, offset);
    at[column] = from + ((to - from) * column) / count;
    let [best, bestSum, bestUsed] = [-1, sum, used];
    for (; event < stop; ++event) {
      // No branch, because it would be mispredicted often.
      const change = mask[site[event]] * delta[event];
      const of = category[event];
      sums[of] += change;
      sum += change;
      used += change * use[of];
      // Compare only after all events of a time: a new block also reduces free memory.
      if (sum >= bestSum && isLast[event] === 1 && (sum > bestSum || used > bestUsed)) {
        bestSum = sum;
        bestUsed = used;
        best = event;
      }
    }
    this.event = event;
    this.sum = sum;
    this.used = used;
    total[column] = bestSum;
    if (best < 0) return;
    at[column] = time[best];
    // Return to the highest instant once for each column, not at each new maximum of a burst.
    bytes.set(sums, offset);
    for (let i = best + 1; i < event; ++i) bytes[offset + category[i]] -= mask[site[i]] * delta[i];
  }
}
