// SPDX-License-Identifier: Apache-2.0
// The line that stays in sight: which instant is shown, what narrows it, and the search.
import { formatBytes, formatTime } from "./format.js";
import { deviceLabel } from "./header.js";
import { h, swatch } from "./dom.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").Store} Store */
/** @typedef {import("./view.js").View} View */

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
    this.only = h("button", {
      class: "chip", type: "button", click: () => store.set({ only: null }),
    });
    this.input = /** @type {HTMLInputElement} */ (h("input", {
      type: "search", placeholder: "Search functions, files, source, levels", "aria-label": "Search",
      value: store.state.search, spellcheck: "false", autocomplete: "off",
      input: () => store.set({ search: this.input.value }),
      keydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Escape") {
          this.input.value = "";
          store.set({ search: "" });
        }
      },
    }));
    this.element = h("div", { class: "controls" }, this.instant, this.back, this.only,
      h("span", { class: "grow" }), h("label", { class: "search" }, this.input, h("kbd", {}, "/")));
    window.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target === this.input) return;
      event.preventDefault();
      this.input.focus();
      this.input.select();
    });
  }

  /** @param {View} view */
  render(view) {
    const { only } = this.store.state;
    const device = this.model.page.devices[view.device];
    const name = this.model.page.devices.length > 1 ? `${deviceLabel(device)} ` : "";
    this.instant.replaceChildren(
      h("span", { class: "dot" }),
      h("span", {}, view.atPeak ? `${name}at its peak, ` : `${name}at `, h("b", {}, formatTime(view.at)),
        ": ", h("b", {}, formatBytes(view.total)), " live"));
    this.back.classList.toggle("hidden", view.atPeak);
    this.only.classList.toggle("hidden", only === null);
    if (only === null) return;
    const label = "path" in only ? only.path.slice(-2).join(" › ") : only.category;
    const category = "category" in only ? this.model.categoryIndex.get(only.category) : undefined;
    this.only.replaceChildren("only ", category === undefined ? "" : swatch(category), h("b", {}, label),
      h("span", { class: "cross", "aria-label": "remove" }, "×"));
  }
}
