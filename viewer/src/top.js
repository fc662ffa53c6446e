// SPDX-License-Identifier: Apache-2.0
// What is live, largest first: one row a call stack and ledger level. Only rows in sight have DOM.
import { baseName, formatBytes, formatCount, formatExact, formatMib, formatShare, formatTime } from "./format.js";
import { h, marked, perFrame, swatch } from "./dom.js";
import { groupLives } from "./groups.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./view.js").View} View */
/** @typedef {import("./search.js").Search} Search */

/** @typedef {import("./groups.js").Group} Group */

const ROW = 48;
const MARGIN_ROWS = 6;
const FRAME = 22;
const FRAMES_SHOWN = 48;
const LIVES_SHOWN = 6;

export class TopTable {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.sum = h("span", { class: "hint" });
    this.byCount = false;
    this.heads = [
      this.head("MiB", false), this.head("Count", true),
    ];
    this.space = h("div", { class: "top-space" });
    this.scroller = h("div", {
      class: "top-scroll", tabindex: 0, role: "list", "aria-label": "Top allocations",
      scroll: perFrame(() => this.fill()),
    }, this.space);
    this.element = h("section", { class: "card", "aria-label": "Top allocations" },
      h("div", { class: "card-head" }, h("h2", {}, "Top allocations"), this.sum),
      h("div", { class: "top-row top-head" }, ...this.heads, h("span", {}, "Place and source"),
        h("span", {}, "Ledger level")),
      this.scroller);
    /** @type {Group[]} */
    this.groups = [];
    /**
     * Rows that are unfolded, by key, and how much taller that makes them.
     * @type {Map<string, number>}
     */
    this.open = new Map();
    new ResizeObserver(() => this.fill()).observe(this.scroller);
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

  /** @param {Group} group */
  keyOf(group) {
    return `${group.stack},${group.path}`;
  }

  sort() {
    if (this.byCount) this.groups.sort((a, b) => b.count - a.count || b.bytes - a.bytes);
    else this.groups.sort((a, b) => b.bytes - a.bytes || b.count - a.count);
  }

  /**
   * @param {View} view
   * @param {Search} search
   */
  render(view, search) {
    this.view = view;
    this.search = search;
    this.groups = groupLives(this.model, view.live, search);
    this.sort();
    const bytes = this.groups.reduce((sum, group) => sum + group.bytes, 0);
    const count = this.groups.reduce((sum, group) => sum + group.count, 0);
    this.sum.textContent = `${formatBytes(bytes)} in ${formatCount(count)} allocations` +
      (search.on ? " that match" : "");
    this.fill();
  }

  /** @param {Group} group */
  extra(group) {
    return this.open.get(this.keyOf(group)) ?? 0;
  }

  /** Makes the rows in sight; the space above and below is one block's height. */
  fill() {
    const { groups, scroller } = this;
    if (!this.view) return;
    const held = document.activeElement instanceof HTMLElement && this.space.contains(document.activeElement)
      ? document.activeElement.dataset.key : undefined;
    const total = groups.reduce((sum, group) => sum + (this.open.size > 0 ? this.extra(group) : 0), 0) +
      groups.length * ROW;
    this.space.style.height = `${Math.max(ROW, total)}px`;
    const from = scroller.scrollTop - MARGIN_ROWS * ROW;
    const to = scroller.scrollTop + scroller.clientHeight + MARGIN_ROWS * ROW;
    const rows = [];
    let top = 0;
    for (let i = 0; i < groups.length && top < to; ++i) {
      const height = ROW + (this.open.size > 0 ? this.extra(groups[i]) : 0);
      if (top + height >= from) rows.push(this.makeRow(groups[i], top));
      top += height;
    }
    if (groups.length === 0) {
      rows.push(h("p", { class: "empty" }, this.search?.on ? "Nothing live here matches the search."
        : "Nothing was live here at this instant."));
    }
    this.space.replaceChildren(...rows);
    if (held !== undefined) {
      for (const row of this.space.querySelectorAll("button")) {
        if (row.dataset.key === held) row.focus({ preventScroll: true });
      }
    }
  }

  /**
   * @param {Group} group
   * @param {number} top
   */
  makeRow(group, top) {
    const { model, search } = this;
    const key = this.keyOf(group);
    const open = this.open.has(key);
    const frame = model.frames[model.placeOf(group.stack)];
    const needle = search?.needle ?? "";
    const place = group.stack === 0 ? frame.name : model.placeName(group.stack);
    const path = model.page.paths[group.path] ?? [];
    const name = h("span", { class: "place" });
    name.append(marked(place, needle));
    const source = h("code", { class: "source" });
    source.append(marked(frame.source, needle));
    const levels = h("span", { class: "levels", title: path.join(" › ") });
    levels.append(marked(path.slice(-2).join(" › "), needle));
    const element = h("div", { class: open ? "top-item open" : "top-item", role: "listitem", style: `top:${top}px` },
      h("button", {
        class: "top-row", type: "button", "aria-expanded": String(open), "data-key": key, title: frame.file || null,
        click: () => this.toggle(group),
      },
        h("span", { class: "num", title: formatExact(group.bytes) }, formatMib(group.bytes),
          h("small", {}, formatShare(group.bytes, this.view?.liveBytes ?? 0))),
        h("span", { class: "num soft" }, formatCount(group.count)),
        h("span", { class: "where" }, name, source),
        h("span", { class: "level" }, swatch(model.lifeCategory[group.lives[0]]), levels)));
    if (open) element.append(this.makeDetail(group));
    return element;
  }

  /** @param {Group} group */
  toggle(group) {
    const key = this.keyOf(group);
    if (this.open.has(key)) this.open.delete(key);
    else {
      const frames = Math.min(FRAMES_SHOWN, this.model.framesOf(group.stack).length) || 1;
      const lives = Math.min(LIVES_SHOWN, group.lives.length) + 2;
      this.open.set(key, Math.max(frames + 1, lives) * FRAME + 24);
    }
    this.fill();
  }

  /** @param {Group} group */
  makeDetail(group) {
    const { model, search } = this;
    const needle = search?.needle ?? "";
    const frames = model.framesOf(group.stack);
    const rows = frames.slice(-FRAMES_SHOWN).reverse().map((id) => {
      const frame = model.frames[id];
      const row = h("li", { class: frame.library ? "library" : "", title: `${frame.file}:${frame.line}` });
      const place = frame.file ? `${baseName(frame.file)}:${frame.line}` : "";
      row.append(h("span", { class: "frame-name" }, marked(frame.name, needle)),
        h("span", { class: "frame-place" }, marked(place, needle)),
        h("code", {}, marked(frame.source, needle)));
      return row;
    });
    if (rows.length === 0) rows.push(h("li", {}, "No stack was recorded."));
    const order = group.lives.slice().sort((a, b) => model.lifeBytes[b] - model.lifeBytes[a]);
    const lives = order.slice(0, LIVES_SHOWN).map((life) => {
      const free = model.lifeFree[life];
      const until = free < Infinity ? `freed at ${formatTime(free)}` : "never freed";
      return h("li", { title: formatExact(model.lifeBytes[life]) },
        h("b", {}, formatBytes(model.lifeBytes[life])),
        h("span", {}, `${formatTime(model.lifeAlloc[life])}, ${until}`),
        h("code", {}, `0x${(model.page.lives.address[life] ?? "").replace(/^0x/, "")}`));
    });
    const rest = group.lives.length - lives.length;
    return h("div", { class: "detail" },
      h("div", {}, h("h3", {}, "Stack, innermost first"), h("ol", { class: "frames" }, ...rows)),
      h("div", {}, h("h3", {}, "Allocations"), h("ol", { class: "lives" }, ...lives,
        rest > 0 ? h("li", { class: "soft" }, `and ${formatCount(rest)} smaller`) : null)));
  }
}
