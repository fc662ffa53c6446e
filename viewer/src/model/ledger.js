// SPDX-License-Identifier: Apache-2.0
// The changes of the ledger: the bytes that each site gains or loses over time, by the rules of `vramscope report --at`
// (src/query/core/live_set.h). Their sum at an instant equals the report.

/** @typedef {import("./types.js").PageData} PageData */

/**
 * The changes on one device, ordered by time.
 * @typedef {object} Changes
 * @property {Float64Array} time
 * @property {Uint32Array} site
 * @property {Float64Array} bytes
 * @property {Float64Array} count Of allocations.
 */

/**
 * Decodes numbers written as differences.
 * @param {number[]} deltas
 */
export function fromDeltas(deltas) {
  const values = new Float64Array(deltas.length);
  let now = 0;
  for (let i = 0; i < deltas.length; ++i) values[i] = now += deltas[i];
  return values;
}

// Kinds of events in their order at the same time: ends come first.
const ENDS = 0;
const STEP = 1;
const BEGINS = 2;
const LEFT_OUT = 3;
const AWAY = 4; // 5: restored

// Categories of unused free memory.
export const SLACK = ["cached", "fragmentation", "graph pool", "rounding"];

/**
 * The indices of times in ascending order (stable radix sort with base 2^16). Infinity, which means never, comes last.
 * @param {Float64Array} times Whole numbers.
 */
export function sortedBy(times) {
  const RADIX = 2 ** 16;
  const count = times.length;
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < count; ++i) {
    if (times[i] < low) low = times[i];
    if (times[i] > high && times[i] < Infinity) high = times[i];
  }
  let from = Uint32Array.from(times.keys());
  let to = new Uint32Array(count);
  const starts = new Uint32Array(RADIX + 1);
  for (let unit = 1; unit <= Math.max(0, high - low); unit *= RADIX) {
    const digitOf = (/** @type {number} */ i) => (times[i] < Infinity ? Math.floor((times[i] - low) / unit) % RADIX : RADIX - 1);
    starts.fill(0);
    for (let i = 0; i < count; ++i) ++starts[digitOf(i) + 1];
    for (let digit = 0; digit < RADIX; ++digit) starts[digit + 1] += starts[digit];
    for (let i = 0; i < count; ++i) to[starts[digitOf(from[i])]++] = from[i];
    [from, to] = [to, from];
  }
  // Infinity shares its highest digits with very late times.
  let next = 0;
  for (let i = 0; i < count; ++i) if (times[from[i]] < Infinity) to[next++] = from[i];
  for (let i = 0; i < count; ++i) if (!(times[from[i]] < Infinity)) to[next++] = from[i];
  return to;
}

/**
 * Sorted times with their original indices.
 * @typedef {object} Stream
 * @property {Float64Array} times
 * @property {Uint32Array} index
 */

/**
 * @param {Float64Array} times Infinity: never.
 * @returns {Stream}
 */
function inOrder(times) {
  let sorted = true;
  for (let i = 1; i < times.length && sorted; ++i) sorted = times[i - 1] <= times[i];
  if (sorted) return { times, index: Uint32Array.from(times.keys()) };
  const index = sortedBy(times);
  return { times: Float64Array.from(index, (i) => times[i]), index };
}

/** A growing list of changes, one for each site and time. */
class Growing {
  /** @param {number} sites How many there are. */
  constructor(sites) {
    this.length = 0;
    this.lastOf = new Int32Array(sites).fill(-1);
    this.time = new Float64Array(1024);
    this.site = new Uint32Array(1024);
    this.bytes = new Float64Array(1024);
    this.count = new Float64Array(1024);
  }

  /**
   * @param {number} time
   * @param {number} site
   * @param {number} bytes
   * @param {number} count
   */
  push(time, site, bytes, count) {
    const last = this.lastOf[site];
    if (last >= 0 && this.time[last] === time) {
      this.bytes[last] += bytes;
      this.count[last] += count;
      return;
    }
    const at = this.length++;
    this.lastOf[site] = at;
    if (at === this.time.length) {
      for (const key of /** @type {const} */ (["time", "bytes", "count"])) {
        const larger = new Float64Array(2 * at);
        larger.set(this[key]);
        this[key] = larger;
      }
      const larger = new Uint32Array(2 * at);
      larger.set(this.site);
      this.site = larger;
    }
    this.time[at] = time;
    this.site[at] = site;
    this.bytes[at] = bytes;
    this.count[at] = count;
  }

  /** @returns {Changes} */
  take() {
    const end = this.length;
    return {
      time: this.time.slice(0, end), site: this.site.slice(0, end), bytes: this.bytes.slice(0, end), count: this.count.slice(0, end),
    };
  }
}

export class Ledger {
  /** @param {PageData} page */
  constructor(page) {
    this.page = page;
    const { allocations, sites, segments, counters } = page;
    this.count = allocations.bytes.length;
    this.begin = fromDeltas(allocations.begin);
    this.end = Float64Array.from(allocations.duration, (duration, i) => (duration < 0 ? Infinity : this.begin[i] + duration));
    /** The device of each account; -1: not shown. */
    this.deviceOf = page.accounts.device;
    this.siteBytes = new Float64Array(sites.account.length);
    this.siteCount = new Float64Array(sites.account.length);
    this.held = new Float64Array(segments.free_site.length);
    this.used = new Float64Array(segments.free_site.length);
    this.children = new Float64Array(segments.free_site.length);
    /** The last free site and free bytes of each segment. */
    this.freeSite = new Uint32Array(segments.free_site.length);
    this.freeBytes = new Float64Array(segments.free_site.length);
    this.counted = new Float64Array(counters.site.length);
    this.shown = new Float64Array(counters.site.length);
    /** The number of active checkpoints of each account. */
    this.away = new Uint8Array(page.accounts.device.length);
    /** @type {Map<number, {held: number, used: number, children: number}>[]} What each account has of each segment. */
    this.shares = page.checkpointed.account.length > 0 ? Array.from(this.held, () => new Map()) : [];
    this.growing = page.devices.map(() => new Growing(sites.account.length));
    this.growingAsleep = page.devices.map(() => new Growing(sites.account.length));
    this.now = 0;
    /** Allocations ordered by end; those that are never freed come last. */
    this.ends = new Uint32Array(0);
    this.replay();
    /** @type {Changes[]} By device. */
    this.changes = this.growing.map((list) => list.take());
    /** @type {Changes[]} By device: of what is live for its allocator and has no device memory below it. */
    this.asleep = this.growingAsleep.map((list) => list.take());
  }

  /** Processes all events in order. */
  replay() {
    const { page, begin, end } = this;
    const { steps, checkpointed, left_out: leftOut } = page;
    const instants = fromDeltas(leftOut.instants);
    /** @type {Stream[]} By what happens. */
    const streams = [
      inOrder(end), inOrder(fromDeltas(steps.t)), inOrder(begin), inOrder(Float64Array.from(leftOut.at, (at) => instants[at])),
      inOrder(Float64Array.from(checkpointed.begin)), inOrder(Float64Array.from(checkpointed.end, (at) => (at < 0 ? Infinity : at))),
    ];
    this.ends = streams[ENDS].index;
    const next = streams.map(() => 0);
    for (;;) {
      let first = -1;
      let time = Infinity;
      for (let kind = 0; kind < streams.length; ++kind) {
        const { times } = streams[kind];
        if (next[kind] < times.length && times[next[kind]] < time) {
          first = kind;
          time = times[next[kind]];
        }
      }
      if (first < 0) return;
      this.now = time;
      this.happen(first, streams[first].index[next[first]++]);
    }
  }

  /**
   * @param {number} kind
   * @param {number} i
   */
  happen(kind, i) {
    const { page } = this;
    if (kind === ENDS || kind === BEGINS) {
      this.allocate(i, kind === BEGINS ? 1 : -1);
    } else if (kind === STEP) {
      this.step(page.steps.counter[i], page.steps.bytes[i]);
    } else if (kind === LEFT_OUT) {
      const { site, segment, bytes, counts } = page.left_out;
      this.put(site[i], bytes[i], counts[i]);
      if (page.sites.unbacked[site[i]] === 0) this.share(segment[i], page.sites.account[site[i]], 0, bytes[i], counts[i]);
    } else {
      this.checkpoint(page.checkpointed.account[i], kind === AWAY ? 1 : -1);
    }
  }

  /**
   * @param {number} i Index into `allocations`.
   * @param {number} sign -1: freed.
   */
  allocate(i, sign) {
    const { allocations: { site, rounding_site: roundingSite, segment, bytes, rounding }, sites } = this.page;
    const [own, slack] = [sign * (bytes[i] - rounding[i]), sign * rounding[i]];
    if (slack !== 0) this.put(roundingSite[i], slack, 0);
    const account = sites.account[site[i]];
    if (sites.backing[site[i]] === 1) {
      this.share(segment[i], account, own, 0, 0);
      return;
    }
    this.put(site[i], own, sign);
    if (sites.unbacked[site[i]] === 0) this.share(segment[i], account, 0, own + slack, sign);
  }

  /**
   * @param {number} counter
   * @param {number} bytes
   */
  step(counter, bytes) {
    const { counters, sites, accounts, categories } = this.page;
    const site = counters.site[counter];
    const account = sites.account[site];
    if (counters.segment[counter] !== 0) {
      this.share(counters.segment[counter], account, bytes, 0, 0);
      return;
    }
    const before = this.shown[counter];
    this.counted[counter] += bytes;
    const after = this.shown[counter] = Math.max(0, this.counted[counter]);
    const slack = SLACK.includes(categories[sites.category[site]]);
    const counts = accounts.process[account] !== 0 && !slack;
    this.put(site, after - before, counts ? Number(after > 0) - Number(before > 0) : 0);
  }

  /**
   * Changes the share of an account in a segment.
   * @param {number} segment
   * @param {number} account
   * @param {number} held
   * @param {number} used
   * @param {number} children
   */
  share(segment, account, held, used, children) {
    if (segment === 0) return;
    if (this.shares.length > 0) {
      const share = this.shares[segment].get(account) ?? { held: 0, used: 0, children: 0 };
      this.shares[segment].set(account, { held: share.held + held, used: share.used + used, children: share.children + children });
    }
    if (this.away[account] > 0) return;
    this.held[segment] += held;
    this.used[segment] += used;
    this.children[segment] += children;
    this.tellFree(segment);
  }

  /** @param {number} segment */
  tellFree(segment) {
    const { free_site: idle, free_site_in_use: inUse } = this.page.segments;
    const site = this.children[segment] > 0 ? inUse[segment] : idle[segment];
    const bytes = Math.max(0, this.held[segment] - this.used[segment]);
    const [oldSite, oldBytes] = [this.freeSite[segment], this.freeBytes[segment]];
    if (site === oldSite) {
      this.tell(site, bytes - oldBytes, 0);
    } else {
      this.tell(oldSite, -oldBytes, 0);
      this.tell(site, bytes, 0);
    }
    this.freeSite[segment] = site;
    this.freeBytes[segment] = bytes;
  }

  /**
   * Changes the bytes of a site. The change is invisible while the account is checkpointed.
   * @param {number} site
   * @param {number} bytes
   * @param {number} count
   */
  put(site, bytes, count) {
    this.siteBytes[site] += bytes;
    this.siteCount[site] += count;
    if (this.away[this.page.sites.account[site]] === 0) this.tell(site, bytes, count);
  }

  /**
   * @param {number} site
   * @param {number} bytes
   * @param {number} count
   */
  tell(site, bytes, count) {
    if (bytes === 0 && count === 0) return;
    const { sites } = this.page;
    const device = this.deviceOf[sites.account[site]];
    if (device >= 0) (sites.unbacked[site] === 1 ? this.growingAsleep : this.growing)[device].push(this.now, site, bytes, count);
  }

  /**
   * @param {number} account
   * @param {number} sign 1: the memory leaves the device.
   */
  checkpoint(account, sign) {
    const before = this.away[account];
    this.away[account] += sign;
    if (before > 0 && this.away[account] > 0) return;
    const { sites } = this.page;
    for (let site = 1; site < sites.account.length; ++site) {
      if (sites.account[site] === account) this.tell(site, -sign * this.siteBytes[site], -sign * this.siteCount[site]);
    }
    this.shares.forEach((of, segment) => {
      const share = of.get(account);
      if (!share) return;
      this.held[segment] -= sign * share.held;
      this.used[segment] -= sign * share.used;
      this.children[segment] -= sign * share.children;
      this.tellFree(segment);
    });
  }
}

/** @typedef {{at: number, version: number, used: number, ledger: number, transit: number}} Sample */

/**
 * The NVML sample that matches an instant, with the bytes of driver calls in progress. Prefers the nearest sample without
 * a change in between, and among these one without such calls. Otherwise the nearest sample with the same total of the
 * ledger (query::DeviceSamples::At()).
 */
export class Samples {
  /**
   * @param {PageData} page
   * @param {number} device
   */
  constructor(page, device) {
    const { samples, changes } = page;
    const [sampleTime, changeTime] = [fromDeltas(samples.t), fromDeltas(changes.t)];
    this.changes = changeTime.filter((_, i) => changes.device[i] === device);
    /** @type {Map<number, Sample[]>} */
    this.byVersion = new Map();
    /** @type {Map<number, Sample[]>} */
    this.byLedger = new Map();
    for (let i = 0; i < sampleTime.length; ++i) {
      if (samples.device[i] !== device) continue;
      const transit = inTransit(samples.used[i] - samples.ledger[i], samples.low[i], samples.high[i]);
      // Bytes that the ledger counts early would be a negative row, so they are not shown.
      if (transit < 0) continue;
      const sample = {
        at: sampleTime[i] + samples.lasted[i], version: this.versionAt(sampleTime[i]), used: samples.used[i],
        ledger: samples.ledger[i], transit,
      };
      append(this.byVersion, sample.version, sample);
      append(this.byLedger, sample.ledger, sample);
    }
  }

  /**
   * The number of driver changes up to an instant.
   * @param {number} at
   */
  versionAt(at) {
    let [low, high] = [0, this.changes.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.changes[middle] <= at) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /**
   * @param {number} at
   * @param {number} total Bytes of the ledger.
   */
  find(at, total) {
    return nearest(this.byVersion.get(this.versionAt(at)) ?? [], at) ?? nearest(this.byLedger.get(total) ?? [], at);
  }
}

/**
 * @template Key, Value
 * @param {Map<Key, Value[]>} lists
 * @param {Key} key
 * @param {Value} value
 */
function append(lists, key, value) {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

/**
 * The nearest sample, preferring one without calls in progress. Ties keep the first.
 * @param {Sample[]} samples
 * @param {number} at
 */
function nearest(samples, at) {
  /** @type {Sample|null} */
  let best = null;
  for (const sample of samples) {
    const better = best === null || (sample.transit === 0 && best.transit !== 0) ||
      ((sample.transit === 0) === (best.transit === 0) && Math.abs(sample.at - at) < Math.abs(best.at - at));
    if (better) best = sample;
  }
  return best;
}

/**
 * @param {number} difference NVML minus ledger.
 * @param {number} low
 * @param {number} high
 */
function inTransit(difference, low, high) {
  return Math.min(high, Math.max(-low, difference));
}
