// SPDX-License-Identifier: Apache-2.0
// The orders of the live set: by module, call stack, category or owner. Every byte has a path in each order, so that all
// orders have the same sum.
import { baseName } from "../base/format.js";
import { NO_MODULE, prefixes, within } from "../base/names.js";
import { Trie, fold } from "../base/trie.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./view.js").View} View */

/** @typedef {"module"|"stack"|"category"|"owner"} Order */

/** @type {{order: Order, name: string}[]} */
export const ORDERS = [
  { order: "module", name: "Module" }, { order: "stack", name: "Call stack" },
  { order: "category", name: "Category" }, { order: "owner", name: "Owner" },
];
const NO_STACK = "(no stack)";
const NOT_YET = 0xffffffff;

/**
 * "python train.py (pid 4711, rank 0)", like ProcessLabel() of src/output/names.cc.
 * @param {{pid: number, rank: number|null, command: string}} process
 */
function processName({ pid, rank, command }) {
  const words = command.split(" ").slice(0, 2).map(baseName).join(" ").trim();
  return `${words}${words ? " " : ""}(pid ${pid}${rank !== null ? `, rank ${rank}` : ""})`;
}

/**
 * Names of the ledger's levels. The process comes first if several share the device; the line comes last.
 * @param {Model} model
 * @param {number} kind
 * @param {boolean} several
 */
export function ownerLevels(model, kind, several) {
  const { kinds, page } = model;
  const names = several ? [processOf(model, kinds.process[kind])] : [];
  names.push(...(page.paths[kinds.path[kind]] ?? []));
  if (kinds.line[kind] !== 0) names.push(page.names[kinds.line[kind]]);
  return names;
}

/**
 * @param {Model} model
 * @param {number} process
 */
export function processOf(model, process) {
  const found = model.page.processes[process];
  return found && process !== 0 ? processName(found) : "no recorded process";
}

/** The tree paths of one order on one device. */
export class TreePaths {
  /**
   * @param {Model} model
   * @param {Order|"layer"} order "layer": modules alone, without what they hold.
   * @param {{mine: boolean, several: boolean}} how `mine`: without frames of libraries.
   */
  constructor(model, order, { mine, several }) {
    this.model = model;
    this.order = order;
    this.several = several;
    this.mine = mine;
    this.trie = new Trie();
    this.deepest = -1;
    this.ofKindKnown = new Uint32Array(model.kinds.count).fill(NOT_YET);
    this.ofStack = new Uint32Array(order === "stack" ? model.stackParent.length : 0);
    if (order === "stack") this.addStacks();
  }

  addStacks() {
    const { model } = this;
    for (const id of model.stackOrder) {
      const frame = model.stackFrame[id];
      const { name, file, line, library } = model.frames[frame];
      const parent = this.ofStack[model.stackParent[id]];
      const place = file ? `${baseName(file)}${line > 0 ? `:${line}` : ""}` : "";
      this.ofStack[id] = library && this.mine ? parent : this.trie.step(parent, name, { place, frame });
    }
  }

  /** @param {number} kind */
  ofKind(kind) {
    let treePath = this.ofKindKnown[kind];
    if (treePath === NOT_YET) treePath = this.ofKindKnown[kind] = this.findTreePath(kind);
    return treePath;
  }

  /** @param {number} kind */
  findTreePath(kind) {
    const { model, trie } = this;
    const { kinds } = model;
    if (this.order === "stack") {
      const treePath = this.ofStack[kinds.stack[kind]];
      return treePath !== 0 ? treePath : trie.step(0, NO_STACK);
    }
    if (this.order === "owner") {
      return ownerLevels(model, kind, this.several).reduce((treePath, name) => trie.step(treePath, name), 0);
    }
    const outer = this.order === "category" ? trie.step(0, model.categories[kinds.category[kind]]) : 0;
    const module = model.page.names[kinds.module[kind]] ?? "";
    let treePath = outer;
    let last = "";
    for (const prefix of prefixes(module)) {
      treePath = trie.step(treePath, within(prefix, last), { module: prefix, place: model.page.module_types[prefix] ?? "" });
      last = prefix;
    }
    if (module === "" && this.order !== "category") treePath = trie.step(treePath, NO_MODULE);
    if (this.order === "layer") return treePath;
    const name = model.page.names[kinds.name[kind]] ?? "";
    if (name !== "" && name !== module) return trie.step(treePath, within(name, module));
    if (kinds.line[kind] !== 0) return trie.step(treePath, model.page.names[kinds.line[kind]]);
    // Without a line, the name of the ledger level describes it.
    const path = model.page.paths[kinds.path[kind]] ?? [];
    return path.length > 0 ? trie.step(treePath, path.join(" › ")) : treePath;
  }

  /** The number of levels of the longest path, so that the height is the same at every instant. */
  depth() {
    const { parent } = this.trie;
    if (this.deepest < 0) {
      for (let kind = 0; kind < this.model.kinds.count; ++kind) this.ofKind(kind);
      const depths = new Uint16Array(parent.length);
      for (let treePath = 1; treePath < parent.length; ++treePath) depths[treePath] = depths[parent[treePath]] + 1;
      this.deepest = depths.reduce((a, b) => Math.max(a, b), 1);
    }
    return this.deepest;
  }

  /**
   * The bytes of the view in this order.
   * @param {View} view
   */
  fold(view) {
    const { kinds, categories } = this.model;
    const shares = view.shown.map((kind) => ({
      path: this.ofKind(kind), bytes: view.kindBytes[kind], count: view.kindCount[kind], category: kinds.category[kind],
    }));
    return fold(this.trie, shares, categories.length);
  }
}

/** Caches the paths, which are the same at every instant. */
export class PathBook {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    /** @type {Map<string, TreePaths>} */
    this.known = new Map();
  }

  /**
   * @param {Order|"layer"} order
   * @param {number} device
   * @param {boolean} mine
   */
  of(order, device, mine) {
    const several = this.model.several[device];
    const how = { several: order === "owner" && several, mine: order === "stack" && mine };
    const key = `${order},${how.several},${how.mine}`;
    let treePaths = this.known.get(key);
    if (!treePaths) this.known.set(key, treePaths = new TreePaths(this.model, order, how));
    return treePaths;
  }
}
