// SPDX-License-Identifier: Apache-2.0
// The legend above the timeline. Its names are switches: only chosen categories are shown.
import { h, roving, swatch } from "./dom.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/history.js").History} History */

/**
 * Adds or removes a chosen category. If all are chosen, the filter is off.
 * @param {Store} store
 * @param {string} name
 */
export function toggleCategory(store, name) {
  const { categories } = store.state;
  store.set({ categories: categories.includes(name) ? categories.filter((other) => other !== name) : [...categories, name] });
}

export class Legend {
  /**
   * @param {Model} model
   * @param {Store} store
   */
  constructor(model, store) {
    this.model = model;
    this.store = store;
    this.element = h("div", { class: "legend-line", role: "toolbar", "aria-label": "Categories" });
    roving(this.element);
    /** @type {{name: string, button: HTMLElement}[]} */
    this.chips = [];
    /** @type {HTMLElement|null} */
    this.nvml = null;
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
    if (history.nvmlTime.length > 0) {
      this.nvml = h("span", { class: "legend-chip" }, h("span", { class: "line-swatch" }), "NVML");
      this.element.append(this.nvml);
    }
    this.choose(false);
  }

  /**
   * Shows the chosen categories. NVML's line is only comparable without a filter.
   * @param {boolean} filtered
   */
  choose(filtered) {
    const { categories } = this.store.state;
    this.nvml?.classList.toggle("dim", filtered);
    for (const { name, button } of this.chips) {
      const chosen = categories.includes(name);
      button.setAttribute("aria-pressed", String(chosen));
      button.classList.toggle("dim", categories.length > 0 && !chosen);
    }
  }
}
