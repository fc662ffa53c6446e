// SPDX-License-Identifier: Apache-2.0
// Changes between two instants: a baseline and the chosen instant, or the ends of the timeline's window.
import { WindowAxis } from "../timeline/axis.js";
import { DataTable } from "../dom/datatable.js";
import { Filter } from "../model/filter.js";
import { formatBytes, formatCount, formatSignedBytes, formatTime } from "../base/format.js";
import { h } from "../dom/dom.js";
import { Choice } from "../dom/choice.js";
import { makeView } from "../model/view.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/view.js").View} View */

/**
 * @typedef {object} Change
 * @property {string} name
 * @property {number} before
 * @property {number} after
 * @property {number} count Change in the number of allocations.
 */

/** @typedef {"category"|"module"|"line"} Group */

/**
 * The differences of two views, largest first.
 * @param {Model} model
 * @param {View} before
 * @param {View} after
 * @param {Group} group
 * @returns {Change[]}
 */
export function changesBetween(model, before, after, group) {
  const { page, kinds } = model;
  const nameOf = (/** @type {number} */ kind) => {
    if (group === "category") return model.categories[kinds.category[kind]];
    if (group === "module") return page.names[kinds.module[kind]] || "(no module)";
    return page.names[kinds.line[kind]] || (page.paths[kinds.path[kind]] ?? []).join(" › ");
  };
  /** @type {Map<string, Change>} */
  const changes = new Map();
  const add = (/** @type {View} */ view, /** @type {"before"|"after"} */ side) => {
    for (const kind of view.shown) {
      const name = nameOf(kind);
      const change = changes.get(name) ?? { name, before: 0, after: 0, count: 0 };
      change[side] += view.kindBytes[kind];
      change.count += (side === "after" ? 1 : -1) * view.kindCount[kind];
      changes.set(name, change);
    }
  };
  add(before, "before");
  add(after, "after");
  return [...changes.values()].filter((change) => change.before !== change.after || change.count !== 0);
}

export class ChangesView {
  /**
   * @param {Model} model
   * @param {Store} store
   */
  constructor(model, store) {
    this.model = model;
    this.store = store;
    /** @type {Group} */
    this.group = model.kinds.module.some((module) => module !== 0) ? "module" : "line";
    this.by = new Choice("What changed, by", [["category", "Category"], ["module", "Layer"], ["line", "Line"]], (chosen) => {
      this.group = /** @type {Group} */ (chosen);
      if (this.view) this.render(this.view);
    });
    this.text = h("p", { class: "changes-text", role: "status" });
    this.here = h("button", { class: "chip action", type: "button", click: () => store.set({ base: this.view?.at ?? null }) }, "Set as baseline");
    this.start = h("button", { class: "chip", type: "button", click: () => store.set({ base: 0 }) }, "Baseline: start");
    this.before = h("button", { class: "chip", type: "button", click: () => store.set({ base: this.previous() }) }, "Baseline: peak of the previous iteration");
    const bytes = (/** @type {string} */ name, /** @type {(change: Change) => number} */ of, signed = false, minor = false) => ({
      name, minor, value: of, show: (/** @type {Change} */ change) => (signed ? formatSignedBytes(of(change)) : formatBytes(of(change))),
    });
    /** @type {DataTable<Change>} */
    this.table = new DataTable("Changes", [
      { name: "Name", text: true, value: ({ name }) => name },
      bytes("Before", ({ before }) => before, false, true), bytes("After", ({ after }) => after),
      bytes("Change", ({ before, after }) => after - before, true),
      { name: "Allocations", minor: true, value: ({ count }) => count, show: ({ count }) => (count > 0 ? `+${formatCount(count)}` : formatCount(count)) },
    ], { sorted: 3, folding: {
      describe: ({ name, before, after }) => ({ name, type: "", bytes: Math.abs(after - before), holds: String(Math.sign(after - before)) }),
      sum: (name, all) => all.reduce((sum, change) => (
        { name, before: sum.before + change.before, after: sum.after + change.after, count: sum.count + change.count }), { name, before: 0, after: 0, count: 0 }),
    } });
    this.hint = "changes between two instants";
    this.copy = this.table.copy;
    this.element = h("div", {}, h("div", { class: "tools" }, this.by.element, this.here, this.start, this.before), this.text, this.table.element);
    new WindowAxis(model, store, this.element).whenItRests(() => { if (this.view) this.render(this.view); });
  }

  /** The peak time of the previous iteration; null: there is none. */
  previous() {
    const { iteration_table: table } = this.model.page;
    const { device, at } = this.view ?? { device: 0, at: 0 };
    const rows = [...table.number.keys()].filter((row) => table.device[row] === device && table.number[row] >= 0 && table.end[row] <= at);
    return rows.length > 0 ? table.peak_at[rows[rows.length - 1]] : null;
  }

  /** @param {View} view */
  render(view) {
    this.view = view;
    const { state } = this.store;
    this.by.show(this.group);
    this.before.classList.toggle("gone", this.previous() === null);
    const window = state.base === null ? state.zoom : null;
    if (state.base === null && !window) {
      this.text.textContent = "Drag over the timeline to compare the start and the end of a window. " +
        "Or set a baseline: every instant that you choose is then compared with it.";
      this.table.render([], "");
      return;
    }
    const look = (/** @type {number} */ at) => makeView(this.model, { ...state, at }, new Filter(this.model, state));
    const base = look(window ? window[0] : state.base ?? 0);
    const after = window ? look(window[1]) : view;
    this.text.textContent = `${formatTime(base.at)}, ${formatBytes(base.bytes)} → ${formatTime(after.at)}, ${formatBytes(after.bytes)}: ` +
      formatSignedBytes(after.bytes - base.bytes);
    this.table.render(changesBetween(this.model, base, after, this.group), "Nothing changed between them.");
  }
}
