// SPDX-License-Identifier: Apache-2.0
// The orders in which the live set can be folded: by module, by call stack, by category, by owner.
// Every byte has a way in each of them, so that all of them have one sum.
import { baseName } from "./format.js";
import { NO_MODULE, prefixes, within } from "./names.js";
import { Trie, fold } from "./trie.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./view.js").View} View */
/** @typedef {import("./view.js").Slack} Slack */

/** @typedef {"module"|"stack"|"category"|"owner"} Order */

/** @type {{order: Order, name: string}[]} */
export const ORDERS = [
  { order: "module", name: "Module" }, { order: "stack", name: "Call stack" },
  { order: "category", name: "Category" }, { order: "owner", name: "Owner" },
];
const NO_STACK = "(no stack)";
const NOT_YET = 0xffffffff;

/** @param {{pid: number, rank: number|null}} process */
const processName = ({ pid, rank }) => (rank !== null ? `rank ${rank}, process ${pid}` : `process ${pid}`);

/**
 * Names of the ledger's levels: the process leads where several share the device, the line ends.
 * @param {Model} model
 * @param {number} kind
 * @param {boolean} several
 */
export function ownerLevels(model, kind, several) {
  const { kinds, page } = model;
  const names = several ? [processOf(model, kinds.process[kind])] : [];
  names.push(...(page.paths[kinds.path[kind]] ?? []));
  const place = model.stackPlace[kinds.placeStack[kind]];
  if (place !== 0) names.push(model.places[place]);
  return names;
}

/**
 * @param {Model} model
 * @param {number} process
 */
export function processOf(model, process) {
  const found = model.page.processes[process];
  return found ? processName(found) : "no recorded process";
}

/** The ways of one order on one device. */
export class Ways {
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
    let way = this.ofKindKnown[kind];
    if (way === NOT_YET) way = this.ofKindKnown[kind] = this.findWay(kind);
    return way;
  }

  /** @param {number} kind */
  findWay(kind) {
    const { model, trie } = this;
    const { kinds } = model;
    if (this.order === "stack") {
      const way = this.ofStack[kinds.stack[kind]];
      return way !== 0 ? way : trie.step(0, NO_STACK);
    }
    if (this.order === "owner") {
      return ownerLevels(model, kind, this.several).reduce((way, name) => trie.step(way, name), 0);
    }
    const outer = this.order === "category" ? trie.step(0, model.categories[kinds.category[kind]]) : 0;
    const module = model.page.names[kinds.module[kind]] ?? "";
    let way = outer;
    let last = "";
    for (const prefix of prefixes(module)) {
      way = trie.step(way, within(prefix, last), { module: prefix, place: model.page.module_types[prefix] ?? "" });
      last = prefix;
    }
    if (module === "" && this.order !== "category") way = trie.step(way, NO_MODULE);
    if (this.order === "layer") return way;
    const name = model.page.names[kinds.name[kind]] ?? "";
    if (name !== "" && name !== module) return trie.step(way, within(name, module));
    const place = model.stackPlace[kinds.placeStack[kind]];
    if (place !== 0) return trie.step(way, model.places[place]);
    // Without a line, the level of the ledger says what it is.
    const path = model.page.paths[kinds.path[kind]] ?? [];
    return path.length > 0 ? trie.step(way, path.join(" › ")) : way;
  }

  /** @param {Slack} slack */
  ofSlack(slack) {
    const { trie, model } = this;
    const category = model.categories[slack.category];
    if (this.order === "owner") {
      const names = this.several ? [processOf(model, slack.process), ...slack.path] : slack.path;
      return names.reduce((way, name) => trie.step(way, name), 0);
    }
    const outer = trie.step(0, this.order === "stack" ? NO_STACK : this.order === "category" ? category : NO_MODULE);
    if (this.order === "layer") return outer;
    const name = slack.path.join(" › ");
    return name === category ? outer : trie.step(outer, name);
  }

  /** Levels of the longest way, so that pictures keep their height from instant to instant. */
  depth() {
    const { parent } = this.trie;
    // Ways that only slack has come and go; they are short.
    if (this.deepest < 0) {
      for (let kind = 0; kind < this.model.kinds.count; ++kind) this.ofKind(kind);
      const depths = new Uint16Array(parent.length);
      for (let way = 1; way < parent.length; ++way) depths[way] = depths[parent[way]] + 1;
      this.deepest = depths.reduce((a, b) => Math.max(a, b), 1);
    }
    return this.deepest;
  }

  /**
   * The view's bytes in this order.
   * @param {View} view
   */
  fold(view) {
    const { kinds, categories } = this.model;
    const shares = view.shown.map((kind) => ({
      way: this.ofKind(kind), bytes: view.kindBytes[kind], count: view.kindCount[kind], category: kinds.category[kind],
    }));
    for (const slack of view.slack) {
      shares.push({ way: this.ofSlack(slack), bytes: slack.bytes, count: slack.count, category: slack.category });
    }
    return fold(this.trie, shares, categories.length);
  }
}

/** Ways that were made, since they stay the same from instant to instant. */
export class WayBook {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    /** @type {Map<string, Ways>} */
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
    let ways = this.known.get(key);
    if (!ways) this.known.set(key, ways = new Ways(this.model, order, how));
    return ways;
  }
}
