// SPDX-License-Identifier: Apache-2.0
// The sticky line: the chosen instant, and the filters of the page.
import { formatBytes, formatCount, formatInstant, formatTime } from "../base/format.js";
import { copying } from "../dom/clipboard.js";
import { commandOf, instantOf } from "../dom/command.js";
import { deviceLabel } from "./header.js";
import { openHelp } from "../dom/help.js";
import { h, roving, setAttribute, setText, swatch } from "../dom/dom.js";
import { NO_MODULE } from "../base/names.js";
import { UNFILTERED } from "../model/state.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/state.js").State} State */
/** @typedef {import("../model/view.js").View} View */

const SIZES = [0, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 2 ** 30];
// Above this, the chip shows only the number of categories.
const NAMED = 3;

export class Controls {
  /**
   * @param {Model} model
   * @param {Store} store
   */
  constructor(model, store) {
    this.model = model;
    this.store = store;
    /** The filters that the chips show. */
    this.shownChips = "";
    this.where = h("span", {});
    this.time = h("b", {});
    this.iteration = h("span", {});
    this.live = h("b", {});
    this.free = h("span", {});
    this.what = h("span", {}, this.where, this.time, this.iteration, ": ", this.live, this.free);
    this.nearest = h("p", { class: "nearest gone", role: "status" });
    this.matching = h("b", {});
    this.matches = h("span", { class: "matching" }, this.matching, " shown");
    this.instant = h("p", { class: "instant", role: "status" }, h("span", { class: "dot", "aria-hidden": "true" }), this.what, this.matches);
    this.back = h("button", {
      class: "chip action", type: "button", click: () => store.set({ at: null }),
    }, "Back to peak");
    this.allocated = h("button", {
      class: "chip action", type: "button", title: "Go to the instant with the most allocated memory, without cache and driver (--at allocated-peak)",
      click: () => store.set({ at: model.allocatedPeak(store.state.device), zoom: null }),
    }, "Allocated peak");
    this.refused = h("button", {
      class: "chip bad", type: "button", title: "Go to the first failed request for memory",
      click: () => store.set({ at: model.outOfMemory[store.state.device][0].t, zoom: null }),
    }, "Out of memory");
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
    const command = copying("Copy command", "Copy the vramscope command that prints this view",
      () => (this.view ? commandOf(model, store.state, this.view) : ""));
    const help = h("button", { class: "chip round", type: "button", title: "Keys and words (?)", "aria-label": "Help: keys and words", click: openHelp }, "?");
    this.element = h("div", { class: "controls", role: "region", "aria-label": "Instant and filters" },
      h("div", { class: "controls-line" }, this.instant, this.back, this.allocated, this.refused, command, h("span", { class: "grow" }), help, this.size,
        h("label", { class: "search" }, this.input, h("kbd", {}, "/"))),
      this.nearest, this.chips);
    roving(/** @type {HTMLElement} */ (this.element.firstElementChild));
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
    this.view = view;
    setText(this.where, this.model.page.instant ? name.trim() : view.atPeak ? `${name}at its peak, ` : `${name}at `);
    setText(this.time, this.model.page.instant ? "" : formatTime(view.at));
    setAttribute(this.time, "title", `${formatInstant(view.at)} from the start, --at @${instantOf(this.model.page, view.at)}`);
    const between = Math.round(view.asked) !== view.at;
    setText(this.nearest, between ? `The page shows ${formatInstant(view.at)} instead of ${formatInstant(view.asked)}: it is the nearest of the ` +
      `${formatCount(this.model.instants?.length ?? 0)} instants with exact figures.` : "");
    this.nearest.classList.toggle("gone", !between);
    setText(this.iteration, iteration === null ? "" : `, iteration ${iteration}`);
    setText(this.live, formatBytes(view.total));
    setText(this.free, view.free > 0 ? ` in use, ${formatBytes(view.free)} of it free in segments` : " in use");
    setText(this.matching, formatBytes(view.bytes));
    this.matches.classList.toggle("gone", !view.filter.on);
    this.back.classList.toggle("gone", view.atPeak);
    const allocated = this.model.allocatedPeak(view.device);
    this.allocated.classList.toggle("gone", allocated === null || allocated === view.at);
    this.refused.classList.toggle("gone", this.model.outOfMemory[view.device].length === 0);
    if (this.input.value !== state.search) this.input.value = state.search;
    if (this.size.value !== String(state.min)) this.renderSizes(state.min);
    this.renderChips(state);
  }

  /** @param {number} min */
  renderSizes(min) {
    const sizes = SIZES.includes(min) ? SIZES : [...SIZES, min].sort((a, b) => a - b);
    this.size.replaceChildren(...sizes.map((size) => h("option", { value: size, selected: size === min },
      size === 0 ? "any size" : `≥ ${formatBytes(size).replace(/\.0+ /, " ")}`)));
  }

  /** @param {State} state */
  renderChips(state) {
    const shown = JSON.stringify([state.categories, state.module, state.path, state.search, state.min]);
    if (shown === this.shownChips) return;
    this.shownChips = shown;
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
