// SPDX-License-Identifier: Apache-2.0
// The live set as an icicle by module, call stack, category or owner. The width is the bytes.
import { Choice } from "../dom/choice.js";
import { formatAllocations, formatBytes, formatExact, formatShare } from "../base/format.js";
import { mix } from "../model/palette.js";
import { h, perFrame, sized, styleColours, swatch, tip } from "../dom/dom.js";
import { labelOf, labelsTo, mainCategory, nodeAt } from "../base/trie.js";
import { ORDERS } from "../model/tree_paths.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/palette.js").Palette} Palette */
/** @typedef {import("../model/state.js").Store} Store */
/** @typedef {import("../model/view.js").View} View */
/** @typedef {import("../base/trie.js").TreeNode} TreeNode */
/** @typedef {import("../model/tree_paths.js").PathBook} PathBook */

const ROW = 24;
const GAP = 1;
const STRIP = 3;
const THINNEST = 0.4;
const TINT = 0.34;
// A category with this share of a level colours it; mixed levels have no colour.
const MAIN_SHARE = 0.5;
const HINTS = {
  module: "layers", stack: "allocating lines",
  category: "purposes, then layers", owner: "requesting libraries",
};

/**
 * @typedef {object} Box
 * @property {TreeNode} node
 * @property {number} x
 * @property {number} width
 * @property {number} row
 */

export class Icicle {
  /**
   * @param {Model} model
   * @param {Palette} palette
   * @param {Store} store
   * @param {PathBook} treePaths
   */
  constructor(model, palette, store, treePaths) {
    this.model = model;
    this.palette = palette;
    this.store = store;
    this.treePaths = treePaths;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {
      class: "icicle", tabindex: 0, role: "application",
      "aria-label": "Live bytes. Arrow keys go to the next box, Enter zooms in, Escape shows all.",
    }));
    this.readout = h("p", { class: "readout", "aria-live": "polite" });
    this.mine = /** @type {HTMLInputElement} */ (h("input", {
      type: "checkbox", change: () => store.set({ mine: this.mine.checked, focus: [] }),
    }));
    this.check = h("label", { class: "check" }, this.mine, "My code only");
    const known = model.kinds.module.some((module) => module !== 0);
    this.orders = new Choice("Group by", ORDERS.filter(({ order }) => known || order !== "module").map(({ order, name }) => [order, name]),
      (order) => store.set({ by: /** @type {import("../model/tree_paths.js").Order} */ (order), focus: [] }));
    this.hint = h("span", { class: "hint" });
    this.crumbs = h("nav", { class: "crumbs", "aria-label": "Zoomed to" });
    this.scroller = h("div", { class: "icicle-scroll" }, this.canvas);
    this.element = h("section", { class: "card", "aria-label": "Icicle" },
      h("div", { class: "card-head" }, h("h2", {}, "Live set"), this.hint, this.check, this.orders.element),
      this.crumbs, this.scroller, this.readout);
    /** @type {Box[]} */
    this.boxes = [];
    /** @type {TreeNode|null} */
    this.root = null;
    /** @type {TreeNode|null} */
    this.zoomed = null;
    /** @type {TreeNode|null} */
    this.picked = null;
    this.rows = 1;
    /** The last reported width: reading it from the element would force a layout. */
    this.width = 0;
    this.draw = perFrame(() => this.paint());
    this.listen();
  }

  listen() {
    const { canvas } = this;
    new ResizeObserver(() => {
      this.width = canvas.clientWidth;
      this.paint();
    }).observe(canvas);
    canvas.addEventListener("pointermove", (event) => {
      const box = this.boxAt(event.offsetX, event.offsetY);
      this.pick(box ? box.node : null);
      if (box) this.describe(box.node, event.clientX, event.clientY);
      else tip.hide();
      canvas.style.cursor = box ? "pointer" : "";
    });
    canvas.addEventListener("pointerleave", () => {
      this.pick(null);
      tip.hide();
    });
    canvas.addEventListener("click", (event) => {
      const box = this.boxAt(event.offsetX, event.offsetY);
      if (box) this.zoom(box.node);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {View} view */
  render(view) {
    this.view = view;
    const { by, focus, mine } = this.store.state;
    this.mine.checked = mine;
    this.check.classList.toggle("gone", by !== "stack");
    this.hint.textContent = `${HINTS[by]} · click: zoom`;
    this.orders.show(by);
    const treePaths = this.treePaths.of(by, view.device, mine);
    this.root = treePaths.fold(view);
    this.rows = treePaths.depth();
    this.zoomed = nodeAt(this.root, focus);
    this.picked = null;
    tip.hide();
    this.renderCrumbs();
    this.draw();
  }

  /** The path to the zoomed node, followed by a button that filters the page by it. */
  renderCrumbs() {
    const treePath = [];
    for (let node = this.zoomed; node && node.parent; node = node.parent) treePath.unshift(node);
    const root = this.root;
    const crumbs = [h("button", { class: "crumb", type: "button", disabled: treePath.length === 0, click: () => this.zoom(null) },
      `all ${formatBytes(root?.bytes ?? 0)}`)];
    treePath.forEach((node, at) => crumbs.push(h("button", {
      class: "crumb", type: "button", disabled: at === treePath.length - 1, title: labelOf(node), click: () => this.zoom(node),
    }, node.level.name)));
    const filter = this.zoomed ? this.filterOf(this.zoomed) : null;
    if (filter) {
      crumbs.push(h("button", { class: "quiet", type: "button", click: () => this.store.set({ ...filter, focus: [] }) },
        "Filter the page by this"));
    }
    this.crumbs.replaceChildren(...crumbs);
  }

  /**
   * The narrowest filter that keeps everything in a node.
   * @param {TreeNode} node
   * @returns {Partial<import("../model/state.js").State>|null}
   */
  filterOf(node) {
    const { by } = this.store.state;
    const treePath = [];
    for (let at = /** @type {TreeNode|null} */ (node); at && at.parent; at = at.parent) treePath.unshift(at);
    if (by === "owner") return { path: treePath.map(({ level }) => level.name) };
    if (by === "stack") {
      const { frame, place, name } = node.level;
      return frame === 0 ? null : { search: place || name };
    }
    /** @type {Partial<import("../model/state.js").State>} */
    const filter = {};
    if (by === "category") filter.categories = [treePath[0].level.name];
    const module = treePath.slice().reverse().find(({ level }) => level.module !== "");
    if (module) filter.module = module.level.module;
    else if (by === "module") filter.module = "";
    return filter;
  }

  /** @param {TreeNode|null} node */
  zoom(node) {
    this.store.set({ focus: labelsTo(node) });
  }

  /** @param {TreeNode|null} node */
  pick(node) {
    if (node === this.picked) return;
    this.picked = node;
    this.tell(node ?? this.zoomed);
    this.draw();
  }

  /** @param {TreeNode} node */
  nameOf(node) {
    if (node.parent) return node.level.name;
    return this.view?.atPeak ? "live at the peak" : "live at this instant";
  }

  /** @param {TreeNode|null} node */
  tell(node) {
    const whole = this.root?.bytes ?? 0;
    if (!node || !node.parent) {
      this.readout.replaceChildren(h("span", { class: "soft" }, whole > 0
        ? `${formatBytes(whole)} in ${formatAllocations(this.root?.count ?? 0)}` : "Nothing is live here"));
      return;
    }
    const frame = this.model.frames[node.level.frame];
    this.readout.replaceChildren(
      h("b", {}, formatBytes(node.bytes)), " ", h("span", { class: "soft" }, formatShare(node.bytes, whole)), " ",
      h("span", {}, labelsTo(node).slice(node.level.frame ? -1 : 0).join(" › ")), " ",
      node.level.frame ? h("code", {}, frame.source) : "");
  }

  /**
   * @param {TreeNode} node
   * @param {number} x
   * @param {number} y
   */
  describe(node, x, y) {
    const { frame, place } = node.level;
    const source = frame === 0 ? "" : this.model.frames[frame].source;
    const rows = [];
    const order = [...node.byCategory.keys()].sort((a, b) => node.byCategory[b] - node.byCategory[a]);
    for (const c of order) {
      if (node.byCategory[c] <= 0) break;
      rows.push(h("div", { class: "tip-row" }, swatch(c), h("span", {}, this.model.categories[c]),
        h("b", {}, formatBytes(node.byCategory[c]))));
    }
    tip.show(x, y,
      h("div", { class: "tip-head" }, h("span", {}, this.nameOf(node)), h("b", {}, formatBytes(node.bytes))),
      h("div", { class: "soft" }, [place, formatExact(node.bytes),
        `${formatShare(node.bytes, this.root?.bytes ?? 0)} of the shown bytes`,
        formatAllocations(node.count)].filter(Boolean).join(" · ")),
      source ? h("code", {}, source) : "", ...rows);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  boxAt(x, y) {
    const row = Math.floor(y / ROW);
    return this.boxes.find((box) => box.row === row && x >= box.x && x < box.x + Math.max(box.width, 1)) ?? null;
  }

  /** The visible boxes: the path to the zoomed node at full width, then the levels below it. */
  layOut() {
    this.boxes = [];
    if (!this.root || this.root.bytes <= 0) return;
    const { width } = this;
    /** @type {TreeNode[]} */
    const treePath = [];
    for (let node = this.zoomed; node; node = node.parent) treePath.unshift(node);
    if (treePath.length === 0) treePath.push(this.root);
    treePath.slice(0, -1).forEach((node, row) => this.boxes.push({ node, x: 0, width, row }));
    const visit = (/** @type {TreeNode} */ node, /** @type {number} */ x, /** @type {number} */ size,
      /** @type {number} */ row) => {
      if (size < THINNEST) return;
      this.boxes.push({ node, x, width: size, row });
      let left = x;
      for (const child of node.children) {
        const share = (child.bytes / node.bytes) * size;
        visit(child, left, share, row + 1);
        left += share;
      }
    };
    visit(treePath[treePath.length - 1], 0, width, treePath.length - 1);
  }

  paint() {
    const { width } = this;
    if (width === 0) return;
    this.layOut();
    const height = (this.rows + 1) * ROW;
    this.canvas.style.height = `${height}px`;
    const colours = styleColours();
    const context = sized(this.canvas, width, height);
    context.textBaseline = "middle";
    for (const box of this.boxes) this.paintBox(context, colours, box);
    this.tell(this.picked ?? this.zoomed);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {ReturnType<typeof styleColours>} colours
   * @param {Box} box
   */
  paintBox(context, colours, box) {
    const { node, x } = box;
    const y = box.row * ROW;
    const width = Math.max(THINNEST, box.width - (box.width > 3 ? GAP : 0));
    const height = ROW - GAP;
    const found = node.parent !== null && this.isFound(node);
    const main = mainCategory(node);
    const colour = node.byCategory[main] >= MAIN_SHARE * node.bytes ? this.palette.colour(main) : colours.faint;
    const tint = colour === colours.faint ? TINT / 2 : TINT;
    const picked = node === this.picked;
    context.fillStyle = mix(colour, colours.surface, tint + (picked ? 0.18 : found ? 0.14 : 0));
    context.fillRect(x, y, width, height);
    let left = x;
    for (let c = 0; c < node.byCategory.length; ++c) {
      const size = (node.byCategory[c] / node.bytes) * width;
      if (size <= 0) continue;
      context.fillStyle = this.palette.fill(context, c);
      context.fillRect(left, y + height - STRIP, size, STRIP);
      left += size;
    }
    if (found || (picked && document.activeElement === this.canvas)) {
      context.strokeStyle = colours.accent;
      context.lineWidth = 1.5;
      if (width > 2) context.strokeRect(x + 0.75, y + 0.75, width - 1.5, height - 1.5);
    }
    if (width > 26) this.paintText(context, colours, node, x + 6, y + (height - STRIP) / 2 + 1, width - 12);
  }

  /** @param {TreeNode} node */
  isFound(node) {
    const search = this.view?.filter.search;
    if (!search?.on) return false;
    return search.frame[node.level.frame] === 1 || labelOf(node).toLowerCase().includes(search.needle);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {ReturnType<typeof styleColours>} colours
   * @param {TreeNode} node
   * @param {number} x
   * @param {number} y
   * @param {number} room
   */
  paintText(context, colours, node, x, y, room) {
    const name = this.nameOf(node);
    const { place } = node.level;
    const size = formatBytes(node.bytes);
    context.font = `12px ${colours.font}`;
    context.textAlign = "left";
    context.fillStyle = colours.ink;
    const text = fit(context, name, room);
    context.fillText(text, x, y);
    let used = context.measureText(text).width + 10;
    context.fillStyle = colours.soft;
    context.font = `11px ${colours.font}`;
    const sizeWidth = context.measureText(size).width;
    if (text === name && place && used + context.measureText(place).width < room) {
      context.fillText(place, x + used, y);
      used += context.measureText(place).width + 10;
    }
    if (text === name && used + sizeWidth < room) {
      context.textAlign = "right";
      context.fillText(size, x + room, y);
    }
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const at = this.picked ?? this.zoomed ?? this.root;
    if (!at) return;
    const siblings = at.parent ? at.parent.children : [at];
    const place = siblings.indexOf(at);
    /** @type {Record<string, () => TreeNode|null|undefined>} */
    const moves = {
      ArrowDown: () => at.children[0],
      ArrowUp: () => at.parent,
      ArrowLeft: () => siblings[place - 1],
      ArrowRight: () => siblings[place + 1],
    };
    if (moves[event.key]) {
      event.preventDefault();
      const next = moves[event.key]();
      if (next) this.pick(next);
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.zoom(at);
    } else if (event.key === "Escape") {
      event.preventDefault();
      this.zoom(null);
    }
  }
}

/**
 * Cuts a text to the width, with an ellipsis.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} room
 */
function fit(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low === 0 ? "" : `${text.slice(0, low)}…`;
}
