// SPDX-License-Identifier: Apache-2.0
// The phases of inference engines, with the figures of `vramscope report --phases`.
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
    this.answer = answer;
    this.windows = windows;
    this.device = -1;
    /** @type {Map<number, HTMLElement>} The rows on the page. */
    this.rows = new Map();
    this.tables = h("div", { class: "data-scroll" });
    this.element = h("section", { class: "card phases", "aria-label": "Phases" },
      h("div", { class: "card-head" }, h("h2", {}, "Phases of the engine"),
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
    for (const [phase, row] of this.rows) row.classList.toggle("chosen", this.windows[phase][2] === at);
  }

  draw() {
    const { phases } = this.answer;
    const { index } = this.model.page.devices[this.device];
    const here = [...phases.keys()].filter((phase) => phases[phase].device === index);
    const pids = [...new Set(here.map((phase) => phases[phase].pid))];
    this.rows.clear();
    this.tables.replaceChildren(...pids.map((pid) => this.makeTable(pid, here.filter((phase) => phases[phase].pid === pid), pids.length > 1)));
    this.element.classList.toggle("gone", here.length === 0);
  }

  /**
   * @param {number} pid
   * @param {number[]} rows
   * @param {boolean} several
   */
  makeTable(pid, rows, several) {
    const { phases } = this.answer;
    const process = processOf(this.model, this.model.page.processes.findIndex((each) => each.pid === pid));
    const head = (/** @type {string} */ name) => h("th", { scope: "col", class: /phase|by/.test(name) ? "text" : name === "time" ? "minor" : null }, name);
    const left = rows.reduce((sum, phase) => sum + phases[phase].left_bytes, 0);
    const signed = (/** @type {number} */ bytes) => h("td", { title: formatExact(bytes) }, formatSignedBytes(bytes));
    return h("table", { class: "data", "aria-label": `Phases of ${process}` }, several ? h("caption", {}, process) : null,
      h("thead", {}, h("tr", {}, ...["phase", "time", "peak", "left", "by"].map(head))),
      h("tbody", {}, ...rows.map((phase) => {
        const { name, duration_ns: duration, peak_bytes: peak, left_bytes: bytes } = phases[phase];
        const row = h("tr", { class: "acts", click: () => this.go(phase) },
          h("th", { scope: "row", class: "text", title: name }, h("button", { type: "button", tabindex: -1 }, name)),
          h("td", { class: "minor" }, duration > 0 ? formatTime(duration) : ""),
          h("td", { title: formatExact(peak) }, formatBytes(peak)), signed(bytes), h("td", { class: "text wraps" }, leftText(phases[phase])));
        this.rows.set(phase, row);
        return row;
      })),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row", class: "text" }, "at the end"), h("td", { class: "minor" }), h("td", {}), signed(left), h("td", {}))));
  }

  /**
   * Shows the phase's stretch of time, at its peak.
   * @param {number} phase
   */
  go(phase) {
    const [begin, end, at] = this.windows[phase];
    this.store.set({ at, zoom: end > begin && end - begin < this.model.duration ? [begin, end] : null });
  }
}
