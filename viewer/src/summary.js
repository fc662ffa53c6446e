// SPDX-License-Identifier: Apache-2.0
// The answer in short: what the memory is for, which layers and which lines have it.
import { formatBytes, formatExact, formatShare, formatSignedBytes } from "./format.js";
import { h, marked, swatch, tip } from "./dom.js";
import { toggleCategory } from "./legend.js";
import { shareBar } from "./treetable.js";
import { heaviest } from "./view.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").Store} Store */
/** @typedef {import("./view.js").View} View */
/** @typedef {import("./view.js").Entry} Entry */

const LISTED = 10;

export class Summary {
  /**
   * @param {Model} model
   * @param {Store} store
   */
  constructor(model, store) {
    this.model = model;
    this.store = store;
    this.bar = h("div", { class: "bar", role: "group", "aria-label": "Bytes by category" });
    this.categories = h("div", { class: "brief-list" });
    this.layers = h("div", { class: "brief-list" });
    this.lines = h("div", { class: "brief-list" });
    this.title = h("h2", {});
    const layers = model.kinds.module.some((module) => module !== 0);
    const block = (/** @type {string} */ name, /** @type {HTMLElement} */ list) =>
      h("section", { class: "brief", "aria-label": name }, h("h3", {}, name), list);
    this.element = h("section", { class: "card", "aria-label": "Summary" },
      h("div", { class: "card-head" }, this.title,
        h("span", { class: "hint" }, "click a name to see only it, everywhere on the page")),
      this.bar,
      h("div", { class: layers ? "briefs" : "briefs one" },
        block(model.byPlace ? "Categories, layers and places" : "Categories", this.categories),
        layers ? block("Heaviest layers", this.layers) : null,
        h("section", { class: "brief wide", "aria-label": "Heaviest lines" }, h("h3", {}, "Heaviest lines, live allocations"), this.lines)));
  }

  /** @param {View} view */
  render(view) {
    this.title.textContent = view.atPeak ? "What holds the peak" : "What was live then";
    this.renderCategories(view);
    const { model, store } = this;
    const most = heaviest(model, view, (kind) => model.kinds.module[kind]);
    this.fill(this.layers, most, view, ({ id, bytes }) => {
      const module = model.page.names[id];
      return {
        name: module, more: model.page.module_types[module] ?? "", chosen: store.state.module === module, title: `${module}, ${formatExact(bytes)} of its own`,
        click: () => store.set({ module: store.state.module === module ? null : module }),
      };
    });
    const lines = heaviest(model, view, (kind) => (model.page.sites.held[kind] === 1 ? model.kinds.line[kind] : 0));
    this.fill(this.lines, lines, view, ({ id, bytes, stack }) => {
      const place = model.page.names[id];
      const frame = model.frames[model.placeOf(stack)];
      return {
        name: place, more: frame.source, chosen: store.state.search === place, title: `${frame.file}:${frame.line}\n${formatExact(bytes)}`,
        click: () => store.set({ search: store.state.search === place ? "" : place }),
      };
    });
  }

  /**
   * @param {HTMLElement} list
   * @param {Entry[]} entries
   * @param {View} view
   * @param {(entry: Entry) => {name: string, more: string, title: string, chosen: boolean, click: () => void}} describe
   */
  fill(list, entries, view, describe) {
    const most = entries[0]?.bytes ?? 0;
    const rows = entries.slice(0, LISTED).map((entry) => {
      const { name, more, title, chosen, click } = describe(entry);
      const { needle } = view.filter.search;
      return h("button", { class: "brief-row", type: "button", title, "aria-pressed": String(chosen), click },
        h("span", { class: "brief-name" }, marked(name, needle)), h("span", { class: "brief-more" }, marked(more, needle)),
        h("span", { class: "brief-value" }, formatBytes(entry.bytes)),
        h("span", { class: "brief-share" }, formatShare(entry.bytes, view.bytes)), shareBar(entry, most));
    });
    if (rows.length === 0) rows.push(h("p", { class: "empty" }, "None."));
    if (entries.length > LISTED) {
      const rest = entries.slice(LISTED).reduce((sum, entry) => sum + entry.bytes, 0);
      rows.push(h("p", { class: "brief-rest" }, `and ${entries.length - LISTED} others, ${formatBytes(rest)}`));
    }
    list.replaceChildren(...rows);
  }

  /** @param {View} view */
  renderCategories(view) {
    const { filter } = view;
    const all = view.byCategory.reduce((sum, bytes) => sum + bytes, 0);
    // The sample belongs to the whole device.
    const residual = view.nvml === null || filter.narrows ? null : view.nvml - view.total;
    const whole = Math.max(1, all + Math.max(0, residual ?? 0));
    const bar = [];
    const list = [];
    for (const [category, name] of this.model.categories.entries()) {
      const bytes = view.byCategory[category];
      if (bytes <= 0) continue;
      const chosen = filter.byCategory && filter.category[category] === 1;
      const dim = filter.byCategory && !chosen ? " dim" : "";
      const click = () => toggleCategory(this.store, name);
      bar.push(h("button", {
        class: `segment${dim}`, type: "button", "aria-pressed": String(chosen), tabindex: -1, click,
        "aria-label": `${name}: ${formatBytes(bytes)}, ${formatShare(bytes, all)}`,
        style: `flex-grow:${bytes / whole};background:var(--c${category})`,
        pointermove: (/** @type {PointerEvent} */ event) => tip.show(event.clientX, event.clientY,
          h("div", { class: "tip-head" }, h("span", {}, name), h("b", {}, formatBytes(bytes))),
          h("div", {}, `${formatShare(bytes, all)} of ${formatBytes(all)} · ${formatExact(bytes)}`)),
        pointerleave: () => tip.hide(),
      }));
      list.push({ bytes, row: h("button", {
        class: `brief-row key${dim}`, type: "button", "aria-pressed": String(chosen), title: `${name}, ${formatExact(bytes)}`, click,
      }, swatch(category), h("span", { class: "brief-name" }, name),
      h("span", { class: "brief-value" }, formatBytes(bytes)),
      h("span", { class: "brief-share" }, formatShare(bytes, all))) });
    }
    const rows = list.sort((a, b) => b.bytes - a.bytes).map(({ row }) => row);
    if (residual !== null) {
      if (residual > 0) bar.push(h("span", { class: "segment residual", style: `flex-grow:${residual / whole}` }));
      rows.push(h("div", { class: "brief-row key", title: `NVML less the ledger: ${formatExact(residual)}` },
        h("span", { class: "swatch residual" }), h("span", { class: "brief-name" }, "residual"),
        h("span", { class: "brief-value" }, formatSignedBytes(residual)),
        h("span", { class: "brief-share" }, formatShare(Math.abs(residual), all))));
    }
    if (rows.length === 0) rows.push(h("p", { class: "empty" }, "None."));
    this.bar.replaceChildren(...bar);
    this.categories.replaceChildren(...rows);
  }
}
