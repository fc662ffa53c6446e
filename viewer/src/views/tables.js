// SPDX-License-Identifier: Apache-2.0
// The two tree tables: modules, and the ledger by owner.
import { formatBytes, formatShare } from "../base/format.js";
import { h } from "../dom/dom.js";
import { foldTree } from "../base/repeats.js";
import { NO_MODULE } from "../base/names.js";
import { COLUMNS, TreeTable } from "../dom/treetable.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/view.js").View} View */
/** @typedef {import("../base/trie.js").TreeNode} TreeNode */
/** @typedef {import("../model/tree_paths.js").PathBook} PathBook */

const { name, bytes, own, share, bar, categories, count } = COLUMNS;

/** @param {View} view */
const nothing = (view) => (view.filter.on ? "Nothing passes the filters at this instant." : "Nothing is live at this instant.");

/** @param {TreeNode[]} path */
function moduleOf(path) {
  const { level } = path[path.length - 1];
  return level.name === NO_MODULE ? "" : level.module;
}

export class ModuleTable {
  /**
   * @param {Model} model
   * @param {Store} store
   * @param {PathBook} treePaths
   */
  constructor(model, store, treePaths) {
    this.treePaths = treePaths;
    this.known = model.kinds.module.some((module) => module !== 0);
    this.hint = h("span", { class: "hint" });
    this.table = new TreeTable("Modules", [{ ...name, name: () => "Module" }, bytes, own, share, categories, count], {
      is: (path) => store.state.module === moduleOf(path),
      toggle: (path) => store.set({ module: store.state.module === moduleOf(path) ? null : moduleOf(path) }),
    });
    this.element = h("section", { class: this.known ? "card" : "card gone", "aria-label": "Modules" },
      h("div", { class: "card-head" }, h("h2", {}, "Modules"), this.hint, this.table.copy), this.table.element);
  }

  /**
   * @param {View} view
   * @returns {import("../base/parts.js").Part[]}
   */
  parts(view) {
    return this.known ? [() => this.render(view), () => this.table.draw()] : [];
  }

  /** @param {View} view */
  render(view) {
    const root = this.treePaths.of("layer", view.device, false).fold(view);
    const none = root.children.find((child) => child.level.name === NO_MODULE)?.bytes ?? 0;
    this.hint.textContent = root.bytes > 0
      ? `${formatBytes(root.bytes - none)}, ${formatShare(root.bytes - none, root.bytes)}, belong to modules · % of the shown bytes` : "";
    this.table.render(foldTree(root), view.filter.search, nothing(view));
  }
}

export class LedgerTable {
  /**
   * @param {Store} store
   * @param {PathBook} treePaths
   */
  constructor(store, treePaths) {
    this.treePaths = treePaths;
    const namesOf = (/** @type {TreeNode[]} */ path) => path.map((node) => node.level.name);
    const is = (/** @type {TreeNode[]} */ path) => store.state.path !== null &&
      store.state.path.join("\u0000") === namesOf(path).join("\u0000");
    this.table = new TreeTable("Ledger", [name, bytes, share, bar, count], {
      is, toggle: (path) => store.set({ path: is(path) ? null : namesOf(path) }),
    });
    this.element = h("section", { class: "card", "aria-label": "Ledger" },
      h("div", { class: "card-head" }, h("h2", {}, "Ledger"), h("span", { class: "hint" }, "by owner · every byte in one row · % of the shown bytes"), this.table.copy),
      this.table.element);
  }

  /**
   * @param {View} view
   * @returns {import("../base/parts.js").Part[]}
   */
  parts(view) {
    return [() => this.render(view), () => this.table.draw()];
  }

  /** @param {View} view */
  render(view) {
    this.table.render(this.treePaths.of("owner", view.device, false).fold(view), view.filter.search, nothing(view));
  }
}
