// SPDX-License-Identifier: Apache-2.0
// One device's bytes by category over time, from two sources: events, which are exact if the page lists all allocations,
// and the buckets of the timeline, which are always exact.
import { categoryOfGroup } from "./category.js";
import { Events, Sweep, lastNotAbove } from "./events.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./types.js").TimelineData} TimelineData */
/** @typedef {import("./filter.js").Filter} Filter */
/** @typedef {{name: string, time: Float64Array, bytes: Float64Array, pid?: number}} Line A figure over time: each value is valid until the next. */
/** @typedef {{columns: Columns, go: (most: number) => boolean}} Drawing Columns that `go` fills, by so many events a call, until it returns true. */

/**
 * The columns of a picture: the bytes of every category at the highest instant of each column.
 * @typedef {object} Columns
 * @property {number} count
 * @property {Float64Array} bytes [column * categories + category]
 * @property {Float64Array} total
 * @property {Float64Array} at The instant of each column.
 * @property {boolean} detailed Computed from events, not from buckets.
 * @property {Float64Array} [asleep] Live memory without device memory, not included in the total.
 */

/**
 * @param {string} name
 * @param {[number, number][]} samples
 * @returns {Line}
 */
function lineOf(name, samples) {
  return { name, time: Float64Array.from(samples, ([time]) => time), bytes: Float64Array.from(samples, ([, bytes]) => bytes) };
}

/**
 * The last value at or before an instant.
 * @param {Line} line
 * @param {number} at
 */
export function valueAt({ time, bytes }, at) {
  const sample = lastNotAbove(time, at);
  return sample < 0 ? null : bytes[sample];
}

export class History {
  /**
   * @param {Model} model
   * @param {number} device
   * @param {TimelineData|undefined} timeline
   */
  constructor(model, device, timeline) {
    this.model = model;
    this.device = device;
    this.categories = model.categories.length;
    // If every sample is 0, NVML does not support the device.
    const nvml = timeline?.nvml.some((sample) => sample[1] > 0) ? timeline.nvml : [];
    this.nvml = lineOf("NVML", nvml);
    /** @type {Line[]} Counters of bytes that its processes publish, then the memory of the host, without a pid. */
    this.counters = model.page.lines.filter(({ devices }) => devices.includes(device))
      .map(({ name, process, samples }) => ({ ...lineOf(name, samples), pid: model.page.processes[process]?.pid }));
    this.bucketTime = Float64Array.from(timeline ? timeline.t : []);
    this.buckets = this.bucketTime.length;
    this.bucketBytes = new Float64Array(this.buckets * this.categories);
    if (timeline) this.fillBuckets(timeline);
    this.bucketAsleep = timeline?.unbacked ?? [];
    this.events = new Events(model, model.ledger.changes[device]);
    /** Events of live memory without device memory. */
    this.asleep = new Events(model, model.ledger.asleep[device]);
    /**
     * The events of the last filter.
     * @type {{filter: Filter, events: Events, asleep: Events}|null}
     */
    this.filtered = null;
    /** Categories with bytes at any time. */
    this.present = new Uint8Array(this.categories);
    for (const category of this.events.category) this.present[category] = 1;
  }

  /** @param {TimelineData} timeline */
  fillBuckets(timeline) {
    timeline.groups.forEach((name, group) => {
      const category = this.model.categoryIndex.get(categoryOfGroup(name, this.model.page.report.sampled)) ?? 0;
      const peak = timeline.peak[group] ?? [];
      for (let bucket = 0; bucket < this.buckets; ++bucket) {
        this.bucketBytes[bucket * this.categories + category] += peak[bucket] ?? 0;
      }
    });
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {number} count
   * @returns {Columns}
   */
  sweepBuckets(from, to, count) {
    const width = this.categories;
    const bytes = new Float64Array(count * width);
    const total = new Float64Array(count);
    const at = new Float64Array(count);
    const asleep = new Float64Array(count);
    let bucket = lastNotAbove(this.bucketTime, from);
    for (let column = 0; column < count; ++column) {
      const end = from + ((to - from) * (column + 1)) / count;
      let best = -1;
      at[column] = from;
      for (;;) {
        let sum = 0;
        for (let c = 0; c < width && bucket >= 0; ++c) sum += this.bucketBytes[bucket * width + c];
        if (sum > best && bucket >= 0) {
          best = sum;
          bytes.set(this.bucketBytes.subarray(bucket * width, (bucket + 1) * width), column * width);
          total[column] = sum;
          asleep[column] = this.bucketAsleep[bucket] ?? 0;
          at[column] = Math.max(from, this.bucketTime[bucket]);
        }
        if (bucket + 1 >= this.buckets || this.bucketTime[bucket + 1] >= end) break;
        ++bucket;
      }
    }
    return { count, bytes, total, at, asleep, detailed: false };
  }

  /**
   * The picture of a window. If allocations are left out, it comes from buckets, which are exact but know only categories;
   * otherwise from events, which are exact at every instant.
   * @param {number} from
   * @param {number} to
   * @param {number} count
   * @param {Filter} filter
   * @returns {Columns}
   */
  columns(from, to, count, filter) {
    const drawing = this.drawing(from, to, count, filter);
    while (!drawing.go(Infinity));
    return drawing.columns;
  }

  /**
   * The same in parts.
   * @param {number} from
   * @param {number} to
   * @param {number} count
   * @param {Filter} filter
   * @returns {Drawing}
   */
  drawing(from, to, count, filter) {
    const inside = lastNotAbove(this.bucketTime, to) - lastNotAbove(this.bucketTime, from);
    const coarse = !filter.on && this.model.instants !== null && inside * 3 > count && !this.model.byPlace;
    if (coarse) return { columns: this.sweepBuckets(from, to, count), go: () => true };
    const { events, asleep } = this.thatPass(filter);
    const sweep = new Sweep(events, from, to, count);
    const { columns } = sweep;
    return {
      columns,
      go(most) {
        if (!sweep.go(most)) return false;
        if (asleep.time.length > 0) columns.asleep = asleep.totalsAt(columns.at);
        return true;
      },
    };
  }

  /**
   * Chooses the events that pass a filter, a step of a few milliseconds at a time.
   * @param {Filter} filter
   */
  * choose(filter) {
    if (!filter.on || this.filtered?.filter === filter) return;
    const events = filter.min > 0 ? yield* Events.ofAllocations(this.model, filter, this.device) : this.events.that(filter.mask);
    // Only listed live allocations have sizes. For sleeping memory all kinds that pass count.
    this.filtered = { filter, events, asleep: this.asleep.that(filter.mask) };
  }

  /**
   * @param {Filter} filter
   * @returns {{events: Events, asleep: Events}}
   */
  thatPass(filter) {
    for (const steps = this.choose(filter); !steps.next().done;);
    return filter.on && this.filtered ? this.filtered : this;
  }

  /** @param {Filter} filter */
  eventsOf(filter) {
    return this.thatPass(filter).events;
  }

  /** The highest total of the recording, including NVML's samples. */
  highest() {
    let top = 0;
    for (let bucket = 0; bucket < this.buckets; ++bucket) {
      let sum = 0;
      for (let c = 0; c < this.categories; ++c) sum += this.bucketBytes[bucket * this.categories + c];
      top = Math.max(top, sum);
    }
    for (const used of this.nvml.bytes) top = Math.max(top, used);
    if (this.buckets === 0) top = Math.max(top, this.events.sweep(0, this.model.duration, 1).total[0]);
    return top;
  }
}
