// SPDX-License-Identifier: Apache-2.0
// All rows of the peaks as a tree. The width is the larger of A and B, the colour is the change.
import { h } from "../dom/dom.js";
import { formatBytes, formatSignedBytes } from "../base/format.js";

/** @typedef {import("./diff.js").Row} Row */

/**
 * @typedef {object} Node
 * @property {string} name
 * @property {number} a
 * @property {number} b
 * @property {number} width Sum of max(A, B) over its leaves.
 * @property {number} change Sum of |B - A| over its leaves.
 * @property {Map<string, Node>} children
 * @property {Node|null} parent
 */

/**
 * @param {string} name
 * @param {Node|null} parent
 * @returns {Node}
 */
function makeNode(name, parent) {
  return { name, a: 0, b: 0, width: 0, change: 0, children: new Map(), parent };
}

/**
 * The levels of a row: category, the layer's names, line or name.
 * @param {Row} row
 */
export function levelsOf(row) {
  const [, category, , module, name, line] = row.path;
  const layers = module === "(none)" ? [] : module.split(/[./]/);
  const last = line !== "(none)" ? line : name;
  return [category, ...layers, ...(last === "(none)" ? [] : [last])];
}

/** @param {Row[]} rows */
export function treeOf(rows) {
  const root = makeNode("all", null);
  for (const row of rows) {
    let node = root;
    for (const name of ["", ...levelsOf(row)]) {
      if (name !== "") {
        let child = node.children.get(name);
        if (!child) node.children.set(name, (child = makeNode(name, node)));
        node = child;
      }
      node.a += row.a_bytes;
      node.b += row.b_bytes;
      node.width += Math.max(row.a_bytes, row.b_bytes);
      node.change += Math.abs(row.delta_bytes);
    }
  }
  return root;
}

const ROW = 26;
const SMALLEST = 1.5; // pixels

/**
 * The relative change, -1 to 1, for the colour.
 * @param {Node} node
 */
export function strength(node) {
  return (node.b - node.a) / Math.max(1, node.a, node.b);
}

/** @param {Node} node */
function pathOf(node) {
  const names = [];
  for (let at = /** @type {Node|null} */ (node); at?.parent; at = at.parent) names.unshift(at.name);
  return names;
}

export class ChangeIcicle {
  /**
   * @param {import("./diff.js").Diff} diff
   * @param {(wanted: (row: Row) => boolean) => void} select
   */
  constructor(diff, select) {
    this.diff = diff;
    this.select = select;
    this.root = treeOf(diff.rows);
    this.focus = this.root;
    this.said = h("p", { class: "said", "aria-live": "polite" });
    this.area = h("div", { class: "icicle-area" });
    const key = h("div", { class: "legend-line" },
      ...[["less in B", "shrank-key"], ["unchanged", "steady-key"], ["more in B", "grew-key"], ["only in B", "new-key"], ["only in A", "gone-key"]]
        .map(([text, cls]) => h("span", { class: "legend-chip" }, h("span", { class: `swatch ${cls}` }), h("span", {}, text))));
    this.element = h("section", { class: "card" },
      h("div", { class: "card-head" }, h("h2", {}, "By category, layer and line"),
        h("span", { class: "hint" }, "width: max(A, B); colour: change. Click to zoom, click the top box to go back")),
      key, this.area, this.said);
  }

  draw() {
    const width = Math.max(240, this.area.clientWidth);
    /** @type {HTMLElement[]} */
    const boxes = [];
    let depth = 0;
    const add = (/** @type {Node} */ node, /** @type {number} */ x, /** @type {number} */ wide, /** @type {number} */ level) => {
      depth = Math.max(depth, level + 1);
      boxes.push(this.makeBox(node, x, wide, level));
      let from = x;
      for (const child of [...node.children.values()].sort((p, q) => q.width - p.width)) {
        const share = node.width > 0 ? (wide * child.width) / node.width : 0;
        if (share >= SMALLEST) add(child, from, share, level + 1);
        from += share;
      }
    };
    add(this.focus, 0, width, 0);
    this.area.style.height = `${depth * ROW}px`;
    this.area.replaceChildren(...boxes);
    this.say(this.focus);
  }

  /**
   * @param {Node} node
   * @param {number} x
   * @param {number} wide
   * @param {number} level
   */
  makeBox(node, x, wide, level) {
    const by = strength(node);
    const kind = node.a === 0 ? "new" : node.b === 0 ? "gone" : Math.abs(node.b - node.a) <= this.diff.threshold_bytes ? "steady" : by > 0 ? "grew" : "shrank";
    const name = node.parent ? node.name : "all";
    const box = h("button", {
      type: "button", class: `box ${kind}-box`, title: `${name}: ${this.figures(node)}`,
      style: `left:${x.toFixed(1)}px;width:${Math.max(1, wide - 1).toFixed(1)}px;top:${level * ROW}px;--by:${Math.round(30 + 70 * Math.min(1, Math.abs(by) * 1.6))}%`,
      click: () => this.zoom(node === this.focus && node.parent ? node.parent : node),
      pointerenter: () => this.say(node), focus: () => this.say(node),
    });
    if (wide > 34) box.append(wide > 150 ? `${name}  ${formatSignedBytes(node.b - node.a)}` : name);
    return box;
  }

  /** @param {Node} node */
  figures(node) {
    return `${formatBytes(node.a)} in A, ${formatBytes(node.b)} in B, ${formatSignedBytes(node.b - node.a)}`;
  }

  /** @param {Node} node */
  say(node) {
    this.said.textContent = `${pathOf(node).join(" › ") || "all"}: ${this.figures(node)}`;
  }

  /** @param {Node} node */
  zoom(node) {
    this.focus = node;
    this.draw();
    const wanted = pathOf(node);
    this.select((row) => {
      const levels = levelsOf(row);
      return wanted.every((name, i) => levels[i] === name);
    });
  }
}
