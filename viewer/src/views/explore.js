// SPDX-License-Identifier: Apache-2.0
// Other views of the same memory as tabs: lifetimes, address space, changes, iterations, leaks. Only the open one is
// drawn.
import { AddressSpace } from "./address_space.js";
import { ChangesView } from "./changes.js";
import { Choice } from "../dom/choice.js";
import { DevicesView, hasSeveral } from "./devices.js";
import { h } from "../dom/dom.js";
import { IterationsView, LeaksView } from "./findings.js";
import { Lifetimes } from "./lifetimes.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/palette.js").Palette} Palette */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/view.js").View} View */
/** @typedef {{element: HTMLElement, hint: string, copy: HTMLElement, render: (view: View) => void, choosing?: (view: View) => Iterator<void>}} Tab `choosing`: work to do before, in steps. */

/** @type {[import("../model/state.js").Tab, string][]} */
const TABS = [["lifetimes", "Lifetimes"], ["space", "Address space"], ["changes", "Changes"], ["iterations", "Iterations"], ["leaks", "Leaks"],
  ["devices", "Devices"]];

export class Explore {
  /**
   * @param {Model} model
   * @param {Palette} palette
   * @param {Store} store
   */
  constructor(model, palette, store) {
    this.store = store;
    /** @type {Record<import("../model/state.js").Tab, () => Tab>} */
    this.makers = {
      lifetimes: () => new Lifetimes(model, palette, store), space: () => new AddressSpace(model, palette),
      changes: () => new ChangesView(model, store), iterations: () => new IterationsView(model, store), leaks: () => new LeaksView(model, store),
      devices: () => new DevicesView(model, palette, store),
    };
    /** @type {Map<string, Tab>} Those that were looked at. */
    this.made = new Map();
    const tabs = TABS.filter(([tab]) => tab !== "devices" || hasSeveral(model));
    this.tabs = new Choice("View", tabs.map(([tab, name]) => [tab, tab === "devices" && model.page.devices.length === 1 ? "Processes" : name]),
      (tab) => store.set({ tab: /** @type {import("../model/state.js").Tab} */ (tab) }), "tab");
    this.hint = h("span", { class: "hint" });
    this.copy = h("span", {});
    this.panel = h("div", { role: "tabpanel", class: "tab-panel" });
    this.element = h("section", { class: "card", "aria-label": "Explore" },
      h("div", { class: "card-head" }, this.tabs.element, this.hint, this.copy), this.panel);
  }

  shown() {
    const { tab } = this.store.state;
    let shown = this.made.get(tab);
    if (!shown) this.made.set(tab, shown = this.makers[tab]());
    return shown;
  }

  /**
   * The slow part of render(), done before it.
   * @param {View} view
   * @returns {import("../base/parts.js").Part}
   */
  preparing(view) {
    /** @type {Iterator<void>|undefined} */
    let steps;
    return () => {
      steps = steps ?? this.shown().choosing?.(view);
      return steps !== undefined && !steps.next().done;
    };
  }

  /** @param {View} view */
  render(view) {
    const { tab } = this.store.state;
    const shown = this.shown();
    this.tabs.show(tab);
    this.panel.setAttribute("aria-labelledby", `tab-${tab}`);
    this.hint.textContent = shown.hint;
    if (this.panel.firstElementChild !== shown.element) {
      this.panel.replaceChildren(shown.element);
      this.copy.replaceChildren(shown.copy);
    }
    shown.render(view);
  }

  /** Draws again after the colours changed. */
  paint() {
    const shown = this.made.get(this.store.state.tab);
    if (shown && "paint" in shown) /** @type {{paint: () => void}} */ (shown).paint();
  }
}
