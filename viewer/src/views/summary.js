// SPDX-License-Identifier: Apache-2.0
// The short answer: categories, layers and lines with the most memory.
import { formatAllocations, formatBytes, formatCount, formatExact, formatShare, formatSignedBytes } from "../base/format.js";
import { Rows, h, named, roving, setAttribute, setNamed, setText, swatch, tip } from "../dom/dom.js";
import { toggleCategory } from "../dom/legend.js";
import { foldRepeated } from "../base/repeats.js";
import { patchBar, shareBar } from "../dom/treetable.js";
import { heaviest } from "../model/view.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/view.js").View} View */
/** @typedef {import("../model/view.js").Entry} Entry */

/**
 * A line of a list.
 * @typedef {object} Line
 * @property {string} key
 * @property {string} name
 * @property {string} more
 * @property {string} title
 * @property {number} bytes
 * @property {Float64Array} byCategory
 * @property {boolean} chosen
 * @property {boolean|null} open Of a line that has others below it.
 * @property {boolean} inner It stands below one.
 * @property {() => void} click
 */

const LISTED = 10;
// A click shows this many more.
const MORE = 1000;

/** A list of the largest entries, with a button for more. */
class Brief {
  constructor() {
    this.element = h("div", { class: "brief-list" });
    /** @type {Map<string, Line>} By the keys of the rows on the page. */
    this.lines = new Map();
    /** The number of entries that the reader asked for. */
    this.listed = LISTED;
    this.list = new Rows(this.element, (/** @type {Line} */ line) => this.make(line), (row, line) => this.patch(row, line));
    this.empty = h("p", { class: "empty gone" }, "None.");
    this.rest = h("button", { class: "brief-rest more", type: "button", tabindex: -1, click: () => {
      const { length } = (this.given ?? []).filter((line) => !line.inner);
      this.listed = this.listed < length ? this.listed + MORE : LISTED;
      this.draw();
    } });
  }

  /**
   * @param {Line[]} lines
   * @param {View} view
   * @param {number} [whole] What shares are of, where that is not what the view shows.
   */
  render(lines, view, whole = view.bytes) {
    this.given = lines;
    this.view = view;
    this.whole = whole;
    this.draw();
  }

  draw() {
    const lines = this.given ?? [];
    this.most = lines.reduce((most, line) => Math.max(most, line.bytes), 0);
    const outer = lines.filter((line) => !line.inner);
    const last = outer.length <= LISTED + 1 ? undefined : outer[this.listed];
    const shown = last ? lines.slice(0, lines.indexOf(last)) : lines;
    this.lines = new Map(shown.map((line) => [line.key, line]));
    this.list.update(shown.map((line) => [line.key, line]));
    const hidden = outer.slice(this.listed);
    const others = `${formatCount(hidden.length)} others, ${formatBytes(hidden.reduce((sum, line) => sum + line.bytes, 0))}`;
    setText(this.rest, hidden.length === 0 ? `Show the largest ${LISTED}` : `and ${others}`);
    this.rest.classList.toggle("gone", outer.length <= LISTED + 1);
    this.empty.classList.toggle("gone", outer.length > 0);
  }

  /** @param {Line} line */
  make({ key }) {
    return h("button", { class: "brief-row", type: "button", tabindex: -1, click: () => this.lines.get(key)?.click() },
      h("span", { class: "brief-name" }), h("span", { class: "brief-more" }),
      h("span", { class: "brief-value" }), h("span", { class: "brief-share" }), shareBar());
  }

  /**
   * @param {HTMLElement} row
   * @param {Line} line
   */
  patch(row, line) {
    const [name, more, value, share, bar] = row.children;
    const needle = this.view?.filter.search.needle ?? "";
    const opens = line.open !== null;
    setNamed(name, line.name, needle, (text, marks) => {
      const part = named(text, marks);
      if (opens) part.prepend(h("span", { class: "twist", "aria-hidden": "true" }));
      return part;
    });
    setNamed(more, line.more, needle);
    row.classList.toggle("inner", line.inner);
    name.querySelector(".twist")?.classList.toggle("open", line.open === true);
    setAttribute(row, "title", line.title);
    setAttribute(row, "aria-pressed", line.open === null ? String(line.chosen) : null);
    setAttribute(row, "aria-expanded", line.open === null ? null : String(line.open));
    setText(value, formatBytes(line.bytes));
    setText(share, formatShare(line.bytes, this.whole ?? 0));
    // Bytes over the whole run have no categories.
    bar.classList.toggle("none", line.byCategory.length === 0);
    patchBar(bar, line, this.most ?? 0);
  }
}

export class Summary {
  /**
   * @param {Model} model
   * @param {Store} store
   */
  constructor(model, store) {
    this.model = model;
    this.store = store;
    this.bar = h("div", { class: "bar", role: "group", "aria-label": "Bytes by category" });
    this.segments = new Rows(this.bar, (/** @type {number} */ category) => this.makeSegment(category),
      (segment, category) => this.patchSegment(segment, category));
    this.categories = h("div", { class: "brief-list" });
    this.keys = new Rows(this.categories, (/** @type {number} */ category) => this.makeKey(category),
      (row, category) => this.patchKey(row, category));
    this.layers = new Brief();
    this.lines = new Brief();
    this.churn = new Brief();
    /** @type {Set<string>} Repeated layers that are unfolded. */
    this.unfolded = new Set();
    this.title = h("h2", {});
    this.asleep = h("p", { class: "asleep gone" }, h("span", { class: "swatch asleep", "aria-hidden": "true" }), h("span", {}));
    const layers = model.kinds.module.some((module) => module !== 0);
    /** The base of the percentages of each list. */
    this.bases = { categories: h("small", {}), layers: h("small", {}), lines: h("small", {}), churn: h("small", {}) };
    const block = (/** @type {string} */ name, /** @type {string} */ more, /** @type {HTMLElement} */ base, /** @type {(HTMLElement)[]} */ ...parts) =>
      h("section", { class: `brief${more}`, "aria-label": name }, h("h3", {}, name, " ", base), ...parts);
    const of = (/** @type {Brief} */ brief) => [brief.element, brief.empty, brief.rest];
    const briefs = h("div", { class: layers ? "briefs" : "briefs one" },
        block(model.byPlace ? "Categories, layers and places" : "Categories", "", this.bases.categories, this.categories),
        layers ? block("Heaviest layers, own bytes", "", this.bases.layers, ...of(this.layers)) : null,
        block("Heaviest lines, live allocations", " wide", this.bases.lines, ...of(this.lines)),
        model.page.report.top_churn.length > 0
          ? block("Most bytes allocated over the run, freed or not", " wide", this.bases.churn, ...of(this.churn)) : null);
    roving(briefs);
    this.element = h("section", { class: "card", "aria-label": "Summary" },
      h("div", { class: "card-head" }, this.title,
        h("span", { class: "hint" }, "click a name to filter the whole page by it")),
      this.bar, this.asleep, briefs);
  }

  /**
   * The parts that follow the instant while it is dragged.
   * @param {View} view
   */
  renderTotals(view) {
    this.view = view;
    setText(this.title, view.atPeak ? "What holds the peak" : "What is live at this instant");
    this.renderCategories(view);
    this.renderAsleep(view);
  }

  /**
   * Live memory without device memory. The bar does not include it.
   * @param {View} view
   */
  renderAsleep(view) {
    const { bytes, count, byCategory } = view.asleep;
    this.asleep.classList.toggle("gone", count === 0);
    if (count === 0) return;
    const largest = [...byCategory.keys()].filter((category) => byCategory[category] > 0)
      .sort((a, b) => byCategory[b] - byCategory[a]).slice(0, 3)
      .map((category) => `${this.model.categories[category]} ${formatBytes(byCategory[category])}`);
    setText(/** @type {HTMLElement} */ (this.asleep.lastElementChild),
      `Asleep: ${formatBytes(bytes)} in ${formatCount(count)} block${count === 1 ? "" : "s"} have no device memory now: ${largest.join(", ")}`);
    setAttribute(this.asleep, "title", `${formatExact(bytes)}, not included in the device's total`);
  }

  /**
   * @param {View} view
   * @returns {import("../base/parts.js").Part[]}
   */
  parts(view) {
    return [() => this.renderLayers(view), () => this.renderChurn(view), () => this.renderLines(view)];
  }

  /** @param {View} view */
  renderLines(view) {
    const { model, store } = this;
    const lines = heaviest(model, view, (kind) => (model.page.sites.held[kind] === 1 ? model.kinds.line[kind] : 0));
    this.lines.render(lines.map(({ id, bytes, stack, byCategory }) => {
      const place = model.page.names[id];
      const frame = model.frames[model.placeOf(stack)];
      return {
        key: String(id), name: place, more: frame.source, chosen: store.state.search === place, bytes, byCategory, open: null, inner: false,
        title: `${frame.file}:${frame.line}\n${formatExact(bytes)}`,
        click: () => store.set({ search: store.state.search === place ? "" : place }),
      };
    }), view);
  }

  /**
   * The list "Most bytes allocated over the run", which is the same at every instant.
   * @param {View} view
   */
  renderChurn(view) {
    const { model, store } = this;
    const device = model.page.devices[view.device];
    const rows = model.page.report.top_churn.filter((row) => row.device === device.index);
    const whole = rows.reduce((sum, { bytes }) => sum + bytes, 0);
    setText(this.bases.churn, `% of the ${formatBytes(whole)} of these lines, not filtered`);
    this.churn.render(rows.map(({ line, source, bytes, count }) => ({
      key: line, name: line, more: source.trim(), chosen: store.state.search === line, bytes, byCategory: new Float64Array(0), open: null, inner: false,
      title: `${line}\n${formatExact(bytes)} in ${formatAllocations(count)}, over the whole run`,
      click: () => store.set({ search: store.state.search === line ? "" : line }),
    })), view, whole);
  }

  /** @param {View} view */
  renderLayers(view) {
    const { model, store } = this;
    const { names, module_types: types } = model.page;
    const most = heaviest(model, view, (kind) => model.kinds.module[kind]);
    const groups = foldRepeated(most, ({ id, bytes, purposes }) => ({
      name: names[id], type: types[names[id]] ?? "", bytes,
      holds: [...purposes].filter(([, size]) => size > 0).sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([category]) => category).join(","),
    }));
    const line = (/** @type {Entry} */ { id, bytes, byCategory }, /** @type {boolean} */ inner) => ({
      key: String(id), name: names[id], more: types[names[id]] ?? "", title: `${names[id]}, ${formatExact(bytes)} of its own`,
      bytes, byCategory, chosen: store.state.module === names[id], open: null, inner,
      click: () => store.set({ module: store.state.module === names[id] ? null : names[id] }),
    });
    const sum = (/** @type {Entry[]} */ entries) => entries.reduce((total, { bytes }) => total + bytes, 0);
    groups.sort((a, b) => sum(b.items) - sum(a.items));
    /** @type {Line[]} */
    const lines = groups.flatMap(({ name, items }) => {
      if (items.length === 1) return [line(items[0], false)];
      const open = this.unfolded.has(name);
      const byCategory = items[0].byCategory.map((_, category) => items.reduce((total, entry) => total + entry.byCategory[category], 0));
      const whole = {
        key: name, name: `${name} x${items.length}`, more: types[names[items[0].id]] ?? "", bytes: sum(items), byCategory, chosen: false, open,
        inner: false, title: `${items.length} equal layers, ${formatExact(sum(items))}: click to see each`,
        click: () => {
          if (!this.unfolded.delete(name)) this.unfolded.add(name);
          if (this.view) this.renderLayers(this.view);
        },
      };
      return open ? [whole, ...items.map((entry) => line(entry, true))] : [whole];
    });
    this.layers.render(lines, view);
  }

  /** @param {number} category */
  makeSegment(category) {
    if (category < 0) return h("span", { class: "segment residual" });
    const name = this.model.categories[category];
    return h("button", {
      class: "segment", type: "button", tabindex: -1, click: () => toggleCategory(this.store, name),
      pointermove: (/** @type {PointerEvent} */ event) => {
        const bytes = this.view?.byCategory[category] ?? 0;
        tip.show(event.clientX, event.clientY,
          h("div", { class: "tip-head" }, h("span", {}, name), h("b", {}, formatBytes(bytes))),
          h("div", {}, `${formatShare(bytes, this.all ?? 0)} of ${formatBytes(this.all ?? 0)} · ${formatExact(bytes)}`));
      },
      pointerleave: () => tip.hide(),
    });
  }

  /**
   * @param {HTMLElement} segment
   * @param {number} category -1: the residual.
   */
  patchSegment(segment, category) {
    const whole = this.whole ?? 1;
    if (category < 0) {
      setAttribute(segment, "style", `flex-grow:${(this.residual ?? 0) / whole}`);
      return;
    }
    const bytes = this.view?.byCategory[category] ?? 0;
    this.showChoice(segment, category);
    setAttribute(segment, "aria-label", `${this.model.categories[category]}: ${formatBytes(bytes)}, ${formatShare(bytes, this.all ?? 0)}`);
    setAttribute(segment, "style", `flex-grow:${bytes / whole};background:var(--c${category})`);
  }

  /** @param {number} category */
  makeKey(category) {
    if (category < 0) {
      return h("div", { class: "brief-row key" }, h("span", { class: "swatch residual" }),
        h("span", { class: "brief-name" }, "residual"), h("span", { class: "brief-value" }), h("span", { class: "brief-share" }));
    }
    const name = this.model.categories[category];
    return h("button", { class: "brief-row key", type: "button", tabindex: -1, "data-category": name, click: () => toggleCategory(this.store, name) },
      swatch(category), h("span", { class: "brief-name" }, named(name, "")),
      h("span", { class: "brief-value" }), h("span", { class: "brief-share" }));
  }

  /**
   * @param {HTMLElement} row
   * @param {number} category -1: the residual.
   */
  patchKey(row, category) {
    const [, , value, share] = row.children;
    const all = this.all ?? 0;
    if (category < 0) {
      const residual = this.residual ?? 0;
      setAttribute(row, "title", `NVML minus ledger: ${formatExact(residual)}`);
      setText(value, formatSignedBytes(residual));
      setText(share, formatShare(Math.abs(residual), all));
      return;
    }
    const bytes = this.view?.byCategory[category] ?? 0;
    this.showChoice(row, category);
    setAttribute(row, "title", `${this.model.categories[category]}, ${formatExact(bytes)}`);
    setText(value, formatBytes(bytes));
    setText(share, formatShare(bytes, all));
  }

  /**
   * @param {HTMLElement} element
   * @param {number} category
   */
  showChoice(element, category) {
    const filter = this.view?.filter;
    const chosen = filter !== undefined && filter.byCategory && filter.category[category] === 1;
    element.classList.toggle("dim", filter !== undefined && filter.byCategory && !chosen);
    setAttribute(element, "aria-pressed", String(chosen));
  }

  /** @param {View} view */
  renderCategories(view) {
    this.all = view.byCategory.reduce((sum, bytes) => sum + bytes, 0);
    // The NVML sample is of the whole device, so a filter hides the residual.
    this.residual = view.nvml === null || view.filter.narrows ? null : view.nvml - view.total;
    // List categories that are not chosen as well, so that they can be chosen.
    const passing = !view.filter.narrows ? "" : view.filter.byCategory ? " that pass the other filters" : " that pass the filters";
    setText(this.bases.categories, `% of ${formatBytes(this.all)}${passing}`);
    setText(this.bases.layers, `% of ${formatBytes(view.bytes)}${view.filter.on ? " that pass the filters" : ""}`);
    setText(this.bases.lines, this.bases.layers.textContent ?? "");
    this.whole = Math.max(1, this.all + Math.max(0, this.residual ?? 0));
    const held = [...view.byCategory.keys()].filter((category) => view.byCategory[category] > 0);
    const keyed = (/** @type {number[]} */ of) => of.map((category) => /** @type {[string, number]} */ ([String(category), category]));
    this.segments.update(keyed(this.residual !== null && this.residual > 0 ? [...held, -1] : held));
    held.sort((a, b) => view.byCategory[b] - view.byCategory[a]);
    this.keys.update(keyed(this.residual !== null ? [...held, -1] : held));
  }
}
