// SPDX-License-Identifier: Apache-2.0
// A table that sorts by any column, copies its rows and opens rows for details.
import { copyButton } from "./clipboard.js";
import { formatCount } from "../base/format.js";
import { h, named, roving } from "./dom.js";
import { foldRepeated } from "../base/repeats.js";
import { NAMES } from "../base/trie.js";

/**
 * @template Item
 * @typedef {object} DataColumn
 * @property {string} name The head, one word.
 * @property {(item: Item) => number|string} value The value for sorting and copying.
 * @property {(item: Item) => Node|string} [show] The displayed value, if it differs.
 * @property {boolean} [text] Aligned left and sorted from A to Z.
 * @property {boolean} [minor] Hidden on narrow screens.
 * @property {string} [title]
 */

/**
 * Groups rows whose names differ only in numbers: the input of foldRepeated(), and the row of a group.
 * @template Item
 * @typedef {object} Folding
 * @property {(item: Item) => {name: string, type: string, bytes: number, holds: string}} describe
 * @property {(name: string, items: Item[]) => Item} sum
 */

/**
 * A row, with its members if it is a group.
 * @template Item
 * @typedef {{item: Item, of: Item[], name: string}} Line
 */

/** @param {{text?: boolean, minor?: boolean}} column */
const classOf = ({ text, minor }) => (text ? "text" : minor ? "minor" : null);

/**
 * A name that is shortened in the middle if it does not fit.
 * @param {Node|string} content
 */
const nameOf = (content) => (typeof content === "string" ? h("span", { class: "place" }, named(content, "")) : content);

const LISTED = 100;
// A click shows this many more.
const MORE = 1000;

/** @template Item */
export class DataTable {
  /**
   * @param {string} label
   * @param {DataColumn<Item>[]} columns
   * @param {object} how
   * @param {number} how.sorted The initial sort column.
   * @param {(item: Item) => void} [how.choose] The action of a click on a row.
   * @param {(item: Item) => boolean} [how.isChosen]
   * @param {(item: Item) => Node|null} [how.detail] The content of an open row.
   * @param {Folding<Item>} [how.folding]
   */
  constructor(label, columns, { sorted, choose, isChosen, detail, folding }) {
    this.columns = columns;
    this.sorted = sorted;
    this.falling = !columns[sorted].text;
    this.choose = choose;
    this.isChosen = isChosen;
    this.detail = detail;
    this.folding = folding;
    this.listed = LISTED;
    /** @type {Set<string>} Names of open groups. */
    this.unfolded = new Set();
    /** @type {Item[]} */
    this.items = [];
    /** @type {Set<Item>} */
    this.open = new Set();
    this.heads = columns.map((column, at) => h("th", { scope: "col", class: classOf(column) },
      h("button", { type: "button", title: column.title ?? null, click: () => this.sortBy(at) }, column.name)));
    const head = h("tr", {}, ...this.heads);
    this.body = h("tbody", {});
    this.more = h("button", { class: "more", type: "button", click: () => {
      this.listed += MORE;
      this.draw();
    } });
    this.empty = h("p", { class: "empty" });
    this.scroller = h("div", { class: "data-scroll" }, h("table", { class: "data", "aria-label": label }, h("thead", {}, head), this.body));
    this.element = h("div", { class: "data-table" }, this.scroller, this.more, this.empty);
    this.copy = copyButton(label, () => this.asText());
    roving(head);
    roving(this.body);
  }

  /** @param {number} column */
  sortBy(column) {
    this.falling = column === this.sorted ? !this.falling : !this.columns[column].text;
    this.sorted = column;
    this.draw();
  }

  /**
   * @param {Item[]} items
   * @param {string} nothing
   */
  render(items, nothing) {
    this.items = items;
    this.empty.textContent = nothing;
    this.draw();
  }

  /**
   * @template Of
   * @param {Of[]} all
   * @param {(of: Of) => Item} itemOf
   */
  sort(all, itemOf) {
    const { value } = this.columns[this.sorted];
    const { value: first } = this.columns[0];
    const sign = this.falling ? -1 : 1;
    const compare = (/** @type {number|string} */ x, /** @type {number|string} */ y) =>
      (typeof x === "number" && typeof y === "number" ? x - y : NAMES.compare(String(x), String(y)));
    return all.slice().sort((a, b) => sign * compare(value(itemOf(a)), value(itemOf(b))) || compare(first(itemOf(a)), first(itemOf(b))));
  }

  /** @returns {Line<Item>[]} */
  lines() {
    const { folding } = this;
    if (!folding) return this.items.map((item) => ({ item, of: [], name: "" }));
    const largest = this.items.slice().sort((a, b) => folding.describe(b).bytes - folding.describe(a).bytes);
    return foldRepeated(largest, folding.describe).map(({ name, items }) =>
      (items.length === 1 ? { item: items[0], of: [], name } : { item: folding.sum(`${name} x${items.length}`, items), of: items, name }));
  }

  draw() {
    const lines = this.sort(this.lines(), ({ item }) => item);
    const shown = lines.slice(0, this.listed);
    this.heads.forEach((head, at) => head.setAttribute("aria-sort", at !== this.sorted ? "none" : this.falling ? "descending" : "ascending"));
    this.body.replaceChildren(...shown.flatMap((line) => this.makeLine(line)));
    this.more.textContent = `Show ${formatCount(lines.length - shown.length)} more`;
    this.more.classList.toggle("gone", shown.length === lines.length);
    this.scroller.classList.toggle("gone", lines.length === 0);
    this.empty.classList.toggle("gone", lines.length > 0);
  }

  /** @param {Line<Item>} line */
  makeLine({ item, of, name }) {
    if (of.length === 0) return this.makeRow(item);
    const open = this.unfolded.has(name);
    const cells = this.columns.map((column, at) => {
      const content = column.show ? column.show(item) : String(column.value(item));
      return at === 0 ? h("th", { class: "text", scope: "row" },
        h("button", { type: "button", tabindex: -1, class: "folded", "aria-expanded": String(open), "data-key": name },
          h("span", { class: open ? "twist open" : "twist", "aria-hidden": "true" }), nameOf(content)))
        : h("td", { class: classOf(column) }, content);
    });
    const row = h("tr", { class: "acts", click: () => {
      if (!this.unfolded.delete(name)) this.unfolded.add(name);
      this.draw();
      for (const button of this.body.querySelectorAll("button")) if (button.dataset.key === name) button.focus({ preventScroll: true });
    } }, ...cells);
    return open ? [row, ...this.sort(of, (each) => each).flatMap((each) => this.makeRow(each, true))] : [row];
  }

  /**
   * @param {Item} item
   * @param {boolean} [below] The row is a member of a group.
   */
  makeRow(item, below = false) {
    const acts = this.choose !== undefined || this.detail !== undefined;
    const open = this.open.has(item);
    const cells = this.columns.map((column, at) => {
      const shown = column.show ? column.show(item) : String(column.value(item));
      const content = at === 0 && column.text ? nameOf(shown) : shown;
      const cell = at === 0 && acts
        ? h("button", { type: "button", tabindex: -1, "aria-expanded": this.detail ? String(open) : null }, content) : content;
      return h(at === 0 ? "th" : "td", { class: classOf(column), scope: at === 0 ? "row" : null }, cell);
    });
    const row = h("tr", { class: `${acts ? "acts" : ""}${this.isChosen?.(item) ? " chosen" : ""}${below ? " below" : ""}`, click: () => this.act(item) }, ...cells);
    const inner = open ? this.detail?.(item) : null;
    return inner ? [row, h("tr", {}, h("td", { colspan: this.columns.length, class: "text inner" }, inner))] : [row];
  }

  /** @param {Item} item */
  act(item) {
    this.choose?.(item);
    if (!this.detail) return;
    if (!this.open.delete(item)) this.open.add(item);
    this.draw();
  }

  /** @returns {(string|number)[][]} */
  asText() {
    return [this.columns.map(({ name }) => name), ...this.sort(this.items, (item) => item).map((item) => this.columns.map(({ value }) => value(item)))];
  }
}
