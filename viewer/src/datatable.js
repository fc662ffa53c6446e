// SPDX-License-Identifier: Apache-2.0
// A table of rows that are all alike: sorted by any column, copied as it stands, rows that open.
import { copyButton } from "./clipboard.js";
import { formatCount } from "./format.js";
import { h, roving } from "./dom.js";
import { NAMES } from "./trie.js";

/**
 * @template Item
 * @typedef {object} DataColumn
 * @property {string} name A word.
 * @property {(item: Item) => number|string} value What it is sorted by, and copied as.
 * @property {(item: Item) => Node|string} [show] Where that is not the value.
 * @property {boolean} [text] To the left, and from A to Z.
 * @property {string} [title]
 */

const LISTED = 100;

/** @template Item */
export class DataTable {
  /**
   * @param {string} label
   * @param {DataColumn<Item>[]} columns
   * @param {object} how
   * @param {number} how.sorted By which column at first.
   * @param {(item: Item) => void} [how.choose] What a click on a row does.
   * @param {(item: Item) => boolean} [how.isChosen]
   * @param {(item: Item) => Node|null} [how.detail] What a row opens to.
   */
  constructor(label, columns, { sorted, choose, isChosen, detail }) {
    this.columns = columns;
    this.sorted = sorted;
    this.falling = !columns[sorted].text;
    this.choose = choose;
    this.isChosen = isChosen;
    this.detail = detail;
    this.all = false;
    /** @type {Item[]} */
    this.items = [];
    /** @type {Set<Item>} */
    this.open = new Set();
    this.heads = columns.map((column, at) => h("th", { scope: "col", class: column.text ? "text" : null },
      h("button", { type: "button", title: column.title ?? null, click: () => this.sortBy(at) }, column.name)));
    const head = h("tr", {}, ...this.heads);
    this.body = h("tbody", {});
    this.more = h("button", { class: "more", type: "button", click: () => {
      this.all = true;
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

  inOrder() {
    const { value } = this.columns[this.sorted];
    const { value: first } = this.columns[0];
    const sign = this.falling ? -1 : 1;
    const compare = (/** @type {number|string} */ x, /** @type {number|string} */ y) =>
      (typeof x === "number" && typeof y === "number" ? x - y : NAMES.compare(String(x), String(y)));
    return this.items.slice().sort((a, b) => sign * compare(value(a), value(b)) || compare(first(a), first(b)));
  }

  draw() {
    const items = this.inOrder();
    const shown = this.all ? items : items.slice(0, LISTED);
    this.heads.forEach((head, at) => head.setAttribute("aria-sort", at !== this.sorted ? "none" : this.falling ? "descending" : "ascending"));
    this.body.replaceChildren(...shown.flatMap((item) => this.makeRow(item)));
    this.more.textContent = `Show ${formatCount(items.length - shown.length)} more`;
    this.more.classList.toggle("gone", shown.length === items.length);
    this.scroller.classList.toggle("gone", items.length === 0);
    this.empty.classList.toggle("gone", items.length > 0);
  }

  /** @param {Item} item */
  makeRow(item) {
    const acts = this.choose !== undefined || this.detail !== undefined;
    const open = this.open.has(item);
    const cells = this.columns.map((column, at) => {
      const content = column.show ? column.show(item) : String(column.value(item));
      const cell = at === 0 && acts
        ? h("button", { type: "button", tabindex: -1, "aria-expanded": this.detail ? String(open) : null }, content) : content;
      return h(at === 0 ? "th" : "td", { class: column.text ? "text" : null, scope: at === 0 ? "row" : null }, cell);
    });
    const row = h("tr", { class: `${acts ? "acts" : ""}${this.isChosen?.(item) ? " chosen" : ""}`, click: () => this.act(item) }, ...cells);
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
    return [this.columns.map(({ name }) => name), ...this.inOrder().map((item) => this.columns.map(({ value }) => value(item)))];
  }
}
