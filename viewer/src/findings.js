// SPDX-License-Identifier: Apache-2.0
// Iterations and leaks as tables: what `vramscope iterations` and `vramscope leaks` print.
import { DataTable } from "./datatable.js";
import { formatBytes, formatCount, formatExact, formatSignedBytes, formatTime } from "./format.js";
import { frameList, innermostFirst } from "./frames.js";
import { h } from "./dom.js";
import { patchBar, shareBar } from "./treetable.js";
import { processOf } from "./tree_paths.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").Store} Store */
/** @typedef {import("./view.js").View} View */
/** @typedef {import("./types.js").Leak} Leak */

/** @typedef {{row: number, byCategory: Float64Array}} Iteration */

export class IterationsView {
  /**
   * @param {Model} model
   * @param {Store} store
   */
  constructor(model, store) {
    const table = model.page.iteration_table;
    this.model = model;
    this.device = -1;
    const bytes = (/** @type {string} */ name, /** @type {number[]} */ of, /** @type {string} */ title) => ({
      name, title, value: (/** @type {Iteration} */ { row }) => of[row], show: (/** @type {Iteration} */ { row }) => formatBytes(of[row]),
    });
    const time = (/** @type {string} */ name, /** @type {(row: number) => number} */ of, /** @type {string} */ title) => ({
      name, title, value: (/** @type {Iteration} */ { row }) => of(row), show: (/** @type {Iteration} */ { row }) => formatTime(of(row)),
    });
    const several = new Set(table.process).size > 1;
    /** @type {DataTable<Iteration>} */
    this.table = new DataTable("Iterations", [
      { name: "Iteration", value: ({ row }) => table.number[row], show: ({ row }) => (table.number[row] < 0 ? "before" : String(table.number[row])) },
      ...(several ? [{ name: "Process", text: true, value: (/** @type {Iteration} */ { row }) => processOf(model, table.process[row]) }] : []),
      time("Begins", (row) => table.begin[row], "From the start of the recording"),
      time("Lasts", (row) => table.end[row] - table.begin[row], "How long it lasts"),
      bytes("Peak", table.peak, "Highest total of the ledger within it, cache and driver included; a click goes there"),
      bytes("Allocated", table.allocated, "Highest sum of what the program holds, without cache and driver"),
      bytes("Reserved", table.reserved, "Highest sum of the segments of caching allocators, allocated or free"),
      bytes("End", table.end_allocated, "Allocated at its end"),
      { name: "Categories", title: "The highest of each within it", value: ({ byCategory }) => byCategory.reduce((a, b) => a + b, 0),
        show: ({ row, byCategory }) => {
          const bar = shareBar();
          patchBar(bar, { byCategory }, Math.max(1, ...table.peak, byCategory.reduce((a, b) => a + b, 0)));
          bar.title = Object.entries(table.categories).filter(([, of]) => of[row] > 0).map(([name, of]) => `${name} ${formatBytes(of[row])}`).join("\n");
          return bar;
        } },
    ], {
      sorted: 0, choose: ({ row }) => store.set({ at: table.peak_at[row], device: table.device[row] }),
      isChosen: ({ row }) => store.state.at === table.peak_at[row],
    });
    this.table.falling = false;
    // What no process has, and what others have, is the device's.
    this.hint = table.source ? `by ${table.source} · bytes of its process alone, each column's own highest, whatever the filters · times of the host's calls · ` +
      "click: the instant of its peak" : "";
    this.element = this.table.element;
    this.copy = this.table.copy;
  }

  /** @param {View} view */
  render({ device }) {
    const { iteration_table: table } = this.model.page;
    if (this.device === device) {
      this.table.draw();
      return;
    }
    this.device = device;
    const indices = Object.entries(table.categories).map(([name, of]) => ({ of, index: this.model.categoryIndex.get(name) }));
    const rows = [...table.number.keys()].filter((row) => table.device[row] === device).map((row) => {
      const byCategory = new Float64Array(this.model.categories.length);
      for (const { of, index } of indices) if (index !== undefined) byCategory[index] += of[row];
      return { row, byCategory };
    });
    this.table.render(rows, "This recording has no iterations on this device. optimizer.step() ends one, or vramscope.mark(\"iteration\").");
  }
}

/**
 * Why the last request of a device failed, and what would help, as `report --oom` has it.
 * @param {Model} model
 * @param {Store} store
 */
export function makeRefusals(model, store) {
  const cards = model.page.explained.map(({ device, t, head, cause, advice }) => h("section", { class: "card refusal", "aria-label": "Out of memory" },
    h("div", { class: "card-head" }, h("h2", {}, head),
      h("button", { class: "quiet", type: "button", click: () => store.set({ device, at: t, zoom: null }) }, "Show that instant")),
    h("p", {}, `Cause: ${cause}`),
    advice.length === 0 ? null : h("table", { class: "advice" }, h("caption", {}, "What to try, and what it would save"),
      ...advice.map(({ bytes, text, how }) => h("tr", {}, h("td", { class: "num", title: formatExact(bytes) }, formatBytes(bytes)), h("td", { title: how }, text))))));
  return cards;
}

export class LeaksView {
  /**
   * @param {Model} model
   * @param {Store} store
   */
  constructor(model, store) {
    const { leaks } = model.page;
    this.model = model;
    const place = { name: "Line", text: true, value: (/** @type {Leak} */ { place: text }) => text || "(no stack)" };
    const what = [
      { name: "What", text: true, value: (/** @type {Leak} */ { module }) => module || "–" },
      { name: "Category", text: true, value: (/** @type {Leak} */ { category }) => category || "–" },
    ];
    const count = { name: "Count", value: (/** @type {Leak} */ { count: of }) => of, show: (/** @type {Leak} */ { count: of }) => formatCount(of) };
    const bytes = { name: "Bytes", value: (/** @type {Leak} */ { bytes: of }) => of, show: (/** @type {Leak} */ { bytes: of }) => formatBytes(of) };
    const detail = (/** @type {Leak} */ { stack }) => frameList(model, innermostFirst(model, stack), store.state.search.trim().toLowerCase());
    /** @type {DataTable<Leak>} */
    this.growing = new DataTable("Memory that grows", [place, ...what,
      { name: "An iteration", title: "How much more after each iteration", value: ({ per_iteration: of }) => of, show: ({ per_iteration: of }) => formatSignedBytes(Math.round(of)) },
      { name: "First", title: "At the end of the first iteration looked at", value: ({ first }) => first, show: ({ first }) => formatBytes(first) },
      { ...bytes, name: "Last" }, count,
      { name: "Steady", text: true, value: ({ steady }) => (steady ? "yes" : "no") }], { sorted: 3, detail });
    /** @type {DataTable<Leak>} */
    this.left = new DataTable("Memory that nobody freed", [place, ...what, bytes, count], { sorted: 3, detail });
    const several = model.page.devices.length > 1 ? " of this device" : "";
    this.hint = `of the whole run${several}, whatever the filters · click: the stack, innermost first`;
    this.copy = h("span", {}, this.growing.copy);
    this.element = h("div", {},
      h("h3", {}, "Growth from iteration to iteration"), h("p", {}, `${leaks.verdict}.`), this.growing.element,
      h("div", { class: "part-head" }, h("h3", {}, "Never freed, beside models in use"), this.left.copy),
      ...(leaks.unused ? [h("p", {}, `${leaks.unused}.`)] : []), this.left.element,
      ...(leaks.expected ? [h("p", { class: "soft" }, `Alive at the end as expected, on all devices: ${leaks.expected}.`)] : []));
  }

  /** @param {View} view */
  render({ device }) {
    const { leaks } = this.model.page;
    const here = (/** @type {Leak} */ leak) => leak.device === device;
    this.growing.render(leaks.growing.filter(here), "No line of this device grows.");
    this.left.render(leaks.never_freed.filter(here), "Nothing on this device.");
  }
}
