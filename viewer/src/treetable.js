// SPDX-License-Identifier: Apache-2.0
// A table whose rows fold: keyboard, sorting, and one branch chosen. The ledger and the modules are
// such tables.
import { formatBytes, formatCount, formatExact, formatMib, formatShare } from "./format.js";
import { h, marked, swatch } from "./dom.js";
import { NAMES, labelOf } from "./trie.js";

/** @typedef {import("./trie.js").TreeNode} TreeNode */
/** @typedef {import("./search.js").Search} Search */

/**
 * @typedef {object} Column
 * @property {string} id Also the class of its cells.
 * @property {string} name
 * @property {(a: TreeNode, b: TreeNode) => number} order
 * @property {(node: TreeNode, whole: number) => string|Node} cell
 * @property {string} [title]
 */

/**
 * @typedef {object} Choice
 * @property {(path: TreeNode[]) => boolean} is
 * @property {(path: TreeNode[]) => void} toggle
 */

// A level with more children than this shows the rest on demand.
const CHILDREN = 60;
// Levels that are open at first hold at least this share of all.
const OPEN_SHARE = 0.04;
const OPEN_DEPTH = 2;
const INDENT = 18;

const byBytes = (/** @type {TreeNode} */ a, /** @type {TreeNode} */ b) => b.bytes - a.bytes;

/** @type {Record<"name"|"bytes"|"own"|"share"|"bar"|"categories"|"count", Column>} */
export const COLUMNS = {
  name: {
    id: "name", name: "Level", cell: labelOf,
    order: (a, b) => NAMES.compare(labelOf(a), labelOf(b)),
  },
  bytes: { id: "bytes", name: "MiB", order: byBytes, cell: (node) => formatMib(node.bytes) },
  own: {
    id: "own", name: "Own MiB", order: (a, b) => b.own - a.own, title: "What the level has itself, without those below it",
    cell: (node) => (node.own > 0 ? formatMib(node.own) : "–"),
  },
  share: { id: "share", name: "Share", order: byBytes, cell: (node, whole) => formatShare(node.bytes, whole) },
  bar: { id: "bar-cell", name: "", order: byBytes, cell: shareBar },
  categories: { id: "bar-cell", name: "", order: byBytes, cell: (node) => shareBar(node, node.bytes) },
  count: {
    id: "count", name: "Count", order: (a, b) => b.count - a.count, title: "Allocations",
    cell: (node) => (node.count > 0 ? formatCount(node.count) : "–"),
  },
};

/**
 * A bar in which a row's categories stand side by side.
 * @param {{byCategory: Float64Array}} node
 * @param {number} whole
 */
export function shareBar(node, whole) {
  const bar = h("span", { class: "share-bar", "aria-hidden": "true" });
  if (whole <= 0) return bar;
  node.byCategory.forEach((bytes, category) => {
    if (bytes > 0) bar.append(h("i", { style: `width:${(100 * bytes) / whole}%;background:var(--c${category})` }));
  });
  return bar;
}

/**
 * A level of one category has its colour; a mixed one has none.
 * @param {TreeNode} node
 */
function colourOf(node) {
  const held = [...node.byCategory.keys()].filter((category) => node.byCategory[category] > 0);
  return held.length === 1 ? swatch(held[0]) : null;
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
    this.body = h("div", { class: "rows", role: "treegrid", "aria-label": label });
    this.heads = columns.map((column) => h("button", {
      type: "button", class: `head-cell ${column.id}`, title: column.title ?? null,
      click: () => this.sortBy(column),
    }, column.name));
    this.element = h("div", { class: `tree ${columns.map(({ id }) => `has-${id}`).join(" ")}` },
      h("div", { class: "row row-head" }, ...this.heads), this.body);
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
    /** @type {Set<string>} */
    this.complete = new Set();
    this.focusKey = "";
    /** @type {Map<string, TreeNode[]>} Rows on the page, with those that they lie in. */
    this.rowPaths = new Map();
    this.body.addEventListener("keydown", (event) => this.key(event));
    this.showSorting();
  }

  /** @param {Column} column */
  sortBy(column) {
    if (column.name === "") return;
    this.sorted = column.id;
    this.showSorting();
    this.refresh();
  }

  showSorting() {
    this.columns.forEach((column, at) =>
      this.heads[at].setAttribute("aria-pressed", String(column.id === this.sorted)));
  }

  /**
   * @param {TreeNode} root
   * @param {Search} search
   * @param {string} nothing What to say where there are no rows.
   */
  render(root, search, nothing) {
    this.root = root;
    this.search = search;
    this.nothing = nothing;
    this.matches = new Set();
    if (search.on) this.findMatches(root, "");
    this.refresh();
  }

  refresh() {
    const root = this.root;
    if (!root) return;
    const held = this.body.contains(document.activeElement);
    const rows = document.createDocumentFragment();
    this.rowPaths.clear();
    for (const node of this.inOrder(root.children)) this.addRow(rows, [node], "");
    if (root.children.length === 0) rows.append(h("p", { class: "empty" }, this.nothing ?? ""));
    this.body.replaceChildren(rows);
    const stops = this.rows();
    const stop = stops.find((row) => row.dataset.key === this.focusKey) ?? stops[0];
    if (stop) {
      stop.tabIndex = 0;
      if (held) stop.focus({ preventScroll: true });
    }
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
    return inside || (node.depth > 0 && labelOf(node).toLowerCase().includes(this.search?.needle ?? ""));
  }

  /**
   * @param {TreeNode} node
   * @param {string} key
   */
  isOpen(node, key) {
    const chosen = this.folded.get(key);
    if (chosen !== undefined) return chosen;
    if (this.matches.has(key)) return true;
    // A level that holds nothing but another says nothing by itself.
    const depth = node.depth - (node.parent?.parent && node.parent.children.length === 1 ? 1 : 0);
    return depth <= OPEN_DEPTH && node.children.length <= CHILDREN && node.bytes >= OPEN_SHARE * (this.root?.bytes ?? 0);
  }

  /**
   * @param {Node} rows
   * @param {TreeNode[]} path Down to the row's node.
   * @param {string} outer Key of the row above.
   */
  addRow(rows, path, outer) {
    const node = path[path.length - 1];
    const whole = this.root?.bytes ?? 0;
    const key = keyOf(outer, node);
    const leaf = node.children.length === 0;
    const open = !leaf && this.isOpen(node, key);
    const chosen = this.choice.is(path);
    this.rowPaths.set(key, path);
    const label = h("span", { class: "label" }, marked(node.level.name, this.search?.needle ?? ""));
    if (node.level.place) label.append(" ", h("span", { class: "class" }, node.level.place));
    const cells = this.columns.slice(1).map((column) => h("span", { class: `cell ${column.id}`, role: "gridcell" },
      column.cell(node, whole)));
    const row = h("div", {
      class: chosen ? "row chosen" : "row", role: "row", "aria-level": path.length, tabindex: -1,
      "aria-expanded": leaf ? null : String(open), "aria-selected": String(chosen), "data-key": key,
      title: `${path.map(labelOf).join(" › ")}\n${formatExact(node.bytes)}, ${formatShare(node.bytes, whole)} of what is shown`,
    },
      h("span", { class: "cell name", role: "rowheader", style: `padding-left:${(path.length - 1) * INDENT}px` },
        h("span", { class: leaf ? "twist leaf" : open ? "twist open" : "twist", "aria-hidden": "true" }),
        colourOf(node), label,
        h("button", {
          class: "only", type: "button", tabindex: -1, "aria-label": `Show only ${node.level.name} on this page`,
          click: (/** @type {Event} */ event) => {
            event.stopPropagation();
            this.choice.toggle(path);
          },
        }, chosen ? "all" : "only")),
      ...cells);
    row.addEventListener("click", () => {
      this.focusKey = key;
      if (!leaf) this.fold(key, !open);
    });
    rows.appendChild(row);
    if (!open) return;
    const children = this.inOrder(node.children);
    const shown = this.complete.has(key) || children.length <= CHILDREN ? children : children.slice(0, CHILDREN - 10);
    for (const child of shown) this.addRow(rows, [...path, child], key);
    if (shown.length < children.length) this.addRest(rows, node, key, shown);
  }

  /**
   * @param {Node} rows
   * @param {TreeNode} node
   * @param {string} key
   * @param {TreeNode[]} shown
   */
  addRest(rows, node, key, shown) {
    const bytes = shown.reduce((sum, child) => sum - child.bytes, node.bytes - node.own);
    rows.appendChild(h("button", {
      class: "more", type: "button", style: `margin-left:${node.depth * INDENT + 16}px`,
      click: () => {
        this.complete.add(key);
        this.refresh();
      },
    }, `Show ${formatCount(node.children.length - shown.length)} more, ${formatBytes(bytes)}`));
  }

  rows() {
    return /** @type {HTMLElement[]} */ ([...this.body.querySelectorAll(".row")]);
  }

  /**
   * @param {string} key
   * @param {boolean} open
   */
  fold(key, open) {
    this.folded.set(key, open);
    this.refresh();
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
      ArrowUp: () => go(rows[at - 1]),
      Home: () => go(rows[0]),
      End: () => go(rows[rows.length - 1]),
      ArrowRight: () => (expanded === "false" ? this.fold(key, true) : go(rows[at + 1])),
      ArrowLeft: () => (expanded === "true" ? this.fold(key, false)
        : go(rows.slice(0, at).reverse().find((other) => Number(other.getAttribute("aria-level")) < level))),
      Enter: () => this.choice.toggle(this.rowPaths.get(key) ?? []),
      " ": () => { if (expanded !== null) this.fold(key, expanded === "false"); },
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.focusKey = key;
    action();
  }
}

/**
 * @param {string} outer
 * @param {TreeNode} node
 */
const keyOf = (outer, node) => `${outer}\u0000${labelOf(node)}`;
