// SPDX-License-Identifier: Apache-2.0
// Lives that differ in nothing but bytes and time are of one kind. A recording has few kinds, so
// that filters, trees and tables go through kinds, and only sums go through lives.

/** @typedef {import("./types.js").PageData} PageData */

// Processes and categories that fit into a key; lives beyond them share the last one.
const PROCESSES = 4096;
const CATEGORIES = 256;

export class Kinds {
  /**
   * @param {PageData} page
   * @param {(life: number) => number} categoryOf The category of a life, by the model's numbers.
   */
  constructor(page, categoryOf) {
    const { lives } = page;
    const all = lives.bytes.length;
    /** The kind of each life. */
    this.ofLife = new Uint32Array(all);
    /** @type {number[]} A life of each kind. */
    const first = [];
    /** @type {Map<number, number>} Stacks with another one beside them. */
    const forwards = new Map();
    /** @type {Map<number, number>} */
    const places = new Map();
    /** @type {Map<number, number>} */
    const known = new Map();
    const paths = page.paths.length + 1;
    const names = page.names.length + 1;
    const category = new Uint8Array(all);
    for (let life = 0; life < all; ++life) {
      category[life] = categoryOf(life);
      let stack = lives.stack[life];
      if (lives.place[life] !== 0) {
        const pair = stack * page.stacks.length + lives.place[life];
        stack = forwards.get(pair) ?? page.stacks.length + forwards.size;
        forwards.set(pair, stack);
      }
      const process = Math.min(PROCESSES - 1, lives.process[life]);
      const place = ((stack * paths + lives.path[life]) * PROCESSES + process) * CATEGORIES +
        category[life];
      let key = places.get(place);
      if (key === undefined) places.set(place, key = places.size);
      key = (key * names + lives.module[life]) * names + lives.name[life];
      let kind = known.get(key);
      if (kind === undefined) {
        known.set(key, kind = first.length);
        first.push(life);
      }
      this.ofLife[life] = kind;
    }
    this.count = first.length;
    this.process = Uint16Array.from(first, (life) => lives.process[life]);
    this.path = Uint32Array.from(first, (life) => lives.path[life]);
    this.stack = Uint32Array.from(first, (life) => lives.stack[life]);
    /** The stacks that people name them by. */
    this.placeStack = Uint32Array.from(first, (life) => lives.place[life] || lives.stack[life]);
    this.category = Uint8Array.from(first, (life) => category[life]);
    this.module = Uint32Array.from(first, (life) => lives.module[life]);
    this.name = Uint32Array.from(first, (life) => lives.name[life]);
  }
}
