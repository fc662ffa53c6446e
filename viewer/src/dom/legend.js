// SPDX-License-Identifier: Apache-2.0
// The legend above the timeline. Its names are switches: only chosen categories are shown.
import { h, roving, swatch } from "./dom.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/history.js").History} History */
/** @typedef {import("../model/history.js").Line} Line */

/**
 * Adds or removes a chosen category. If all are chosen, the filter is off.
 * @param {Store} store
 * @param {string} name
 */
export function toggleCategory(store, name) {
  const { categories } = store.state;
  store.set({ categories: categories.includes(name) ? categories.filter((other) => other !== name) : [...categories, name] });
}

/** @param {Line} line */
export function lineSwatch(line) {
  return h("span", { class: line.name === "NVML" ? "line-swatch" : "line-swatch dashed" });
}

/**
 * A counter's name without its scopes.
 * @param {Line} line
 */
export function lineLabel({ name }) {
  return name.slice(name.lastIndexOf("/") + 1);
}

export class Legend {
  /**
   * @param {Model} model
   * @param {Store} store
   * @param {() => void} toggled Called when a counter is shown or hidden.
   */
  constructor(model, store, toggled) {
    this.model = model;
    this.store = store;
    this.toggled = toggled;
    /** @type {Set<Line>} The counters that are shown: at first the one with the highest peak. */
    this.counters = new Set();
    this.element = h("div", { class: "legend-line", role: "toolbar", "aria-label": "Categories" });
    roving(this.element);
    /** @type {{name: string, button: HTMLElement}[]} */
    this.chips = [];
    /** @type {HTMLElement[]} NVML's and the counters'. */
    this.lines = [];
  }

  /** @param {History} history */
  show(history) {
    const present = this.model.categories.map((name, category) => ({ name, category }))
      .filter(({ category }) => history.present[category] === 1);
    this.chips = present.map(({ name, category }) => ({
      name, button: h("button", {
        class: "legend-chip", type: "button", tabindex: -1, title: `Show only ${name}; click others to add them`,
        click: () => toggleCategory(this.store, name),
      }, swatch(category), h("span", {}, name)),
    }));
    this.element.replaceChildren(...this.chips.map(({ button }) => button));
    this.counters = new Set(history.counters.filter(({ pid }) => pid !== undefined).slice(0, 1));
    this.lines = history.counters.map((line) => this.counterChip(line));
    if (history.nvml.time.length > 0) {
      this.lines.unshift(h("span", { class: "legend-chip" }, lineSwatch(history.nvml), "NVML"));
    }
    this.element.append(...this.lines);
    this.choose(false);
  }

  /** @param {Line} line */
  counterChip(line) {
    const chip = h("button", {
      class: "legend-chip", type: "button", tabindex: -1, title: line.pid === undefined ? "Memory of the program's processes on the host, and of their control group" : `NVTX counter ${line.name} of pid ${line.pid}`, "aria-pressed": String(this.counters.has(line)),
      click: () => {
        if (!this.counters.delete(line)) this.counters.add(line);
        chip.setAttribute("aria-pressed", String(this.counters.has(line)));
        this.toggled();
      },
    }, lineSwatch(line), h("span", {}, lineLabel(line)));
    return chip;
  }

  /**
   * Shows the chosen categories. Lines are only comparable without a filter.
   * @param {boolean} filtered
   */
  choose(filtered) {
    const { categories } = this.store.state;
    for (const line of this.lines) line.classList.toggle("dim", filtered);
    for (const { name, button } of this.chips) {
      const chosen = categories.includes(name);
      button.setAttribute("aria-pressed", String(chosen));
      button.classList.toggle("dim", categories.length > 0 && !chosen);
    }
  }
}
