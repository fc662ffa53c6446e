// SPDX-License-Identifier: Apache-2.0
// The page's sites (allocation attributes) as columns. A recording has few of them, so filters, trees and tables loop over
// kinds, and only sums loop over allocations.

/** @typedef {import("./types.js").PageData} PageData */

export class Kinds {
  /** @param {PageData} page */
  constructor(page) {
    const { sites, accounts, allocations, names } = page;
    this.count = sites.account.length;
    this.process = Uint16Array.from(sites.account, (account) => accounts.process[account]);
    this.path = Uint32Array.from(sites.path);
    this.stack = Uint32Array.from(sites.stack);
    /** The stacks that name them. */
    this.placeStack = Uint32Array.from(sites.place, (place, site) => place || sites.stack[site]);
    this.module = Uint32Array.from(sites.module);
    this.name = Uint32Array.from(sites.name);
    const none = names.indexOf("(no stack)");
    /** Their line, an index into `names`; 0: none. */
    this.line = Uint32Array.from(sites.line, (line) => (line === none ? 0 : line));
    /** Their categories as indices of the model, set by the model. */
    this.category = new Uint8Array(this.count);
    /** Whether it has allocations other than segments. */
    this.isAllocated = new Uint8Array(this.count);
    for (const site of allocations.site) this.isAllocated[site] = sites.backing[site] === 1 ? 0 : 1;
  }
}
