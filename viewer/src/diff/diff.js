// SPDX-License-Identifier: Apache-2.0
// The page of `vramscope diff --html`: the changes in words, both histories, an icicle coloured by change, and the rows.
// All figures are those of `vramscope diff --json`.
import { ChangeIcicle } from "./diff_icicle.js";
import { HistoryPair } from "./diff_timeline.js";
import { h } from "../dom/dom.js";
import { formatBytes, formatCount, formatSignedBytes } from "../base/format.js";
import { drawPage } from "../model/page_data.js";

/**
 * @typedef {object} Row
 * @property {string[]} path
 * @property {number} a_bytes
 * @property {number} b_bytes
 * @property {number} delta_bytes
 *
 * @typedef {object} Diff
 * @property {{file: string, command: string}} a
 * @property {{file: string, command: string}} b
 * @property {boolean} same
 * @property {{a_bytes: number, b_bytes: number, delta_bytes: number}} peak
 * @property {number} threshold_bytes
 * @property {string[]} causes
 * @property {string[]} notes
 * @property {string[]} levels
 * @property {Row[]} rows
 * @property {{category: string, a_bytes: number, b_bytes: number, delta_bytes: number}[]} categories
 * @property {{number: number, a_peak_bytes: number, b_peak_bytes: number}[]} iterations
 *
 * @typedef {object} History
 * @property {string} name
 * @property {number} duration_ns
 * @property {string[]} groups
 * @property {number[]} time_ns From the start.
 * @property {number[][]} bytes Indexed by group and bucket.
 * @property {[number, number][]} iterations Begin and end, from the start.
 *
 * @typedef {object} Page
 * @property {Diff} diff
 * @property {{a: History[], b: History[]}} histories One for each device, in the same order.
 * @property {string} version
 */

const FIRST_ROWS = 40;

/**
 * @param {number} delta
 * @param {number} limit Changes up to this are noise.
 */
function changeClass(delta, limit) {
  return delta > limit ? "grew" : delta < -limit ? "shrank" : "steady";
}

/** @param {Page} page */
function makeHead(page) {
  const { diff } = page;
  const figure = (/** @type {string} */ label, /** @type {string} */ value, /** @type {string} */ cls) =>
    h("div", { class: "figure" }, h("span", { class: "figure-label" }, label), h("span", { class: `figure-value ${cls}` }, value));
  const percent = diff.peak.a_bytes > 0 ? (100 * diff.peak.delta_bytes) / diff.peak.a_bytes : 0;
  const change = `${formatSignedBytes(diff.peak.delta_bytes)}${diff.peak.a_bytes > 0 ? ` (${percent > 0 ? "+" : ""}${percent.toFixed(1)} %)` : ""}`;
  const side = (/** @type {string} */ letter, /** @type {{file: string, command: string}} */ source) =>
    h("p", { class: "command", title: source.command }, h("b", {}, `${letter}  ${source.file}`), `  ${source.command}`);
  return h("header", { class: "head" },
    h("div", { class: "brand" }, h("span", {}, "vramscope"), h("span", { class: "facts" }, "comparison of two recordings")),
    h("h1", {}, diff.same ? "No difference" : diff.causes[0] ?? ""),
    side("A", diff.a), side("B", diff.b),
    h("div", { class: "figures" }, figure("Peak of A", formatBytes(diff.peak.a_bytes), ""),
      figure("Peak of B", formatBytes(diff.peak.b_bytes), ""),
      figure("Change", change, changeClass(diff.peak.delta_bytes, diff.threshold_bytes))));
}

/** @param {Diff} diff */
function makeCauses(diff) {
  if (diff.causes.length < 2 && diff.notes.length === 0) return null;
  return h("section", { class: "card" },
    diff.causes.length > 1 ? h("h2", {}, "Also") : null,
    diff.causes.length > 1 ? h("ul", { class: "causes" }, ...diff.causes.slice(1).map((cause) => h("li", {}, cause))) : null,
    diff.notes.length > 0 ? h("h2", {}, "Notes") : null,
    diff.notes.length > 0 ? h("ul", { class: "causes soft" }, ...diff.notes.map((note) => h("li", {}, note))) : null);
}

/** @param {Diff} diff */
function makeCategories(diff) {
  const line = (/** @type {string} */ name, /** @type {number} */ a, /** @type {number} */ b) => h("tr", {},
    h("td", {}, name), h("td", { class: "num" }, formatBytes(a)), h("td", { class: "num" }, formatBytes(b)),
    h("td", { class: `num ${changeClass(b - a, diff.threshold_bytes)}` }, formatSignedBytes(b - a)));
  const table = (/** @type {string} */ title, /** @type {HTMLElement[]} */ lines) => h("div", {},
    h("table", { class: "changes" }, h("thead", {}, h("tr", {}, h("th", {}, title), h("th", { class: "num" }, "A"),
      h("th", { class: "num" }, "B"), h("th", { class: "num" }, "change"))), h("tbody", {}, ...lines)));
  return h("section", { class: "card pair" },
    table("At the peak, by category", diff.categories.map((row) => line(row.category, row.a_bytes, row.b_bytes))),
    diff.iterations.length > 0
      ? table("Peak of iteration", diff.iterations.map((row) => line(String(row.number), row.a_peak_bytes, row.b_peak_bytes)))
      : null);
}

/** The rows below a tree path, largest change first, with a button for the rest. */
class RowTable {
  /** @param {Diff} diff */
  constructor(diff) {
    this.diff = diff;
    this.body = h("tbody");
    this.more = h("button", { type: "button", class: "quiet", click: () => this.show(this.wanted, true) });
    this.said = h("span", { class: "hint" });
    /** @type {(row: Row) => boolean} */
    this.wanted = () => true;
    // Hide the first level of the paths if all rows share it.
    this.from = new Set(diff.rows.map((row) => row.path[0])).size > 1 ? 0 : 1;
    const head = ["device", "category", "phase", "layer", "name", "line"].slice(this.from).map((name) => h("th", {}, name));
    const figures = ["A", "B", "change"].map((name) => h("th", { class: "num" }, name));
    this.element = h("section", { class: "card" },
      h("div", { class: "card-head" }, h("h2", {}, "Rows at the peak"), this.said),
      h("div", { class: "scroll" }, h("table", { class: "changes rows-table" }, h("thead", {}, h("tr", {}, ...figures, ...head)), this.body)),
      this.more);
    this.show(this.wanted, false);
  }

  /**
   * @param {(row: Row) => boolean} wanted
   * @param {boolean} all
   */
  show(wanted, all) {
    this.wanted = wanted;
    const rows = this.diff.rows.filter(wanted);
    const shown = all ? rows : rows.slice(0, FIRST_ROWS);
    this.body.replaceChildren(...shown.map((row) => h("tr", {},
      h("td", { class: "num" }, formatBytes(row.a_bytes)), h("td", { class: "num" }, formatBytes(row.b_bytes)),
      h("td", { class: `num ${changeClass(row.delta_bytes, this.diff.threshold_bytes)}` }, formatSignedBytes(row.delta_bytes)),
      ...row.path.slice(this.from).map((text) => h("td", { title: text }, text === "(none)" ? "" : text)))));
    this.more.textContent = rows.length > shown.length ? `${formatCount(rows.length - shown.length)} more` : "";
    const [a, b] = [rows.reduce((sum, row) => sum + row.a_bytes, 0), rows.reduce((sum, row) => sum + row.b_bytes, 0)];
    this.said.textContent = `${formatCount(rows.length)} rows, ${formatBytes(a)} in A, ${formatBytes(b)} in B`;
  }
}

/**
 * @param {Page} page
 * @param {HTMLElement} main
 */
function start(page, main) {
  const table = new RowTable(page.diff);
  const icicle = new ChangeIcicle(page.diff, (wanted) => table.show(wanted, false));
  const histories = new HistoryPair(page);
  main.append(makeHead(page), makeCauses(page.diff) ?? "", histories.element, icicle.element, makeCategories(page.diff), table.element,
    h("footer", { class: "foot" }, h("p", {}, `Differences of up to ${formatBytes(page.diff.threshold_bytes)} count as noise. ` +
      `B was recorded by vramscope ${page.version}.`)));
  icicle.draw();
  histories.draw();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    icicle.draw();
    histories.draw();
  });
}

drawPage(start);
