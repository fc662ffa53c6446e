// SPDX-License-Identifier: Apache-2.0
// What bytes stand under: the page's sites as columns. A recording has few of them, so that filters,
// trees and tables go through kinds, and only sums go through allocations.

/** @typedef {import("./types.js").PageData} PageData */

export class Kinds {
  /** @param {PageData} page */
  constructor(page) {
    const { sites, accounts, allocations, names } = page;
    this.count = sites.account.length;
    this.process = Uint16Array.from(sites.account, (account) => accounts.process[account]);
    this.path = Uint32Array.from(sites.path);
    this.stack = Uint32Array.from(sites.stack);
    /** The stacks that people name them by. */
    this.placeStack = Uint32Array.from(sites.place, (place, site) => place || sites.stack[site]);
    this.module = Uint32Array.from(sites.module);
    this.name = Uint32Array.from(sites.name);
    const none = names.indexOf("(no stack)");
    /** The line that has them, of `names`; 0: none. */
    this.line = Uint32Array.from(sites.line, (line) => (line === none ? 0 : line));
    /** Categories by the model's numbers, once it has chosen them. */
    this.category = new Uint8Array(this.count);
    /** Whether allocations that are no segments stand under it. */
    this.isAllocated = new Uint8Array(this.count);
    for (const site of allocations.site) this.isAllocated[site] = sites.backing[site] === 1 ? 0 : 1;
  }
}
