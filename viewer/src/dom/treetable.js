// SPDX-License-Identifier: Apache-2.0
// A tree table with keyboard, sorting and one chosen branch, for the ledger and the modules. A new instant updates the
// rows in place.
import { copyButton } from "./clipboard.js";
import { formatBytes, formatCount, formatExact, formatShare, inUnit, tableUnit } from "../base/format.js";
import { Rows, h, named, setAttribute, setNamed, setText, swatch } from "./dom.js";
import { NAMES, labelOf } from "../base/trie.js";

/** @typedef {import("../base/trie.js").TreeNode} TreeNode */
/** @typedef {import("../model/search.js").Search} Search */
/** @typedef {import("../base/format.js").Unit} Unit */

/**
 * @typedef {object} Column
 * @property {string} id Also the class of its cells.
 * @property {(unit: Unit) => string} name
 * @property {(a: TreeNode, b: TreeNode) => number} order
 * @property {(node: TreeNode, whole: number, unit: Unit) => string} [text]
 * @property {(node: TreeNode, whole: number) => number} [bar] Where the cell is a bar: of how many bytes.
 * @property {string} [title]
 */

/**
 * @typedef {object} Choice
 * @property {(path: TreeNode[]) => boolean} is
 * @property {(path: TreeNode[]) => void} toggle
 */

/**
 * @typedef {object} Row
 * @property {string} key
 * @property {TreeNode[]} path Down to the row's node.
 * @property {boolean} open
 * @property {number} [hidden] How many children more than are shown, where the row says that.
 * @property {number} [bytes] Of those.
 */

// The children of a level beyond this number are shown on demand.
const CHILDREN = 60;
// A click shows this many more. A row for each of a million layers would block the browser.
const MORE = 1000;
// Rows drawn in one part of the page's work: a few milliseconds of layout.
const PART_ROWS = 10;
// Levels with at least this share of all bytes are open at first.
const OPEN_SHARE = 0.04;
const OPEN_DEPTH = 2;

const byBytes = (/** @type {TreeNode} */ a, /** @type {TreeNode} */ b) => b.bytes - a.bytes;

/** @type {Record<"name"|"bytes"|"own"|"share"|"bar"|"categories"|"count", Column>} */
export const COLUMNS = {
  name: { id: "name", name: () => "Level", order: (a, b) => NAMES.compare(labelOf(a), labelOf(b)) },
  bytes: { id: "bytes", name: (unit) => unit.name, order: byBytes, text: (node, _, unit) => inUnit(node.bytes, unit) },
  own: {
    id: "own", name: (unit) => `Own ${unit.name}`, order: (a, b) => b.own - a.own,
    title: "Bytes of the level without its sublevels",
    text: (node, _, unit) => (node.own > 0 ? inUnit(node.own, unit) : "–"),
  },
  share: { id: "share", name: () => "Share", order: byBytes, text: (node, whole) => formatShare(node.bytes, whole) },
  bar: { id: "bar-cell", name: () => "", order: byBytes, bar: (_, whole) => whole },
  categories: { id: "bar-cell", name: () => "Categories", title: "Shares of the categories in this row", order: byBytes, bar: (node) => node.bytes },
  count: {
    id: "count", name: () => "Count", order: (a, b) => b.count - a.count, title: "Allocations",
    text: (node) => (node.count > 0 ? formatCount(node.count) : "–"),
  },
};

/** An empty bar; patchBar() fills it. */
export const shareBar = () => h("span", { class: "share-bar", "aria-hidden": "true" });

/**
 * Shows categories side by side in a bar.
 * @param {Element} bar
 * @param {{byCategory: Float64Array}} node
 * @param {number} whole
 */
export function patchBar(bar, { byCategory }, whole) {
  let at = 0;
  byCategory.forEach((bytes, category) => {
    if (bytes <= 0 || whole <= 0) return;
    const part = bar.children[at] ?? bar.appendChild(h("i"));
    setAttribute(part, "style", `width:${((100 * bytes) / whole).toFixed(3)}%;background:var(--c${category})`);
    ++at;
  });
  while (bar.children.length > at) bar.lastElementChild?.remove();
}

/**
 * The category of a level with a single one, or -1.
 * @param {TreeNode} node
 */
function onlyCategory(node) {
  const held = [...node.byCategory.keys()].filter((category) => node.byCategory[category] > 0);
  return held.length === 1 ? held[0] : -1;
}

export class TreeTable {
  /**
   * @param {string} label
   * @param {Column[]} columns The first one names the row.
   * @param {Choice} choice
   */
  constructor(label, columns, choice) {
    this.columns = columns;
    this.choice = choice;
    this.sorted = COLUMNS.bytes.id;
    this.unit = tableUnit(0);
    this.body = h("div", { class: "rows", role: "treegrid", "aria-label": label });
    this.empty = h("p", { class: "empty gone" });
    this.heads = columns.map((column) => h(column.bar ? "span" : "button", {
      type: column.bar ? null : "button", tabindex: column.bar ? null : -1, class: `head-cell ${column.id}`, title: column.title ?? null,
      click: () => this.sortBy(column),
    }));
    const head = h("div", { class: "row row-head", role: "toolbar", "aria-label": `Sort ${label.toLowerCase()} by` }, ...this.heads);
    this.element = h("div", { class: `tree ${columns.map(({ id }) => `has-${id}`).join(" ")}` }, head, this.body, this.empty);
    this.copy = copyButton(label, () => this.asText());
    this.copy.tabIndex = -1;
    this.copy.addEventListener("keydown", (event) => this.keyOfHead(event));
    /** @type {TreeNode|null} */
    this.root = null;
    /** @type {Search|null} */
    this.search = null;
    /** @type {Set<string>} Rows that lead to a match of the search. */
    this.matches = new Set();
    /**
     * Levels that the reader opened or closed.
     * @type {Map<string, boolean>}
     */
    this.folded = new Map();
    /**
     * The number of additional rows that the reader asked for below a level.
     * @type {Map<string, number>}
     */
    this.complete = new Map();
    this.focusKey = "";
    /** Whether a row had the keyboard focus when the rows were listed. */
    this.held = false;
    /** @type {Row[]} What is on the page, from the top down. */
    this.shown = [];
    this.list = new Rows(this.body, (/** @type {Row} */ row) => this.make(row), (element, row) => this.patch(element, row));
    this.body.addEventListener("keydown", (event) => this.key(event));
    head.addEventListener("keydown", (event) => this.keyOfHead(event));
    this.body.addEventListener("click", (event) => this.click(event));
    this.showHeads();
  }

  /** @param {Column} column */
  sortBy(column) {
    if (column.bar) return;
    this.sorted = column.id;
    this.showHeads();
    this.refresh();
  }

  showHeads() {
    this.columns.forEach((column, at) => {
      setText(this.heads[at], column.name(this.unit));
      if (!column.bar) setAttribute(this.heads[at], "aria-pressed", String(column.id === this.sorted));
    });
  }

  /**
   * Call draw() afterwards until it has no rows left.
   * @param {TreeNode} root
   * @param {Search} search
   * @param {string} nothing What to say where there are no rows.
   */
  render(root, search, nothing) {
    this.root = root;
    this.search = search;
    this.unit = tableUnit(root.bytes);
    this.showHeads();
    setText(this.empty, nothing);
    this.empty.classList.toggle("gone", root.children.length > 0);
    this.matches = new Set();
    if (search.on) this.findMatches(root, "");
    this.listAll();
  }

  /** Shows the rows after sorting or folding. */
  refresh() {
    this.listAll();
    this.draw(Infinity);
  }

  listAll() {
    this.held = this.body.contains(document.activeElement);
    this.shown = [];
    if (this.root) this.listRows(this.shown, this.root.children, [], "");
    this.list.begin(this.shown.map((row) => [row.hidden ? `${row.key}\u0001` : row.key, row]));
  }

  /**
   * Shows the next rows.
   * @param {number} [limit]
   * @returns {boolean} Whether some are left.
   */
  draw(limit = PART_ROWS) {
    const left = this.list.go(limit);
    const stops = this.rows();
    const stop = stops.find((row) => row.dataset.key === this.focusKey) ?? stops[0];
    for (const row of stops) row.tabIndex = row === stop ? 0 : -1;
    // The row with the focus may be gone.
    if (stop && this.held && document.activeElement === document.body) stop.focus({ preventScroll: true });
    return left;
  }

  /** @param {TreeNode[]} nodes */
  inOrder(nodes) {
    const column = this.columns.find(({ id }) => id === this.sorted) ?? COLUMNS.bytes;
    return column.id === COLUMNS.bytes.id ? nodes : nodes.slice().sort(column.order);
  }

  /**
   * @param {TreeNode} node
   * @param {string} key
   * @returns {boolean}
   */
  findMatches(node, key) {
    let inside = false;
    for (const child of node.children) inside = this.findMatches(child, keyOf(key, child)) || inside;
    if (inside) this.matches.add(key);
    return inside || (node.parent !== null && labelOf(node).toLowerCase().includes(this.search?.needle ?? ""));
  }

  /**
   * @param {TreeNode} node
   * @param {string} key
   * @param {number} depth
   */
  isOpen(node, key, depth) {
    const chosen = this.folded.get(key);
    if (chosen !== undefined) return chosen;
    if (this.matches.has(key)) return true;
    // Repeated levels are closed at first, because one row shows them all.
    if (node.level.repeats) return false;
    // A level with a single child does not count towards the depth: it shows nothing more than that child.
    const outer = depth - (node.parent?.parent && node.parent.children.length === 1 ? 1 : 0);
    return outer <= OPEN_DEPTH && node.children.length <= CHILDREN && node.bytes >= OPEN_SHARE * (this.root?.bytes ?? 0);
  }

  /**
   * @param {Row[]} rows
   * @param {TreeNode[]} path
   * @param {string} outer Key of the row above.
   */
  listRow(rows, path, outer) {
    const node = path[path.length - 1];
    const key = keyOf(outer, node);
    const open = node.children.length > 0 && this.isOpen(node, key, path.length);
    rows.push({ key, path, open });
    if (open) this.listRows(rows, node.children, path, key);
  }

  /**
   * The children of a row, or the top level: a limited number, and a row that shows more.
   * @param {Row[]} rows
   * @param {TreeNode[]} nodes
   * @param {TreeNode[]} path
   * @param {string} key
   */
  listRows(rows, nodes, path, key) {
    const children = this.inOrder(nodes);
    const shown = children.length <= CHILDREN ? children : children.slice(0, Math.max(CHILDREN - 10, this.complete.get(key) ?? 0));
    for (const child of shown) this.listRow(rows, [...path, child], key);
    if (shown.length === children.length) return;
    const bytes = children.slice(shown.length).reduce((sum, child) => sum + child.bytes, 0);
    rows.push({ key, path, open: true, hidden: children.length - shown.length, bytes });
  }

  /** @param {Row} row */
  make({ key, path, hidden }) {
    if (hidden) return h("button", { class: "more", type: "button", "data-rest": key, style: `--level:${path.length}` });
    const { level, children } = path[path.length - 1];
    const label = h("span", { class: "label" });
    const only = level.repeats ? null : h("button", { class: "only", type: "button", tabindex: -1, "aria-label": `Show only ${level.name} on this page` });
    return h("div", { class: "row", role: "row", "aria-level": path.length, tabindex: -1, "data-key": key },
      h("span", { class: "cell name", role: "rowheader", style: `--level:${path.length - 1}` },
        h("span", { class: children.length === 0 ? "twist leaf" : "twist", "aria-hidden": "true" }), label, only),
      ...this.columns.slice(1).map((column) => h("span", { class: `cell ${column.id}`, role: "gridcell" }, column.bar ? shareBar() : null)));
  }

  /**
   * @param {HTMLElement} row
   * @param {Row} shown
   */
  patch(row, { path, open, hidden, bytes }) {
    if (hidden) {
      setText(row, `Show ${formatCount(hidden)} more, ${formatBytes(bytes ?? 0)}`);
      return;
    }
    const node = path[path.length - 1];
    const whole = this.root?.bytes ?? 0;
    const leaf = node.children.length === 0;
    const chosen = this.choice.is(path);
    row.classList.toggle("chosen", chosen);
    setAttribute(row, "aria-expanded", leaf ? null : String(open));
    setAttribute(row, "aria-selected", String(chosen));
    setAttribute(row, "title", `${path.map(labelOf).join(" › ")}\n${formatExact(node.bytes)}, ${formatShare(node.bytes, whole)} of the shown bytes`);
    const [nameCell, ...cells] = row.children;
    this.patchName(nameCell, node, leaf, open);
    const only = nameCell.querySelector(".only");
    if (only) setText(only, chosen ? "all" : "only");
    cells.forEach((cell, i) => {
      const column = this.columns[i + 1];
      if (column.bar) patchBar(/** @type {Element} */ (cell.firstElementChild), node, column.bar(node, whole));
      else if (column.text) setText(cell, column.text(node, whole, this.unit));
    });
  }

  /**
   * @param {Element} cell
   * @param {TreeNode} node
   * @param {boolean} leaf
   * @param {boolean} open
   */
  patchName(cell, node, leaf, open) {
    const [twist] = cell.children;
    twist.className = leaf ? "twist leaf" : open ? "twist open" : "twist";
    // A level with one category has its colour; a mixed one has none.
    const category = onlyCategory(node);
    const old = cell.querySelector(".swatch");
    if (old?.getAttribute("data-category") !== String(category)) {
      old?.remove();
      if (category >= 0) {
        const square = swatch(category);
        square.dataset.category = String(category);
        twist.after(square);
      }
    }
    const label = /** @type {HTMLElement} */ (cell.querySelector(".label"));
    const needle = this.search?.needle ?? "";
    const { place } = node.level;
    setNamed(label, node.level.name, needle, (text, marks) => {
      const part = named(text, marks);
      if (place) part.append(" ", h("span", { class: "class" }, place));
      return part;
    });
  }

  rows() {
    return /** @type {HTMLElement[]} */ ([...this.body.querySelectorAll(".row")]);
  }

  /** @param {string} key */
  pathOf(key) {
    return this.shown.find((row) => row.key === key)?.path ?? [];
  }

  /**
   * @param {string} key
   * @param {boolean} open
   */
  fold(key, open) {
    this.folded.set(key, open);
    this.refresh();
  }

  /** @param {MouseEvent} event */
  click(event) {
    const target = /** @type {Element} */ (event.target);
    const rest = /** @type {HTMLElement|null} */ (target.closest(".more"));
    if (rest) {
      const key = rest.dataset.rest ?? "";
      this.complete.set(key, (this.complete.get(key) ?? CHILDREN - 10) + MORE);
      this.refresh();
      return;
    }
    const row = /** @type {HTMLElement|null} */ (target.closest(".row"));
    if (!row) return;
    const key = row.dataset.key ?? "";
    const expanded = row.getAttribute("aria-expanded");
    this.focusKey = key;
    if (target.closest(".only")) this.choice.toggle(this.pathOf(key));
    else if (expanded !== null) this.fold(key, expanded === "false");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const row = /** @type {HTMLElement|null} */ (/** @type {Element} */ (event.target).closest(".row"));
    if (!row || event.target !== row) return;
    const rows = this.rows();
    const at = rows.indexOf(row);
    const key = row.dataset.key ?? "";
    const expanded = row.getAttribute("aria-expanded");
    const go = (/** @type {HTMLElement|undefined} */ next) => {
      if (!next) return;
      row.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      this.focusKey = next.dataset.key ?? "";
    };
    const level = Number(row.getAttribute("aria-level"));
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowDown: () => go(rows[at + 1]),
      ArrowUp: () => (at === 0 ? this.heads[0].focus() : go(rows[at - 1])),
      Home: () => go(rows[0]),
      End: () => go(rows[rows.length - 1]),
      ArrowRight: () => (expanded === "false" ? this.fold(key, true) : go(rows[at + 1])),
      ArrowLeft: () => (expanded === "true" ? this.fold(key, false)
        : go(rows.slice(0, at).reverse().find((other) => Number(other.getAttribute("aria-level")) < level))),
      Enter: () => { if (row.querySelector(".only")) this.choice.toggle(this.pathOf(key)); },
      " ": () => { if (expanded !== null) this.fold(key, expanded === "false"); },
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.focusKey = key;
    action();
  }

  /**
   * The arrow keys treat the heads and Copy as a row above the first one: a table is one stop of the Tab key.
   * @param {KeyboardEvent} event
   */
  keyOfHead(event) {
    const heads = [...this.heads.filter((head) => head instanceof HTMLButtonElement), this.copy];
    const at = heads.findIndex((head) => head === event.target);
    /** @type {Record<string, HTMLElement|undefined>} */
    const places = { ArrowLeft: heads[at - 1], ArrowRight: heads[at + 1], Home: heads[0], End: heads[heads.length - 1], ArrowDown: this.rows()[0] };
    const next = places[event.key];
    if (at < 0 || !next) return;
    event.preventDefault();
    next.focus();
  }

  /** The row from which the arrow keys continue. */
  focus() {
    this.rows()[0]?.focus();
  }

  /** The visible rows for a spreadsheet, with exact bytes. */
  asText() {
    const rows = this.shown.filter((row) => !row.hidden).map(({ path }) => {
      const node = path[path.length - 1];
      return [path.map(labelOf).join(" › "), node.bytes, node.own, node.count];
    });
    return [["level", "bytes", "own_bytes", "count"], ...rows];
  }
}

/**
 * @param {string} outer
 * @param {TreeNode} node
 */
const keyOf = (outer, node) => `${outer}\u0000${labelOf(node)}`;
