// SPDX-License-Identifier: Apache-2.0
// One device's bytes by category over time, at two levels of detail: the timeline's buckets, exact
// for the whole recording, and the page's lives, exact between any two instants.
import { categoryOfGroup } from "./category.js";
import { Events, lastNotAbove } from "./events.js";
import { NOT_LISTED } from "./palette.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./types.js").TimelineData} TimelineData */
/** @typedef {import("./filter.js").Filter} Filter */

/**
 * Columns of a picture: for each, the bytes of every category at the column's highest instant.
 * @typedef {object} Columns
 * @property {number} count
 * @property {Float64Array} bytes [column * categories + category]
 * @property {Float64Array} total
 * @property {Float64Array} at The instant shown.
 * @property {boolean} detailed Drawn from lives, not from buckets.
 */

export class History {
  /**
   * @param {Model} model
   * @param {Uint32Array} lives Of this device.
   * @param {TimelineData|undefined} timeline
   */
  constructor(model, lives, timeline) {
    this.model = model;
    this.lives = lives;
    this.categories = model.categories.length;
    this.cached = model.categoryIndex.get("cached") ?? -1;
    this.fragmentation = model.categoryIndex.get("fragmentation") ?? -1;
    this.unknown = model.categoryIndex.get("unknown") ?? -1;
    // A device whose every sample is 0 has an NVML that does not count.
    const nvml = timeline?.nvml.some((sample) => sample[1] > 0) ? timeline.nvml : [];
    this.nvmlTime = Float64Array.from(nvml, (sample) => sample[0]);
    this.nvmlBytes = Float64Array.from(nvml, (sample) => sample[1]);
    this.bucketTime = Float64Array.from(timeline ? timeline.t : []);
    this.buckets = this.bucketTime.length;
    this.bucketBytes = new Float64Array(this.buckets * this.categories);
    if (timeline) this.fillBuckets(timeline);
    this.events = Events.of(model, lives);
    /**
     * The events that passed the last filter.
     * @type {{filter: Filter, events: Events}|null}
     */
    this.filtered = null;
    /** @type {Float64Array|null} */
    this.notListed = null;
    /** Categories with bytes that no life explains: slack, drawn from the buckets. */
    this.slack = this.findSlack();
    /** Categories that ever have bytes here. */
    this.present = this.slack.slice();
    for (const life of lives) this.present[model.lifeCategory[life]] = 1;
    if (model.page.left_out.count > 0) this.fillNotListed();
  }

  /** @param {TimelineData} timeline */
  fillBuckets(timeline) {
    timeline.groups.forEach((name, group) => {
      const category = this.model.categoryIndex.get(categoryOfGroup(name)) ?? 0;
      const peak = timeline.peak[group] ?? [];
      for (let bucket = 0; bucket < this.buckets; ++bucket) {
        this.bucketBytes[bucket * this.categories + category] += peak[bucket] ?? 0;
      }
    });
  }

  findSlack() {
    const slack = new Uint8Array(this.categories);
    for (let i = 0; i < this.bucketBytes.length; ++i) {
      if (this.bucketBytes[i] > 0) slack[i % this.categories] = 1;
    }
    for (const life of this.lives) slack[this.model.kindBand[this.model.kinds.ofLife[life]]] = 0;
    return slack;
  }

  /** What the buckets have and the lives do not, because the page lists only the largest lives. */
  fillNotListed() {
    const listed = this.model.categoryIndex.get(NOT_LISTED);
    if (listed === undefined) return;
    this.notListed = new Float64Array(this.buckets);
    for (let bucket = 0; bucket < this.buckets; ++bucket) {
      const end = bucket + 1 < this.buckets ? this.bucketTime[bucket + 1] : this.model.duration;
      const lives = this.events.sweep(this.bucketTime[bucket], end, 1).total[0];
      let sum = 0;
      for (let c = 0; c < this.categories; ++c) {
        if (this.slack[c] === 0) sum += this.bucketBytes[bucket * this.categories + c];
      }
      this.notListed[bucket] = Math.max(0, sum - lives);
    }
  }

  /**
   * Adds to the bytes of lives at an instant what no life explains. The bucket tells it for its
   * highest instant; at others, what a caching allocator keeps is what the lives leave of the same
   * total, since a freed block stays with the allocator.
   * @param {number} at
   * @param {Float64Array} bytes
   * @param {number} offset
   * @returns {number} The bytes added.
   */
  addSlack(at, bytes, offset) {
    const bucket = lastNotAbove(this.bucketTime, at);
    if (bucket < 0) return 0;
    const { cached, fragmentation, categories } = this;
    let [lives, total, added] = [0, 0, 0];
    for (let c = 0; c < categories; ++c) {
      const value = this.bucketBytes[bucket * categories + c];
      total += value;
      if (this.slack[c] === 0) lives += bytes[offset + c];
      else if (c !== cached && c !== fragmentation) {
        bytes[offset + c] += value;
        added += value;
      }
    }
    const listed = this.model.categoryIndex.get(NOT_LISTED);
    if (this.notListed && listed !== undefined) {
      bytes[offset + listed] += this.notListed[bucket];
      added += this.notListed[bucket];
    }
    const kept = Math.max(0, total - lives - added);
    if (kept === 0) return added;
    const bytesOf = (/** @type {number} */ c) => (this.bucketBytes[bucket * categories + c] ?? 0);
    const isSlack = (/** @type {number} */ c) => c >= 0 && this.slack[c] === 1;
    const [free, split] = [cached, fragmentation].map((c) => (isSlack(c) ? bytesOf(c) : 0));
    // Where nothing is free, memory without a name is what nothing was cut out of yet.
    const uncut = free + split > 0 || this.unknown < 0 || isSlack(this.unknown) ? 0 : Math.min(kept, bytesOf(this.unknown));
    if (uncut > 0) bytes[offset + this.unknown] += uncut;
    const rest = kept - uncut;
    if (rest === 0 || !(isSlack(cached) || isSlack(fragmentation))) return added + uncut;
    const inUse = !isSlack(cached) ? rest : free + split > 0 ? Math.round((rest * split) / (free + split)) : 0;
    if (inUse > 0) bytes[offset + fragmentation] += inUse;
    if (rest > inUse) bytes[offset + cached] += rest - inUse;
    return added + kept;
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
          at[column] = Math.max(from, this.bucketTime[bucket]);
        }
        if (bucket + 1 >= this.buckets || this.bucketTime[bucket + 1] >= end) break;
        ++bucket;
      }
    }
    return { count, bytes, total, at, detailed: false };
  }

  /**
   * The picture of a window, at the level of detail that it deserves.
   * @param {number} from
   * @param {number} to
   * @param {number} count
   * @param {Filter} filter
   * @returns {Columns}
   */
  columns(from, to, count, filter) {
    if (!filter.on) return this.allColumns(from, to, count);
    if (!this.hasRest(filter)) return this.eventsOf(filter).sweep(from, to, count);
    const columns = this.allColumns(from, to, count);
    for (let column = 0; column < count; ++column) {
      columns.total[column] = 0;
      for (let c = 0; c < this.categories; ++c) {
        const at = column * this.categories + c;
        if (filter.category[c] === 0) columns.bytes[at] = 0;
        columns.total[column] += columns.bytes[at];
      }
    }
    return columns;
  }

  /**
   * Whether a filter lets bytes pass that no life explains.
   * @param {Filter} filter
   */
  hasRest(filter) {
    if (filter.narrows) return false;
    return this.model.page.left_out.count > 0 || this.slack.some((slack, c) => slack === 1 && filter.category[c] === 1);
  }

  /** @param {Filter} filter */
  eventsOf(filter) {
    if (!filter.on) return this.events;
    if (this.filtered?.filter !== filter) this.filtered = { filter, events: this.events.that(filter) };
    return this.filtered.events;
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {number} count
   * @returns {Columns}
   */
  allColumns(from, to, count) {
    const first = lastNotAbove(this.bucketTime, from);
    const inside = lastNotAbove(this.bucketTime, to) - first;
    // Buckets know categories, not places.
    if (this.lives.length === 0 || (this.buckets > 0 && inside * 3 > count && !this.model.byPlace)) {
      return this.buckets > 0 ? this.sweepBuckets(from, to, count) : this.events.sweep(from, to, count);
    }
    const columns = this.events.sweep(from, to, count);
    for (let column = 0; column < count; ++column) {
      const middle = from + ((to - from) * (column + 0.5)) / count;
      columns.total[column] += this.addSlack(middle, columns.bytes, column * this.categories);
    }
    return columns;
  }

  /**
   * Bytes by category at an instant: lives, and slack from the bucket around it.
   * @param {number} at
   */
  bytesAt(at) {
    const sums = this.events.sumsAt(at);
    this.addSlack(at, sums, 0);
    return sums;
  }

  /** Highest total of the recording, NVML's samples included. */
  highest() {
    let top = 0;
    for (let bucket = 0; bucket < this.buckets; ++bucket) {
      let sum = 0;
      for (let c = 0; c < this.categories; ++c) sum += this.bucketBytes[bucket * this.categories + c];
      top = Math.max(top, sum);
    }
    for (const used of this.nvmlBytes) top = Math.max(top, used);
    if (this.buckets === 0) top = Math.max(top, this.events.sweep(0, this.model.duration, 1).total[0]);
    return top;
  }

  /**
   * NVML's last sample at or before an instant.
   * @param {number} at
   */
  nvmlAt(at) {
    const sample = lastNotAbove(this.nvmlTime, at);
    return sample < 0 ? null : this.nvmlBytes[sample];
  }
}
