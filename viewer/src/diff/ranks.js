// SPDX-License-Identifier: Apache-2.0
// The page of `vramscope report --ranks --html`: all ranks of a program on one time axis, the excess of the heaviest over
// the median, and a row for each rank. All figures are those of `vramscope report --ranks --json`.
import { DataTable } from "../dom/datatable.js";
import { h } from "../dom/dom.js";
import { formatBytes, formatCount, formatShare, formatSignedBytes, formatTime } from "../base/format.js";
import { drawPage } from "../model/page_data.js";
import { RankHistories } from "./rank_histories.js";

/**
 * @typedef {object} Rank
 * @property {string} name
 * @property {number} rank -1: none.
 * @property {string} file
 * @property {string} host
 * @property {number} pid
 * @property {number} device NVML's number.
 * @property {string} on The device's name, "gpu0" or "cpu".
 * @property {number} bytes
 * @property {number} total_bytes Of the device; 0: not known.
 * @property {number} peak_wall_ns
 * @property {Record<string, number>} categories
 *
 * @typedef {{layer: string|null, category: string, bytes: number}} Excess
 *
 * @typedef {object} RankReport
 * @property {number} bytes
 * @property {Record<string, number>} categories
 * @property {number} processes_without_memory
 * @property {number} first_wall_ns
 * @property {number} starts_apart_ns
 * @property {boolean} uneven
 * @property {string|null} median
 * @property {string|null} heaviest
 * @property {Excess[]} excess
 * @property {Rank[]} ranks
 * @property {string[]} unread
 *
 * @typedef {{end: number, t: number[], bytes: number[]}} History Times from the first recording's begin.
 *
 * @typedef {object} Page
 * @property {RankReport} report
 * @property {string} imbalance
 * @property {string} missing
 * @property {History[]} histories By rank.
 */

/** @typedef {{name: string, all: number, median: number, heaviest: number, least: number, most: number}} Category */

/**
 * @param {Page} page
 */
function makeHead({ report, imbalance, missing }) {
  const facts = [`${formatCount(report.ranks.length)} ranks, sum of their peaks ${formatBytes(report.bytes)}`];
  if (missing) facts.push(`no recording of rank ${missing}`);
  const figure = (/** @type {string} */ label, /** @type {Rank|undefined} */ rank) => h("div", { class: "figure" },
    h("span", { class: "figure-label" }, label), h("span", { class: "figure-value" }, rank ? formatBytes(rank.bytes) : "–"),
    h("span", { class: "figure-note" }, rank ? rank.name : ""));
  const sorted = report.ranks.slice().sort((a, b) => b.bytes - a.bytes);
  return h("header", { class: "head" },
    h("div", { class: "brand" }, h("span", {}, "vramscope"), h("span", { class: "facts" }, facts.join("  ·  "))),
    h("h1", {}, report.ranks.length > 0 ? imbalance.charAt(0).toUpperCase() + imbalance.slice(1) : "No process has memory in these recordings"),
    h("div", { class: "figures" }, figure("Heaviest", sorted[0]), figure("Median", report.ranks.find(({ name }) => name === report.median)),
      figure("Lightest", sorted[sorted.length - 1])));
}

/** @param {RankReport} report */
function makeRanks(report) {
  const median = report.ranks.find(({ name }) => name === report.median)?.bytes ?? 0;
  const most = (/** @type {Rank} */ { categories }) => Object.entries(categories).sort((a, b) => b[1] - a[1])[0] ?? ["", 0];
  /** @type {DataTable<Rank>} */
  const table = new DataTable("Ranks", [
    { name: "Rank", text: true, value: ({ name }) => name },
    { name: "Host", text: true, value: ({ host }) => host },
    { name: "Process", value: ({ pid }) => pid },
    { name: "On", text: true, value: ({ on }) => on },
    { name: "Peak", value: ({ bytes }) => bytes, show: ({ bytes }) => formatBytes(bytes) },
    { name: "Of its device", value: ({ bytes, total_bytes: total }) => bytes / Math.max(1, total), show: ({ bytes, total_bytes: total }) => formatShare(bytes, total) },
    ...(report.median === null ? [] : [{ name: "Over the median", title: "Bytes more than the median rank",
      value: (/** @type {Rank} */ { bytes }) => bytes - median, show: (/** @type {Rank} */ { bytes }) => formatSignedBytes(bytes - median) }]),
    { name: "Peak at", title: "Time of its peak, from the begin of the first recording", value: ({ peak_wall_ns: at }) => at - report.first_wall_ns,
      show: ({ peak_wall_ns: at }) => formatTime(at - report.first_wall_ns) },
    { name: "Largest category", text: true, value: (rank) => most(rank)[0], show: (rank) => `${most(rank)[0]} ${formatBytes(most(rank)[1])}` },
  ], { sorted: 4 });
  table.render(report.ranks, "");
  return card("Ranks", "peak of its GPU; of the rank itself if several share a GPU", table);
}

/** @param {RankReport} report */
function makeExcess(report) {
  /** @type {DataTable<Excess>} */
  const table = new DataTable("Excess of the heaviest rank", [
    { name: "Layer", text: true, value: ({ layer }) => layer || "(other)" },
    { name: "Category", text: true, value: ({ category }) => category },
    { name: "More", value: ({ bytes }) => bytes, show: ({ bytes }) => formatSignedBytes(bytes) },
  ], { sorted: 2, folding: {
    describe: ({ layer, category, bytes }) => ({ name: layer ?? "", type: category, bytes, holds: category }),
    sum: (name, all) => ({ layer: name, category: all[0].category, bytes: all.reduce((sum, { bytes }) => sum + bytes, 0) }),
  } });
  table.render(report.excess, "Nothing.");
  return card(`Excess of ${report.heaviest} over ${report.median}`, "by category; with the layer if one layer has most of it", table);
}

/** @param {RankReport} report */
function makeCategories(report) {
  const of = (/** @type {string|null} */ wanted, /** @type {string} */ category) =>
    report.ranks.find(({ name }) => name === wanted)?.categories[category] ?? 0;
  const bytes = (/** @type {string} */ name, /** @type {"all"|"median"|"heaviest"|"least"|"most"} */ key) => ({
    name, value: (/** @type {Category} */ row) => row[key], show: (/** @type {Category} */ row) => formatBytes(row[key]) });
  /** @type {DataTable<Category>} */
  const table = new DataTable("Categories", [
    { name: "Category", text: true, value: ({ name }) => name },
    bytes("Sum", "all"),
    ...(report.median === null ? [] : [bytes(`Median: ${report.median}`, "median"), bytes(`Heaviest: ${report.heaviest}`, "heaviest")]),
    bytes("Lowest rank", "least"), bytes("Highest rank", "most"),
  ], { sorted: 1 });
  table.render(Object.entries(report.categories).map(([name, all]) => {
    const each = report.ranks.map(({ categories }) => categories[name] ?? 0);
    return { name, all, median: of(report.median, name), heaviest: of(report.heaviest, name),
      least: each.reduce((a, b) => Math.min(a, b), Infinity), most: each.reduce((a, b) => Math.max(a, b), 0) };
  }), "");
  return card("Categories", "all ranks, each at its peak", table);
}

/**
 * @template Item
 * @param {string} title
 * @param {string} hint
 * @param {DataTable<Item>} table
 */
function card(title, hint, table) {
  return h("section", { class: "card", "aria-label": title },
    h("div", { class: "card-head" }, h("h2", {}, title), h("span", { class: "hint" }, hint), table.copy), table.element);
}

/**
 * @param {Page} page
 * @param {HTMLElement} main
 */
function start(page, main) {
  const { report } = page;
  main.append(makeHead(page));
  if (report.ranks.length > 0) {
    const histories = new RankHistories(page);
    main.append(histories.element, ...(report.excess.length > 0 ? [makeExcess(report)] : []), makeRanks(report), makeCategories(report));
  }
  const notes = [
    ...(report.processes_without_memory === 0 ? [] : [`Processes without device memory, not listed: ${formatCount(report.processes_without_memory)}.`]),
    ...(report.starts_apart_ns === 0 ? [] : [`Time between the first and the last start (host clocks): ${formatTime(report.starts_apart_ns)}.`]),
    ...report.unread.map((why) => `Not read: ${why}`),
  ];
  main.append(h("footer", { class: "foot" }, h("ul", {}, ...notes.map((note) => h("li", {}, note)))));
}

drawPage(start);
