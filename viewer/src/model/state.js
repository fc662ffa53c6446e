// SPDX-License-Identifier: Apache-2.0
// The reader's choices. The fragment of the address contains them, so that a view can be bookmarked and sent:
// #device=0&at=3214000000&q=forward&cat=activation|gradient&mod=h.3&zoom=0-1000
import { ORDERS } from "./tree_paths.js";

/**
 * @typedef {object} State
 * @property {number} device
 * @property {number|null} at Nanoseconds from the start; null: the device's peak.
 * @property {[number, number]|null} zoom Window of the timeline; null: all.
 * @property {string} search
 * @property {string[]} categories The shown categories; empty: all.
 * @property {string|null} module Only this module and its children; "": memory without a module.
 * @property {string[]|null} path Only this branch of the ledger.
 * @property {number} min Only allocations of at least this many bytes.
 * @property {import("./tree_paths.js").Order} by The order of the icicle.
 * @property {string[]} focus Labels of the zoomed node of the icicle.
 * @property {boolean} mine Hide frames of libraries.
 * @property {Tab} tab The open tab.
 * @property {number|null} base The baseline for comparisons.
 */

/** @typedef {"lifetimes"|"space"|"changes"|"iterations"|"leaks"|"devices"} Tab */

/** @type {Tab[]} */
const TABS = ["lifetimes", "space", "changes", "iterations", "leaks", "devices"];

// The fragment's name for a timeline without zoom.
const WHOLE = "all";

/**
 * No filter.
 * @type {Pick<State, "search"|"categories"|"module"|"path"|"min">}
 */
export const UNFILTERED = { search: "", categories: [], module: null, path: null, min: 0 };

/**
 * Escapes `|` in names, because it separates names.
 * @param {string} text
 */
const quote = (text) => text.replace(/[%|]/g, (c) => (c === "%" ? "%25" : "%7C"));

/** @param {string} text */
const unquote = (text) => text.replace(/%7C/g, "|").replace(/%25/g, "%");

/** @param {string|null} text */
function number(text) {
  const value = text === null || text === "" ? NaN : Number(text);
  return Number.isFinite(value) ? value : null;
}

/**
 * The defaults for choices that the fragment does not contain.
 * @typedef {Pick<State, "device"|"by"|"zoom">} Usual
 */

/**
 * The state of a fragment. Missing and invalid choices have their defaults.
 * @param {string} hash
 * @param {{devices: number, duration: number}} limits
 * @param {Usual} usual
 * @returns {State}
 */
export function parseHash(hash, limits, usual) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const device = number(fields.get("device"));
  const at = number(fields.get("at"));
  const window = (fields.get("zoom") ?? "").split("-").map(number);
  const [from, to] = window;
  const list = (/** @type {string} */ name) => (fields.get(name) ? (fields.get(name) ?? "").split("|").map(unquote) : []);
  const min = number(fields.get("min"));
  const base = number(fields.get("base"));
  const order = ORDERS.find((other) => other.order === fields.get("by"));
  const zoomed = window.length === 2 && from !== null && to !== null && from >= 0 && to > from &&
    to <= limits.duration;
  return {
    device: device !== null && Number.isInteger(device) && device >= 0 && device < limits.devices
      ? device : usual.device,
    at: at !== null && at >= 0 && at <= limits.duration ? at : null,
    zoom: zoomed ? [from, to] : fields.get("zoom") === WHOLE ? null : usual.zoom,
    search: fields.get("q") ?? "",
    categories: list("cat"),
    module: fields.get("mod"),
    path: fields.get("path") ? list("path") : null,
    min: min !== null && min > 0 ? min : 0,
    by: order ? order.order : usual.by,
    focus: list("in"),
    mine: fields.get("mine") === "1",
    tab: TABS.find((tab) => tab === fields.get("tab")) ?? TABS[0],
    base: base !== null && base >= 0 && base <= limits.duration ? base : null,
  };
}

/** @param {string[]} names */
const join = (names) => names.map(quote).join("|");

/**
 * @param {State} state
 * @param {Usual} usual
 */
export function formatHash(state, usual) {
  const fields = new URLSearchParams();
  if (state.device !== usual.device) fields.set("device", String(state.device));
  if (state.at !== null) fields.set("at", String(Math.round(state.at)));
  if (String(state.zoom) !== String(usual.zoom)) fields.set("zoom", state.zoom ? state.zoom.map(Math.round).join("-") : WHOLE);
  if (state.search !== "") fields.set("q", state.search);
  if (state.categories.length > 0) fields.set("cat", join(state.categories));
  if (state.module !== null) fields.set("mod", state.module);
  if (state.path) fields.set("path", join(state.path));
  if (state.min > 0) fields.set("min", String(state.min));
  if (state.by !== usual.by) fields.set("by", state.by);
  if (state.focus.length > 0) fields.set("in", join(state.focus));
  if (state.mine) fields.set("mine", "1");
  if (state.tab !== TABS[0]) fields.set("tab", state.tab);
  if (state.base !== null) fields.set("base", String(Math.round(state.base)));
  return fields.toString();
}

/**
 * Compares lists by their elements.
 * @param {unknown} a
 * @param {unknown} b
 */
function isSame(a, b) {
  if (!Array.isArray(a) || !Array.isArray(b)) return a === b;
  return a.length === b.length && a.every((each, at) => each === b[at]);
}

export class Store {
  /** @param {State} state */
  constructor(state) {
    this.state = state;
    /** @type {((state: State, changed: Set<keyof State>) => void)[]} */
    this.listeners = [];
  }

  /** @param {(state: State, changed: Set<keyof State>) => void} listener */
  subscribe(listener) {
    this.listeners.push(listener);
  }

  /** @param {Partial<State>} change */
  set(change) {
    const keys = /** @type {(keyof State)[]} */ (Object.keys(change));
    const changed = new Set(keys.filter((key) => !isSame(this.state[key], change[key])));
    if (changed.size === 0) return;
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener(this.state, changed);
  }
}
