// SPDX-License-Identifier: Apache-2.0
// What the reader has chosen, kept in the address's fragment so that a view can be bookmarked and
// sent: #device=0&at=3214000000&q=forward&only=activation&zoom=0-1000

/**
 * What narrows the views below the timeline: one category, or one branch of the ledger.
 * @typedef {{category: string} | {path: string[]}} Only
 */

/**
 * @typedef {object} State
 * @property {number} device
 * @property {number|null} at Nanoseconds from the start; null: the device's peak.
 * @property {string} search
 * @property {Only|null} only
 * @property {[number, number]|null} zoom Window of the timeline; null: all.
 * @property {boolean} mine Hide frames of libraries.
 */

/**
 * Keeps `|` of a path apart from `|` in a name.
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
 * The state that a fragment asks for; what it does not name, or names wrongly, is at its default.
 * @param {string} hash
 * @param {{devices: number, duration: number, device: number}} limits
 * @returns {State}
 */
export function parseHash(hash, limits) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const device = number(fields.get("device"));
  const at = number(fields.get("at"));
  const window = (fields.get("zoom") ?? "").split("-").map(number);
  const [from, to] = window;
  const path = fields.get("path");
  const category = fields.get("only");
  const zoomed = window.length === 2 && from !== null && to !== null && from >= 0 && to > from &&
    to <= limits.duration;
  return {
    device: device !== null && Number.isInteger(device) && device >= 0 && device < limits.devices
      ? device : limits.device,
    at: at !== null && at >= 0 && at <= limits.duration ? at : null,
    search: fields.get("q") ?? "",
    only: path ? { path: path.split("|").map(unquote) } : category ? { category } : null,
    zoom: zoomed ? [from, to] : null,
    mine: fields.get("mine") === "1",
  };
}

/**
 * @param {State} state
 * @param {number} device The device that is chosen where the fragment names none.
 */
export function formatHash(state, device) {
  const fields = new URLSearchParams();
  if (state.device !== device) fields.set("device", String(state.device));
  if (state.at !== null) fields.set("at", String(Math.round(state.at)));
  if (state.search !== "") fields.set("q", state.search);
  if (state.only && "path" in state.only) fields.set("path", state.only.path.map(quote).join("|"));
  if (state.only && "category" in state.only) fields.set("only", state.only.category);
  if (state.zoom) fields.set("zoom", state.zoom.map(Math.round).join("-"));
  if (state.mine) fields.set("mine", "1");
  return fields.toString();
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
    const changed = new Set(keys.filter((key) => this.state[key] !== change[key]));
    if (changed.size === 0) return;
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener(this.state, changed);
  }
}
