// SPDX-License-Identifier: Apache-2.0
// The line that stays in sight: which instant is shown, what filters the page, and how to filter it.
import { formatBytes, formatTime } from "./format.js";
import { deviceLabel } from "./header.js";
import { h, swatch } from "./dom.js";
import { NO_MODULE } from "./names.js";
import { UNFILTERED } from "./state.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").Store} Store */
/** @typedef {import("./state.js").State} State */
/** @typedef {import("./view.js").View} View */

const SIZES = [0, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 2 ** 30];
// More categories than these are told by their number.
const NAMED = 3;

export class Controls {
  /**
   * @param {Model} model
   * @param {Store} store
   */
  constructor(model, store) {
    this.model = model;
    this.store = store;
    this.instant = h("p", { class: "instant", role: "status" });
    this.back = h("button", {
      class: "chip action", type: "button", click: () => store.set({ at: null }),
    }, "Back to peak");
    this.chips = h("div", { class: "filters", role: "group", "aria-label": "Filters" });
    this.size = /** @type {HTMLSelectElement} */ (h("select", {
      class: "size", "aria-label": "Smallest allocation shown",
      change: () => store.set({ min: Number(this.size.value) }),
    }));
    this.input = /** @type {HTMLInputElement} */ (h("input", {
      type: "search", placeholder: "Find line, function, module …", "aria-label": "Search",
      value: store.state.search, spellcheck: "false", autocomplete: "off",
      input: () => store.set({ search: this.input.value }),
      keydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Escape") store.set({ search: "" });
      },
    }));
    this.element = h("div", { class: "controls" },
      h("div", { class: "controls-line" }, this.instant, this.back, h("span", { class: "grow" }), this.size,
        h("label", { class: "search" }, this.input, h("kbd", {}, "/"))),
      this.chips);
    window.addEventListener("keydown", (event) => {
      const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
      if (event.key !== "/" || event.ctrlKey || event.metaKey || typing) return;
      event.preventDefault();
      this.input.focus();
      this.input.select();
    });
  }

  /** @param {View} view */
  render(view) {
    const { state } = this.store;
    const device = this.model.page.devices[view.device];
    const name = this.model.page.devices.length > 1 ? `${deviceLabel(device)} ` : "";
    const iteration = this.model.iterationAt(view.at);
    const parts = [h("span", {}, view.atPeak ? `${name}at its peak, ` : `${name}at `, h("b", {}, formatTime(view.at)),
      iteration === null ? "" : `, iteration ${iteration}`, ": ", h("b", {}, formatBytes(view.total)), " live")];
    if (view.filter.on) parts.push(h("span", { class: "matching" }, h("b", {}, formatBytes(view.bytes)), " shown"));
    this.instant.replaceChildren(h("span", { class: "dot" }), ...parts);
    this.back.classList.toggle("gone", view.atPeak);
    if (this.input.value !== state.search) this.input.value = state.search;
    const sizes = SIZES.includes(state.min) ? SIZES : [...SIZES, state.min].sort((a, b) => a - b);
    this.size.replaceChildren(...sizes.map((size) => h("option", { value: size, selected: size === state.min },
      size === 0 ? "any size" : `≥ ${formatBytes(size).replace(/\.0+ /, " ")}`)));
    this.renderChips(state);
  }

  /** @param {State} state */
  renderChips(state) {
    const chips = [];
    const chip = (/** @type {(Node|string)[]} */ content, /** @type {string} */ what, /** @type {Partial<State>} */ without) =>
      chips.push(h("button", { class: "chip", type: "button", title: `Remove this filter: ${what}`, click: () => this.store.set(without) },
        ...content, h("span", { class: "cross", "aria-hidden": "true" }, "×")));
    const { categories, module, path, search, min } = state;
    if (categories.length > NAMED) chip([h("b", {}, `${categories.length} categories`)], categories.join(", "), { categories: [] });
    else {
      for (const name of categories) {
        const category = this.model.categoryIndex.get(name);
        chip([category === undefined ? "" : swatch(category), h("b", {}, name)], name,
          { categories: categories.filter((other) => other !== name) });
      }
    }
    if (module !== null) chip(["module ", h("b", {}, module || NO_MODULE)], module || NO_MODULE, { module: null });
    if (path) chip(["ledger ", h("b", {}, path.slice(-2).join(" › "))], path.join(" › "), { path: null });
    if (search.trim()) chip(["text ", h("b", {}, search)], search, { search: "" });
    if (min > 0) chip(["size ", h("b", {}, `≥ ${formatBytes(min)}`)], formatBytes(min), { min: 0 });
    if (chips.length > 0) {
      chips.push(h("button", { class: "quiet clear", type: "button", click: () => this.store.set({ ...UNFILTERED, focus: [] }) },
        "Clear filters"));
    }
    this.chips.replaceChildren(...chips);
    this.chips.classList.toggle("gone", chips.length === 0);
  }
}
