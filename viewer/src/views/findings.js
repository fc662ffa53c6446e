// SPDX-License-Identifier: Apache-2.0
// Iterations, leaks, failed requests and advice, with the figures of the commands.
import { DataTable } from "../dom/datatable.js";
import { formatBytes, formatCount, formatExact, formatSignedBytes, formatTime } from "../base/format.js";
import { frameList, innermostFirst } from "../dom/frames.js";
import { deviceLabel } from "./header.js";
import { h } from "../dom/dom.js";
import { patchBar, shareBar } from "../dom/treetable.js";
import { processOf } from "../model/tree_paths.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/view.js").View} View */
/** @typedef {import("../model/types.js").Leak} Leak */
/** @typedef {import("../model/types.js").Saving} Saving */

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
      time("Lasts", (row) => table.end[row] - table.begin[row], "Duration of the host's calls"),
      bytes("Peak", table.peak, "Highest total, including cache and driver. Click to go to that instant"),
      bytes("Allocated", table.allocated, "Most bytes held by the program, without cache and driver"),
      bytes("Reserved", table.reserved, "Most bytes in segments of caching allocators, allocated or free"),
      bytes("End", table.end_allocated, "Bytes allocated at the end of the iteration"),
      { name: "Categories", title: "The maximum of each category; they can be at different instants", value: ({ byCategory }) => byCategory.reduce((a, b) => a + b, 0),
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
    // An iteration belongs to a process, so its figures exclude other processes and the kernel driver.
    this.hint = table.source ? `by ${table.source} · bytes of the process only · each column has its own maximum · not filtered · times of the host's calls · ` +
      "click to go to the peak" : "";
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
    this.table.render(rows, "No iterations found on this device. An iteration ends at optimizer.step() or vramscope.mark(\"iteration\").");
  }
}

/**
  * Why the last request of a device failed and what would help, with the text of `report --oom`.
 * @param {Model} model
 * @param {Store} store
 */
export function makeRefusals(model, store) {
  const cards = model.page.explained.map(({ device, t, head, cause, try: best, advice }) => h("section", { class: "card refusal", "aria-label": "Out of memory" },
    h("div", { class: "card-head" }, h("h2", {}, head),
      h("button", { class: "quiet", type: "button", click: () => store.set({ device, at: t, zoom: null }) }, "Show that instant")),
    h("p", {}, `Cause: ${cause}`),
    best ? h("p", {}, `Try: ${best}`) : null,
    advice.length === 0 ? null : h("table", { class: "advice" }, h("caption", {}, "What to try, and the bytes it would save"),
      ...advice.map(({ bytes, text, how }) => h("tr", {}, h("td", { class: "num", title: formatExact(bytes) }, formatBytes(bytes)), h("td", { title: how }, text))))));
  return cards;
}

/**
 * As in the text of `report --advice`.
 * @param {Saving} saving
 */
function savesText({ lowers, confidence, saves_bytes: bytes }) {
  const of = lowers === "reserved" ? " of reserved memory" : lowers === "device" ? " of the device" : "";
  return `saves ${confidence === "exact" ? "" : `${confidence} `}${formatBytes(bytes)}${of}`;
}

/**
 * What would lower the peak, with the text of `report --advice`. The largest saving is in sight, the rest opens.
 * @param {Model} model
 */
export function makeAdvice(model) {
  const { savings: found, devices } = model.page;
  if (!found) return [];
  const { savings, pid, allocated_peak_bytes: peak, together_bytes: together } = found;
  const device = devices.find(({ index }) => index === found.device);
  const line = (/** @type {string} */ name, /** @type {string|null} */ text) => (text ? h("p", {}, h("span", { class: "soft" }, `${name}: `), text) : null);
  const rest = savings.length - 1;
  const allocated = savings.filter(({ lowers }) => lowers === "allocated").length;
  return [h("section", { class: "card advised", "aria-label": "Advice" }, h("details", {},
    h("summary", {}, h("h2", {}, "To lower the peak: "), `${savings[0].change}: ${savesText(savings[0])}`,
      rest > 0 ? h("span", { class: "soft" }, ` and ${rest} more`) : null),
    h("p", {}, `Allocated by process ${pid}${device ? ` on ${deviceLabel(device)}` : ""} at the peak: `, h("b", { title: formatExact(peak) }, formatBytes(peak))),
    h("ol", {}, ...savings.map((saving) => h("li", {},
      h("b", { title: formatExact(saving.saves_bytes) }, `${saving.change}: ${savesText(saving)}`),
      line("why", saving.why), line("if", saving.condition), line("most of it", saving.place)))),
    h("p", { class: "soft" }, ...(allocated === 0 ? [] : [`${allocated > 1 ? "Together" : "With it"}: `,
      h("span", { title: formatExact(together) }, formatBytes(together)), " allocated at the peak. "]), "This is computed from the recorded allocations. ",
      allocated === savings.length ? "The allocator's cache and the driver's memory are not predicted."
        : "Reserved memory and the device's are those of one change alone.")))];
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
      { name: "Per iteration", title: "Growth per iteration", value: ({ per_iteration: of }) => of, show: ({ per_iteration: of }) => formatSignedBytes(Math.round(of)) },
      { name: "First", title: "Bytes at the end of the first iteration that counts", value: ({ first }) => first, show: ({ first }) => formatBytes(first) },
      { ...bytes, name: "Last" }, count,
      { name: "Steady", text: true, value: ({ steady }) => (steady ? "yes" : "no") }], { sorted: 3, detail });
    /** @type {DataTable<Leak>} */
    this.left = new DataTable("Memory never freed", [place, ...what, bytes, count], { sorted: 3, detail });
    const several = model.page.devices.length > 1 ? " of this device" : "";
    this.hint = `of the whole run${several} · not filtered · click for the stack, innermost first`;
    this.copy = h("span", {}, this.growing.copy);
    this.element = h("div", {},
      h("h3", {}, "Growth from iteration to iteration"), h("p", {}, `${leaks.verdict}.`), this.growing.element,
      h("div", { class: "part-head" }, h("h3", {}, "Never freed, except models in use"), this.left.copy),
      ...(leaks.unused ? [h("p", {}, `${leaks.unused}.`)] : []), this.left.element,
      ...(leaks.expected ? [h("p", { class: "soft" }, `Expected to be alive at the end, on all devices: ${leaks.expected}.`)] : []));
  }

  /** @param {View} view */
  render({ device }) {
    const { leaks } = this.model.page;
    const here = (/** @type {Leak} */ leak) => leak.device === device;
    this.growing.render(leaks.growing.filter(here), "No line of this device grows.");
    this.left.render(leaks.never_freed.filter(here), "Nothing on this device.");
  }
}
