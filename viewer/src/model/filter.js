// SPDX-License-Identifier: Apache-2.0
// The reader's filters as masks, made once for all views.
import { isWithin } from "../base/names.js";
import { Search } from "./search.js";
import { ownerLevels } from "./tree_paths.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").State} State */

/**
 * @param {string[]} path
 * @param {string[]} prefix
 */
export function startsWith(path, prefix) {
  return prefix.length <= path.length && prefix.every((level, i) => level === path[i]);
}

export class Filter {
  /**
   * @param {Model} model
   * @param {State} state
   */
  constructor(model, state) {
    const { kinds } = model;
    this.search = new Search(model, state.search);
    this.min = state.min;
    const chosen = new Set(state.categories.map((name) => model.categoryIndex.get(name)));
    this.byCategory = chosen.size > 0;
    /** Indexed by category: whether it is shown. */
    this.category = Uint8Array.from(model.categories, (_, index) => (!this.byCategory || chosen.has(index) ? 1 : 0));
    /** Whether there are filters besides categories. */
    this.narrows = this.search.on || state.module !== null || state.min > 0 || state.path !== null;
    this.on = this.byCategory || this.narrows;
    const modules = state.module === null ? null : this.modulesIn(model, state.module);
    const several = model.several[state.device];
    /** Indexed by kind: whether it passes the filters, without categories. */
    this.kind = new Uint8Array(kinds.count);
    for (let kind = 0; kind < kinds.count; ++kind) {
      const passes = (!modules || modules[kinds.module[kind]] === 1) &&
        (!this.search.on || this.search.matches(kind)) &&
        (!state.path || startsWith(ownerLevels(model, kind, several), state.path));
      this.kind[kind] = passes ? 1 : 0;
    }
    /** Indexed by kind: whether it passes all filters. */
    this.mask = this.kind.map((passes, kind) => passes & this.category[kinds.category[kind]]);
    this.bytes = model.bytes;
    this.site = model.page.allocations.site;
  }

  /**
   * @param {Model} model
   * @param {string} module "": memory without a module.
   */
  modulesIn(model, module) {
    return Uint8Array.from(model.page.names, (name, index) =>
      ((module === "" ? index === 0 : index > 0 && isWithin(name, module)) ? 1 : 0));
  }

  /** @param {number} kind */
  passesKind(kind) {
    return this.mask[kind] === 1;
  }

  /** @param {number} i Of the listed allocations. */
  passes(i) {
    return this.bytes[i] >= this.min && this.passesKind(this.site[i]);
  }
}
