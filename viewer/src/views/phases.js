// SPDX-License-Identifier: Apache-2.0
// The phases of inference engines and the CUDA graphs, with the figures of `vramscope report --phases`.
import { formatBytes, formatExact, formatSignedBytes, formatTime } from "../base/format.js";
import { h, roving } from "../dom/dom.js";
import { processOf } from "../model/tree_paths.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/view.js").View} View */
/** @typedef {import("../model/types.js").EnginePhase} EnginePhase */
/** @typedef {NonNullable<import("../model/types.js").PageData["phases"]>} Phases */

const NAMED = 4;

/**
 * What a phase left, by category: `parameter +160 MiB, others +2 MiB`.
 * @param {EnginePhase} phase
 */
export function leftText({ left, left_bytes: all }) {
  const named = left.slice(0, NAMED);
  const rest = named.reduce((sum, { bytes }) => sum - bytes, all);
  const parts = named.map(({ category, bytes }) => `${category} ${formatSignedBytes(bytes)}`);
  return [...parts, ...(rest !== 0 ? [`others ${formatSignedBytes(rest)}`] : [])].join(", ");
}

export class PhaseTable {
  /**
   * @param {Model} model
   * @param {Store} store
   * @param {Phases} phases
   */
  constructor(model, store, { answer, notes, windows }) {
    this.model = model;
    this.store = store;
    /** The phases, then the graphs, as `windows` has them. */
    this.entries = [...answer.phases, ...answer.graphs];
    this.phases = answer.phases.length;
    this.windows = windows;
    this.device = -1;
    /** @type {Map<number, HTMLElement>} The rows on the page. */
    this.rows = new Map();
    this.tables = h("div", { class: "data-scroll" });
    this.element = h("section", { class: "card phases", "aria-label": "Phases" },
      h("div", { class: "card-head" }, h("h2", {}, this.phases > 0 ? "Phases of the engine" : "CUDA graphs"),
        h("span", { class: "hint" }, "bytes of the process · left: what the phase added · click to go to its peak")),
      this.tables, ...notes.map((note) => h("p", {}, note)));
    roving(this.tables);
  }

  /** @param {View} view */
  render({ device }) {
    if (this.device !== device) {
      this.device = device;
      this.draw();
    }
    const { at } = this.store.state;
    for (const [entry, row] of this.rows) row.classList.toggle("chosen", this.windows[entry][2] === at);
  }

  draw() {
    const { index } = this.model.page.devices[this.device];
    const here = [...this.entries.keys()].filter((entry) => this.entries[entry].device === index);
    const pids = [...new Set(here.map((entry) => this.entries[entry].pid))];
    this.rows.clear();
    this.tables.replaceChildren(...[true, false].flatMap((ofPhases) => pids.map((pid) => {
      const rows = here.filter((entry) => this.entries[entry].pid === pid && entry < this.phases === ofPhases);
      return rows.length > 0 ? this.makeTable(pid, rows, ofPhases, pids.length > 1) : "";
    })));
    this.element.classList.toggle("gone", here.length === 0);
  }

  /**
   * @param {number} pid
   * @param {number[]} rows of `entries`
   * @param {boolean} ofPhases else of graphs
   * @param {boolean} several
   */
  makeTable(pid, rows, ofPhases, several) {
    const process = processOf(this.model, this.model.page.processes.findIndex((each) => each.pid === pid));
    const kind = ofPhases ? "phase" : "CUDA graph";
    const head = (/** @type {string} */ name) => h("th", { scope: "col", class: name === kind || name === "by" ? "text" : name === "time" ? "minor" : null }, name);
    const left = rows.reduce((sum, entry) => sum + this.entries[entry].left_bytes, 0);
    const signed = (/** @type {number} */ bytes) => h("td", { title: formatExact(bytes) }, formatSignedBytes(bytes));
    return h("table", { class: "data", "aria-label": `${ofPhases ? "Phases" : "CUDA graphs"} of ${process}` }, several ? h("caption", {}, process) : null,
      h("thead", {}, h("tr", {}, ...[kind, "time", "peak", "left", "by"].map(head))),
      h("tbody", {}, ...rows.map((entry) => {
        const { name, duration_ns: duration, peak_bytes: peak, left_bytes: bytes } = this.entries[entry];
        const row = h("tr", { class: "acts", click: () => this.go(entry) },
          h("th", { scope: "row", class: "text", title: name }, h("button", { type: "button", tabindex: -1 }, name)),
          h("td", { class: "minor" }, duration > 0 ? formatTime(duration) : ""),
          h("td", { title: formatExact(peak) }, formatBytes(peak)), signed(bytes), h("td", { class: "text wraps" }, leftText(this.entries[entry])));
        this.rows.set(entry, row);
        return row;
      })),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row", class: "text" }, ofPhases ? "at the end" : "all"), h("td", { class: "minor" }), h("td", {}), signed(left), h("td", {}))));
  }

  /**
   * Shows the entry's stretch of time, at its peak.
   * @param {number} entry
   */
  go(entry) {
    const [begin, end, at] = this.windows[entry];
    this.store.set({ at, zoom: end > begin && end - begin < this.model.duration ? [begin, end] : null });
  }
}
