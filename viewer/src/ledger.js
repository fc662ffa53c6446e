// SPDX-License-Identifier: Apache-2.0
// The ledger at the chosen instant: one stacked bar by category, and the folding table of its levels.
import { formatBytes, formatCount, formatExact, formatMib, formatShare, formatSignedBytes } from "./format.js";
import { h, marked, swatch, tip } from "./dom.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./state.js").Store} Store */
/** @typedef {import("./view.js").View} View */
/** @typedef {import("./view.js").LedgerNode} LedgerNode */
/** @typedef {import("./search.js").Search} Search */

// A level with more children than this shows the rest on demand.
const CHILDREN = 60;
// Levels that are open at first hold at least this share of the device.
const OPEN_SHARE = 0.04;
const OPEN_DEPTH = 2;

/** @param {string[]} path */
const keyOf = (path) => path.join("\u0000");

/**
 * @param {import("./state.js").Only|null} only
 * @param {string[]} path
 */
const isChosen = (only, path) => only !== null && "path" in only && keyOf(only.path) === keyOf(path);

export class LedgerBar {
  /**
   * @param {Model} model
   * @param {Store} store
   */
  constructor(model, store) {
    this.model = model;
    this.store = store;
    this.bar = h("div", { class: "bar", role: "group", "aria-label": "Ledger by category" });
    this.legend = h("div", { class: model.byPlace ? "legend wide" : "legend" });
    this.element = h("div", { class: "bar-block" }, this.bar, this.legend);
  }

  /** @param {string} category */
  toggle(category) {
    const { only } = this.store.state;
    const chosen = only !== null && "category" in only && only.category === category;
    this.store.set({ only: chosen ? null : { category } });
  }

  /** @param {View} view */
  render(view) {
    const { categories } = this.model;
    const { only } = this.store.state;
    const residual = view.nvml === null ? 0 : view.nvml - view.total;
    const whole = Math.max(1, view.total + Math.max(0, residual));
    const bar = [];
    const legend = [];
    categories.forEach((name, category) => {
      const bytes = view.byCategory[category];
      if (bytes <= 0) return;
      const dim = only !== null && "category" in only && only.category !== name;
      const text = `${name}: ${formatBytes(bytes)}, ${formatShare(bytes, view.total)}`;
      const attributes = {
        type: "button", "aria-pressed": String(only !== null && !dim && "category" in only),
        click: () => this.toggle(name),
      };
      bar.push(h("button", {
        ...attributes, class: dim ? "segment dim" : "segment", "aria-label": text, tabindex: -1,
        style: `flex-grow:${bytes / whole};background:var(--c${category})`,
        pointermove: (/** @type {PointerEvent} */ event) => tip.show(event.clientX, event.clientY,
          h("div", { class: "tip-head" }, h("span", {}, name), h("b", {}, formatBytes(bytes))),
          h("div", {}, `${formatShare(bytes, view.total)} of the ledger · ${formatExact(bytes)}`)),
        pointerleave: () => tip.hide(),
      }));
      legend.push(h("button", { ...attributes, class: dim ? "key dim" : "key", title: `${name}, ${formatExact(bytes)}` },
        swatch(category), h("span", { class: "key-name" }, name),
        h("span", { class: "key-value" }, formatBytes(bytes)),
        h("span", { class: "key-share" }, formatShare(bytes, view.total))));
    });
    if (view.nvml !== null) {
      if (residual > 0) {
        bar.push(h("span", { class: "segment residual", style: `flex-grow:${residual / whole}` }));
      }
      legend.push(h("span", { class: "key", title: `NVML less the ledger: ${formatExact(residual)}` },
        h("span", { class: "swatch residual" }), h("span", { class: "key-name" }, "residual"),
        h("span", { class: "key-value" }, formatSignedBytes(residual)),
        h("span", { class: "key-share" }, formatShare(Math.abs(residual), view.total))));
    }
    this.bar.replaceChildren(...bar);
    this.legend.replaceChildren(...legend);
  }
}

/**
 * A bar in which a row's categories stand side by side.
 * @param {LedgerNode} node
 * @param {number} whole
 */
function shareBar(node, whole) {
  const bar = h("span", { class: "share-bar", "aria-hidden": "true" });
  if (whole <= 0) return bar;
  node.byCategory.forEach((bytes, category) => {
    if (bytes > 0) bar.append(h("i", { style: `width:${(100 * bytes) / whole}%;background:var(--c${category})` }));
  });
  return bar;
}

export class LedgerTable {
  /**
   * @param {Store} store
   */
  constructor(store) {
    this.store = store;
    this.body = h("div", { class: "rows", role: "treegrid", "aria-label": "Ledger" });
    this.element = h("div", { class: "ledger" },
      h("div", { class: "row row-head", "aria-hidden": "true" }, h("span", {}, "Level"), h("span", { class: "num" }, "MiB"),
        h("span", { class: "num" }, "Share"), h("span", {}), h("span", { class: "num" }, "Count")),
      this.body);
    /**
     * Levels that the reader opened or closed.
     * @type {Map<string, boolean>}
     */
    this.folded = new Map();
    /** @type {Set<string>} */
    this.complete = new Set();
    this.focusKey = "";
    this.body.addEventListener("keydown", (event) => this.key(event));
  }

  /**
   * @param {View} view
   * @param {Search} search
   */
  render(view, search) {
    this.view = view;
    this.search = search;
    const held = this.body.contains(document.activeElement);
    const rows = document.createDocumentFragment();
    this.matches = search.on ? this.findMatches(view.ledger, search.needle) : new Set();
    for (const node of view.ledger.children) this.addRow(rows, node, 0, view.ledger);
    if (view.ledger.children.length === 0) {
      rows.append(h("p", { class: "empty" }, "Nothing was live on this device at this instant."));
    }
    this.body.replaceChildren(rows);
    const stops = this.rows();
    const stop = stops.find((row) => row.dataset.key === this.focusKey) ?? stops[0];
    if (stop) {
      stop.tabIndex = 0;
      if (held) stop.focus({ preventScroll: true });
    }
  }

  /**
   * Keys of the levels on the way to a name that matches.
   * @param {LedgerNode} root
   * @param {string} needle
   */
  findMatches(root, needle) {
    /** @type {Set<string>} */
    const keys = new Set();
    /** @type {(node: LedgerNode) => boolean} */
    const visit = (node) => {
      let inside = false;
      for (const child of node.children) inside = visit(child) || inside;
      if (inside) keys.add(keyOf(node.path));
      return inside || node.name.toLowerCase().includes(needle);
    };
    visit(root);
    return keys;
  }

  /**
   * @param {LedgerNode} node
   * @param {number} depth
   */
  isOpen(node, depth) {
    const key = keyOf(node.path);
    const chosen = this.folded.get(key);
    if (chosen !== undefined) return chosen;
    if (this.matches?.has(key)) return true;
    const whole = this.view?.total ?? 0;
    return depth < OPEN_DEPTH && node.children.length <= CHILDREN && node.bytes >= OPEN_SHARE * whole;
  }

  /**
   * @param {Node} rows
   * @param {LedgerNode} node
   * @param {number} depth
   * @param {LedgerNode} parent
   */
  addRow(rows, node, depth, parent) {
    const whole = this.view?.total ?? 0;
    const key = keyOf(node.path);
    const leaf = node.children.length === 0;
    const open = !leaf && this.isOpen(node, depth);
    const chosen = isChosen(this.store.state.only, node.path);
    const name = h("span", { class: "name", role: "rowheader", style: `padding-left:${depth * 20}px` },
      h("span", { class: leaf ? "twist leaf" : open ? "twist open" : "twist", "aria-hidden": "true" }),
      this.colourOf(node), h("span", { class: "label" }));
    /** @type {HTMLElement} */ (name.lastChild).append(marked(node.name, this.search?.needle ?? ""));
    const row = h("div", {
      class: chosen ? "row chosen" : "row", role: "row", "aria-level": depth + 1, tabindex: -1,
      "aria-expanded": leaf ? null : String(open), "aria-selected": String(chosen), "data-key": key,
      title: `${node.path.join(" › ")}\n${formatExact(node.bytes)}, ${formatShare(node.bytes, parent.bytes)} of ${parent.name || "the device"}`,
    },
      name,
      h("span", { class: "num", role: "gridcell" }, formatMib(node.bytes)),
      h("span", { class: "num soft", role: "gridcell" }, formatShare(node.bytes, whole)),
      shareBar(node, whole),
      h("span", { class: "num soft", role: "gridcell" }, node.count > 0 ? formatCount(node.count) : "–"),
      h("button", {
        class: "only", type: "button", tabindex: -1, "aria-label": `Show only ${node.name} below`,
        click: (/** @type {Event} */ event) => {
          event.stopPropagation();
          this.choose(node.path);
        },
      }, chosen ? "all" : "only"));
    row.addEventListener("click", () => {
      this.focusKey = key;
      if (!leaf) this.fold(key, !open);
    });
    rows.appendChild(row);
    if (!open) return;
    const shown = this.complete.has(key) ? node.children : this.inSight(node);
    for (const child of shown) this.addRow(rows, child, depth + 1, node);
    if (shown.length < node.children.length) this.addRest(rows, node, depth + 1, shown);
  }

  /**
   * Children that are listed at once: during a search those that match, where any does.
   * @param {LedgerNode} node
   */
  inSight(node) {
    const found = this.search?.on ? node.children.filter((child) => this.isFound(child)) : [];
    const from = found.length > 0 ? found : node.children;
    return from.length <= CHILDREN ? from : from.slice(0, CHILDREN - 10);
  }

  /** @param {LedgerNode} node */
  isFound(node) {
    return this.matches?.has(keyOf(node.path)) || node.name.toLowerCase().includes(this.search?.needle ?? "");
  }

  /**
   * @param {Node} rows
   * @param {LedgerNode} node
   * @param {number} depth
   * @param {LedgerNode[]} shown
   */
  addRest(rows, node, depth, shown) {
    const bytes = shown.reduce((sum, child) => sum - child.bytes, node.bytes);
    const more = h("button", {
      class: "more", type: "button", style: `margin-left:${depth * 20 + 16}px`,
      click: () => {
        this.complete.add(keyOf(node.path));
        this.refresh();
      },
    }, `Show ${formatCount(node.children.length - shown.length)} more, ${formatBytes(bytes)}`);
    rows.appendChild(more);
  }

  /**
   * A level of one category has its colour; a mixed one has none.
   * @param {LedgerNode} node
   */
  colourOf(node) {
    let found = -1;
    for (let c = 0; c < node.byCategory.length; ++c) {
      if (node.byCategory[c] <= 0) continue;
      if (found >= 0) return h("span", { class: "swatch none" });
      found = c;
    }
    return found >= 0 ? swatch(found) : h("span", { class: "swatch none" });
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

  refresh() {
    if (this.view && this.search) this.render(this.view, this.search);
  }

  /** @param {string[]} path */
  choose(path) {
    this.store.set({ only: isChosen(this.store.state.only, path) ? null : { path } });
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
      Enter: () => this.choose(key.split("\u0000")),
      " ": () => { if (expanded !== null) this.fold(key, expanded === "false"); },
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    this.focusKey = key;
    action();
  }
}
