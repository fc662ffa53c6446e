// SPDX-License-Identifier: Apache-2.0
// Live allocations, largest first, one row for each kind. Only visible rows have elements.
import { formatAllocations, formatBytes, formatCount, formatExact, formatShare, formatTime, inUnit, tableUnit } from "../base/format.js";
import { copyButton } from "../dom/clipboard.js";
import { Rows, h, marked, perFrame, setAttribute, setNamed, setText, swatch } from "../dom/dom.js";
import { frameList, innermostFirst } from "../dom/frames.js";
import { allocationsOf } from "../model/view.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/view.js").View} View */
/** @typedef {{kind: number, top: number}} InSight A row, and how far down it stands. */

const ROW = 48;
const MARGIN_ROWS = 6;
// Rows drawn in one part of the page's work.
const PART_ROWS = 8;
const FRAME = 22;
const LISTED = 6;

export class TopTable {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.sum = h("span", { class: "hint" });
    this.byCount = false;
    this.unit = tableUnit(0);
    this.heads = [this.head("", false), this.head("Count", true)];
    this.space = h("div", { class: "top-space" });
    this.empty = h("p", { class: "empty gone" });
    this.scroller = h("div", {
      class: "top-scroll", tabindex: 0, role: "list", "aria-label": "Top allocations",
      scroll: perFrame(() => {
        this.scrolled = this.scroller.scrollTop;
        this.fill();
      }),
    }, this.space);
    this.element = h("section", { class: "card", "aria-label": "Top allocations" },
      h("div", { class: "card-head" }, h("h2", {}, "Top allocations"), this.sum,
        copyButton("Top allocations", () => this.asText())),
      h("div", { class: "top-row top-head" }, ...this.heads, h("span", {}, "Place and source"),
        h("span", {}, "What")),
      this.scroller, this.empty);
    this.rows = new Rows(this.space, (/** @type {InSight} */ { kind }) => this.makeRow(kind), (row, inSight) => this.patchRow(row, inSight));
    /** @type {WeakMap<HTMLElement, View>} What the unfolded rows were made for. */
    this.detailed = new WeakMap();
    /**
     * The largest reported height: reading it from the element would force a layout. A list that was short can grow to
     * this height again.
     */
    this.height = 0;
    this.scrolled = 0;
    /** @type {string|undefined} The row that had the keyboard when the rows were chosen. */
    this.held = undefined;
    /** @type {number[]} */
    this.shown = [];
    /**
     * Kinds with open rows, and the additional height of each.
     * @type {Map<number, number>}
     */
    this.open = new Map();
    new ResizeObserver(() => {
      const { clientHeight } = this.scroller;
      if (clientHeight <= this.height) return;
      this.height = clientHeight;
      this.fill();
    }).observe(this.scroller);
  }

  /**
   * @param {string} label
   * @param {boolean} byCount
   */
  head(label, byCount) {
    return h("button", {
      type: "button", class: "sort num", "aria-pressed": String(byCount === this.byCount),
      click: () => {
        this.byCount = byCount;
        this.heads.forEach((other, at) => other.setAttribute("aria-pressed", String((at === 1) === byCount)));
        this.sort();
        this.fill();
      },
    }, label);
  }

  sort() {
    const { view } = this;
    if (!view) return;
    const { kindBytes: bytes, kindCount: count } = view;
    this.shown = view.shown.slice().sort(this.byCount ? (a, b) => count[b] - count[a] || bytes[b] - bytes[a]
      : (a, b) => bytes[b] - bytes[a] || count[b] - count[a]);
  }

  /**
   * @param {View} view
   * @returns {import("../base/parts.js").Part[]}
   */
  parts(view) {
    return [() => this.render(view), () => this.draw()];
  }

  /** @param {View} view */
  render(view) {
    this.view = view;
    this.sort();
    this.unit = tableUnit(view.bytes);
    setText(this.heads[0], this.unit.name);
    setText(this.sum, `${formatBytes(view.listed)} in ${formatAllocations(view.count)}` +
      `${view.filter.on ? " that pass the filters" : ""} · % of ${formatBytes(view.bytes)}`);
    this.list();
  }

  /** @param {number} kind */
  extra(kind) {
    return this.open.get(kind) ?? 0;
  }

  /** Makes or updates the visible rows. One block element fills the space above and below. */
  fill() {
    this.list();
    this.draw(Infinity);
  }

  /** Chooses the visible rows; draw() shows them. */
  list() {
    const { shown, view } = this;
    if (!view) return;
    this.held = document.activeElement instanceof HTMLElement && this.space.contains(document.activeElement)
      ? document.activeElement.dataset.key : undefined;
    const from = this.scrolled - MARGIN_ROWS * ROW;
    const to = from + this.height + 2 * MARGIN_ROWS * ROW;
    let total = shown.length * ROW;
    if (this.open.size > 0) for (const kind of shown) total += this.extra(kind);
    this.space.style.height = `${Math.max(1, total)}px`;
    /** @type {[string, InSight][]} */
    const rows = [];
    let top = 0;
    for (let i = 0; i < shown.length && top < to; ++i) {
      const kind = shown[i];
      const height = ROW + (this.open.size > 0 ? this.extra(kind) : 0);
      if (top + height >= from) rows.push([`${kind}\u0000${this.open.has(kind)}`, { kind, top }]);
      top += height;
    }
    this.rows.begin(rows);
    // Move the rows that stay, to make room for new ones.
    for (const [key, { top: down }] of rows) {
      const row = this.rows.known.get(key);
      if (row) setAttribute(row, "style", `top:${down}px`);
    }
    setText(this.empty, view.filter.on ? "No allocation passes the filters at this instant." : "Nothing is live here at this instant.");
    this.empty.classList.toggle("gone", shown.length > 0);
  }

  /**
   * Shows the next rows.
   * @param {number} [limit]
   * @returns {boolean} Whether some are left.
   */
  draw(limit = PART_ROWS) {
    const left = this.rows.go(limit);
    if (this.held === undefined || document.activeElement !== document.body) return left;
    for (const row of this.space.querySelectorAll("button")) {
      if (row.dataset.key === this.held) row.focus({ preventScroll: true });
    }
    return left;
  }

  /**
   * The name of the parameter, the layer or the ledger entry.
   * @param {number} kind
   */
  whatOf(kind) {
    const { kinds, page } = this.model;
    return page.names[kinds.name[kind]] || page.names[kinds.module[kind]] || (page.paths[kinds.path[kind]] ?? []).join(" › ");
  }

  /** @param {number} kind */
  makeRow(kind) {
    const { model } = this;
    const { kinds, page } = model;
    const open = this.open.has(kind);
    const stack = kinds.placeStack[kind];
    const frame = model.frames[model.placeOf(stack)];
    const levels = (page.paths[kinds.path[kind]] ?? []).join(" › ");
    const what = this.whatOf(kind);
    const category = model.categories[kinds.category[kind]];
    return h("div", { class: open ? "top-item open" : "top-item", role: "listitem" },
      h("button", {
        class: "top-row", type: "button", "aria-expanded": String(open), "data-key": kind, title: frame.file || null,
        click: () => this.toggle(kind),
      },
        h("span", { class: "num" }, h("span", {}), h("small", {})),
        h("span", { class: "num soft" }),
        h("span", { class: "where" },
          h("span", { class: "place" }), h("code", { class: "source" })),
        h("span", { class: "what", title: `${category} · ${what} · ${levels}` }, swatch(kinds.category[kind]),
          h("span", { class: "where" }, h("span", { class: "place" }),
            h("span", { class: "source" }, category !== what && !model.byPlace ? category : what !== levels ? levels : model.ownCategory(kind))))));
  }

  /**
   * @param {HTMLElement} row
   * @param {InSight} inSight
   */
  patchRow(row, { kind, top }) {
    const { view } = this;
    if (!view) return;
    const [bytes, count, where, what] = row.children[0].children;
    const [value, share] = bytes.children;
    const { kinds, page: { names } } = this.model;
    const { needle } = view.filter.search;
    const frame = this.model.frames[this.model.placeOf(kinds.placeStack[kind])];
    setNamed(where.children[0], names[kinds.line[kind]] || frame.name, needle);
    setNamed(where.children[1], frame.source, needle, marked);
    setNamed(what.children[1].children[0], this.whatOf(kind), needle);
    setAttribute(row, "style", `top:${top}px`);
    setAttribute(bytes, "title", formatExact(view.kindBytes[kind]));
    setText(value, inUnit(view.kindBytes[kind], this.unit));
    setText(share, formatShare(view.kindBytes[kind], view.bytes));
    setText(count, formatCount(view.kindCount[kind]));
    if (!this.open.has(kind) || this.detailed.get(row) === view) return;
    this.detailed.set(row, view);
    row.children[1]?.remove();
    row.append(this.makeDetail(kind, view));
  }

  /** The whole list for a spreadsheet, with exact bytes. */
  asText() {
    const { model: { kinds, page, categories, frames }, model, view } = this;
    const rows = this.shown.map((kind) => [
      view?.kindBytes[kind] ?? 0, view?.kindCount[kind] ?? 0, page.names[kinds.line[kind]], categories[kinds.category[kind]],
      page.names[kinds.module[kind]], page.names[kinds.name[kind]], (page.paths[kinds.path[kind]] ?? []).join(" › "),
      model.framesOf(kinds.placeStack[kind]).reverse().map((frame) => frames[frame].name).join(" < "),
    ]);
    return [["bytes", "count", "line", "category", "module", "name", "ledger", "stack"], ...rows];
  }

  /** @param {number} kind */
  toggle(kind) {
    if (this.open.has(kind)) this.open.delete(kind);
    else {
      const frames = this.stacksOf(kind).reduce((sum, { frames: { length } }) => sum + 1.5 + Math.max(1, length), 0);
      const listed = Math.min(LISTED, this.view?.kindCount[kind] ?? 0) + 2;
      this.open.set(kind, Math.max(frames, listed) * FRAME + 24);
    }
    this.fill();
  }

  /**
   * The stack, and for autograd also the stack of its forward. Frames are ordered innermost first.
   * @param {number} kind
   */
  stacksOf(kind) {
    const { model } = this;
    const { stack, placeStack } = model.kinds;
    const frames = (/** @type {number} */ id) => innermostFirst(model, id);
    const own = { title: "Stack, innermost first", frames: frames(stack[kind]) };
    if (placeStack[kind] === stack[kind]) return [own];
    return [{ title: "Stack of the forward", frames: frames(placeStack[kind]) }, own];
  }

  /**
   * @param {number} kind
   * @param {View} view
   */
  makeDetail(kind, view) {
    const { model } = this;
    const stacks = this.stacksOf(kind).flatMap(({ title, frames }) =>
      [h("h3", {}, title), frameList(model, frames, view.filter.search.needle)]);
    const all = allocationsOf(model, view, kind);
    const listed = all.slice(0, LISTED).map((i) => {
      const until = model.end[i] < Infinity ? `freed at ${formatTime(model.end[i])}` : "never freed";
      return h("li", { title: formatExact(model.bytes[i]) },
        h("b", {}, formatBytes(model.bytes[i])),
        h("span", {}, `${formatTime(model.begin[i])}, ${until}`),
        h("code", {}, `0x${model.page.allocations.address[i]}`));
    });
    const rest = all.length - listed.length;
    return h("div", { class: "detail" },
      h("div", {}, ...stacks),
      h("div", {}, h("h3", {}, "Allocations"), h("ol", { class: "lives" }, ...listed,
        rest > 0 ? h("li", { class: "soft" }, `and ${formatCount(rest)} smaller`) : null)));
  }
}
