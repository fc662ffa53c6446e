// SPDX-License-Identifier: Apache-2.0
// The segments of allocators at an instant: size, blocks and free bytes of each.
import { fromDeltas } from "./ledger.js";

/** @typedef {import("./model.js").Model} Model */

/**
 * @typedef {object} Segment
 * @property {number} id Of `segments`.
 * @property {number} held
 * @property {number} used Blocks, with their rounding.
 * @property {number} unlisted Of it, in blocks that the page does not list.
 * @property {number} free
 * @property {number} freeSite What the free bytes stand under.
 * @property {number[]} blocks Allocations, in order of their addresses.
 * @property {[number, number][]} extents Address and bytes of its memory; empty: unknown.
 */

/** Addresses fit into a double exactly: they are below 2^53. */
const addressOf = (/** @type {string} */ text) => parseInt(text, 16);

export class Segments {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    const { allocations, steps, left_out: leftOut } = model.page;
    /** @type {Float64Array} */
    this.address = Float64Array.from(allocations.address, addressOf);
    this.stepTime = fromDeltas(steps.t);
    this.instants = fromDeltas(leftOut.instants);
  }

  /**
   * The segments of a device with memory, most free bytes first.
   * @param {number} device
   * @param {number} at
   * @returns {Segment[]}
   */
  at(device, at) {
    const { page } = this.model;
    const { sites, segments, accounts, allocations, counters, steps, left_out: leftOut } = page;
    /** @type {Map<number, Segment>} */
    const found = new Map();
    const of = (/** @type {number} */ id) => {
      let segment = found.get(id);
      if (!segment) {
        found.set(id, segment = { id, held: 0, used: 0, unlisted: 0, free: 0, freeSite: 0, blocks: [], extents: [] });
      }
      return segment;
    };
    const isHere = (/** @type {number} */ site) => accounts.device[sites.account[site]] === device;
    for (let i = 0; i < allocations.site.length && this.model.begin[i] <= at; ++i) {
      const site = allocations.site[i];
      if (allocations.segment[i] === 0 || sites.unbacked[site] === 1 || this.model.end[i] <= at || !isHere(site)) continue;
      const segment = of(allocations.segment[i]);
      if (sites.backing[site] === 1) {
        segment.held += allocations.bytes[i] - allocations.rounding[i];
        segment.extents.push([this.address[i], allocations.bytes[i]]);
      } else {
        segment.used += allocations.bytes[i];
        segment.blocks.push(i);
      }
    }
    for (let i = 0; i < steps.counter.length && this.stepTime[i] <= at; ++i) {
      const counter = steps.counter[i];
      if (counters.segment[counter] !== 0 && isHere(counters.site[counter])) of(counters.segment[counter]).held += steps.bytes[i];
    }
    for (let i = 0; i < leftOut.site.length; ++i) {
      if (leftOut.segment[i] === 0 || sites.unbacked[leftOut.site[i]] === 1 || this.instants[leftOut.at[i]] > at ||
        !isHere(leftOut.site[i])) continue;
      of(leftOut.segment[i]).used += leftOut.bytes[i];
      of(leftOut.segment[i]).unlisted += leftOut.bytes[i];
    }
    for (const segment of found.values()) {
      segment.free = Math.max(0, segment.held - segment.used);
      segment.freeSite = (segment.used > 0 ? segments.free_site_in_use : segments.free_site)[segment.id];
      segment.extents.sort((a, b) => a[0] - b[0]);
      segment.blocks.sort((a, b) => this.address[a] - this.address[b]);
    }
    return [...found.values()].filter(({ held }) => held > 0).sort((a, b) => b.free - a.free || b.held - a.held || a.id - b.id);
  }
}

/**
 * The blocks that keep segments from being returned, by line.
 * @typedef {object} Pin
 * @property {string} name
 * @property {number} blocks
 * @property {number} bytes
 * @property {number} segments In which it has blocks.
 * @property {number} alone Free bytes of segments in which nobody else has any.
 * @property {number} pinned Free bytes of all of them.
 * @property {Map<Segment, Set<string>>} in Those segments, and who has blocks in each.
 */

/**
 * @param {Model} model
 * @param {Segment[]} segments
 * @param {(kind: number) => string} nameOf
 * @returns {Pin[]}
 */
export function pinsOf(model, segments, nameOf) {
  /** @type {Map<string, Pin>} */
  const pins = new Map();
  for (const segment of segments) {
    if (segment.free === 0 || segment.used === 0) continue;
    /** @type {Map<string, number[]>} */
    const holders = new Map();
    for (const i of segment.blocks) {
      const name = nameOf(model.page.allocations.site[i]);
      holders.set(name, [...(holders.get(name) ?? []), i]);
    }
    const names = new Set(holders.keys());
    for (const [name, blocks] of holders) {
      let pin = pins.get(name);
      if (!pin) pins.set(name, pin = { name, blocks: 0, bytes: 0, segments: 0, alone: 0, pinned: 0, in: new Map() });
      pin.in.set(segment, names);
      pin.blocks += blocks.length;
      pin.bytes += blocks.reduce((sum, i) => sum + model.page.allocations.bytes[i], 0);
      pin.segments += 1;
      pin.pinned += segment.free;
      if (holders.size === 1 && segment.unlisted === 0) pin.alone += segment.free;
    }
  }
  return [...pins.values()];
}

/**
 * The sum of several. Shared segments count once.
 * @param {string} name
 * @param {Pin[]} pins
 * @returns {Pin}
 */
export function joinPins(name, pins) {
  const ours = new Set(pins.map((pin) => pin.name));
  const all = new Map(pins.flatMap((pin) => [...pin.in]));
  const joined = { name, blocks: 0, bytes: 0, segments: all.size, alone: 0, pinned: 0, in: all };
  for (const { blocks, bytes } of pins) {
    joined.blocks += blocks;
    joined.bytes += bytes;
  }
  for (const [segment, holders] of all) {
    joined.pinned += segment.free;
    if (segment.unlisted === 0 && [...holders].every((holder) => ours.has(holder))) joined.alone += segment.free;
  }
  return joined;
}
