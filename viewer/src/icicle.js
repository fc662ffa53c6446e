// SPDX-License-Identifier: Apache-2.0
// The live set by call stack: callers above, what they called below, width by bytes.
import { baseName, formatBytes, formatCount, formatShare } from "./format.js";
import { mix } from "./palette.js";
import { h, perFrame, sized, styleColours, tip } from "./dom.js";
import { foldStacks, mainCategory } from "./tree.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./palette.js").Palette} Palette */
/** @typedef {import("./state.js").Store} Store */
/** @typedef {import("./view.js").View} View */
/** @typedef {import("./search.js").Search} Search */
/** @typedef {import("./tree.js").StackNode} StackNode */

const ROW = 24;
const GAP = 1;
const STRIP = 3;
const THINNEST = 0.4;
const TINT = 0.2;

/**
 * @typedef {object} Box
 * @property {StackNode} node
 * @property {number} x
 * @property {number} width
 * @property {number} row
 */

export class Icicle {
  /**
   * @param {Model} model
   * @param {Palette} palette
   * @param {Store} store
   */
  constructor(model, palette, store) {
    this.model = model;
    this.palette = palette;
    this.store = store;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {
      class: "icicle", tabindex: 0, role: "application",
      "aria-label": "Live bytes by call stack. Arrow keys walk the stacks, Enter zooms, Escape shows all.",
    }));
    this.readout = h("p", { class: "readout", "aria-live": "polite" });
    this.mine = h("input", {
      type: "checkbox", id: "mine",
      change: () => store.set({ mine: /** @type {HTMLInputElement} */ (this.mine).checked }),
    });
    this.back = h("button", { class: "quiet hidden", type: "button", click: () => this.zoom(null) }, "Show all");
    this.scroller = h("div", { class: "icicle-scroll" }, this.canvas);
    this.element = h("section", { class: "card", "aria-label": "Call stacks" },
      h("div", { class: "card-head" }, h("h2", {}, "Call stacks"),
        h("span", { class: "hint" }, "who allocated what is live · click: zoom"),
        this.back,
        h("label", { class: "check", for: "mine" }, this.mine, "My code only")),
      this.scroller, this.readout);
    /** @type {Box[]} */
    this.boxes = [];
    /** @type {StackNode|null} */
    this.root = null;
    /** @type {StackNode|null} */
    this.zoomed = null;
    /** @type {StackNode|null} */
    this.picked = null;
    /**
     * Deepest stack of each device, with and without frames of libraries: the height does not jump
     * from instant to instant.
     */
    this.depths = model.page.devices.map((_, device) => this.deepest(device));
    this.draw = perFrame(() => this.paint());
    this.listen();
  }

  /** @param {number} device */
  deepest(device) {
    const { model } = this;
    const own = new Uint16Array(model.stackParent.length);
    for (const id of model.stackOrder) {
      own[id] = own[model.stackParent[id]] + (model.frames[model.stackFrame[id]].library ? 0 : 1);
    }
    const depth = { all: 0, mine: 0 };
    for (const life of model.histories[device].lives) {
      const stack = model.lifeStack[life];
      depth.all = Math.max(depth.all, model.stackDepth[stack]);
      depth.mine = Math.max(depth.mine, own[stack]);
    }
    return depth;
  }

  listen() {
    const { canvas } = this;
    new ResizeObserver(() => this.paint()).observe(canvas);
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

  /**
   * @param {View} view
   * @param {Search} search
   */
  render(view, search) {
    this.view = view;
    this.search = search;
    const { mine } = this.store.state;
    /** @type {HTMLInputElement} */ (this.mine).checked = mine;
    const kept = this.zoomed ? this.zoomed.stack : 0;
    this.root = foldStacks(this.model, view.live, mine, search);
    this.zoomed = kept === 0 ? null : this.find(this.root, kept);
    this.picked = null;
    this.paint();
  }

  /**
   * @param {StackNode} root
   * @param {number} stack
   * @returns {StackNode|null}
   */
  find(root, stack) {
    if (root.stack === stack) return root;
    for (const child of root.children) {
      const found = this.find(child, stack);
      if (found) return found;
    }
    return null;
  }

  /** @param {StackNode|null} node */
  zoom(node) {
    this.zoomed = node && node.stack !== 0 ? node : null;
    this.paint();
    if (node) this.pick(node);
  }

  /** @param {StackNode|null} node */
  pick(node) {
    if (node === this.picked) return;
    this.picked = node;
    this.tell(node ?? this.zoomed);
    this.draw();
  }

  /** @param {StackNode} node */
  label(node) {
    if (node.stack === 0) return { name: this.view?.atPeak ? "live at the peak" : "live then", place: "" };
    const frame = this.model.frames[node.frame];
    const place = frame.file ? `${baseName(frame.file)}${frame.line > 0 ? `:${frame.line}` : ""}` : "";
    return { name: frame.name, place };
  }

  /** @param {StackNode|null} node */
  tell(node) {
    if (!node || node.stack === 0) {
      this.readout.replaceChildren(h("span", { class: "soft" }, this.root && this.root.bytes > 0
        ? `${formatBytes(this.root.bytes)} in ${formatCount(this.root.count)} allocations` : "Nothing live here"));
      return;
    }
    const frame = this.model.frames[node.frame];
    const whole = this.root?.bytes ?? 0;
    this.readout.replaceChildren(
      h("b", {}, formatBytes(node.bytes)), " ", h("span", { class: "soft" }, formatShare(node.bytes, whole)), " ",
      h("span", {}, frame.name), " ",
      h("span", { class: "soft" }, frame.file ? `${frame.file}:${frame.line}` : ""), " ",
      h("code", {}, frame.source));
  }

  /**
   * @param {StackNode} node
   * @param {number} x
   * @param {number} y
   */
  describe(node, x, y) {
    const { name, place } = this.label(node);
    const frame = this.model.frames[node.frame];
    const rows = [];
    const order = [...node.byCategory.keys()].sort((a, b) => node.byCategory[b] - node.byCategory[a]);
    for (const c of order) {
      if (node.byCategory[c] <= 0) break;
      rows.push(h("div", { class: "tip-row" },
        h("span", { class: "swatch", style: `background:var(--c${c})` }), h("span", {}, this.model.categories[c]),
        h("b", {}, formatBytes(node.byCategory[c]))));
    }
    tip.show(x, y,
      h("div", { class: "tip-head" }, h("span", {}, name), h("b", {}, formatBytes(node.bytes))),
      h("div", { class: "soft" }, [place, `${formatShare(node.bytes, this.root?.bytes ?? 0)} of what is shown`,
        `${formatCount(node.count)} allocations`].filter(Boolean).join(" · ")),
      frame.source && node.stack !== 0 ? h("code", {}, frame.source) : "", ...rows);
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  boxAt(x, y) {
    const row = Math.floor(y / ROW);
    return this.boxes.find((box) => box.row === row && x >= box.x && x < box.x + Math.max(box.width, 1)) ?? null;
  }

  /** Boxes of what is in sight: the way down to the zoomed node at full width, then its callees. */
  layOut() {
    this.boxes = [];
    if (!this.root || this.root.bytes <= 0) return;
    const width = this.canvas.clientWidth;
    /** @type {StackNode[]} */
    const way = [];
    for (let node = this.zoomed; node; node = node.parent) way.unshift(node);
    if (way.length === 0) way.push(this.root);
    way.slice(0, -1).forEach((node, row) => this.boxes.push({ node, x: 0, width, row }));
    const visit = (/** @type {StackNode} */ node, /** @type {number} */ x, /** @type {number} */ size,
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
    visit(way[way.length - 1], 0, width, way.length - 1);
  }

  paint() {
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    this.layOut();
    const depth = this.depths[this.store.state.device];
    const height = ((this.store.state.mine ? depth.mine : depth.all) + 1) * ROW;
    this.canvas.style.height = `${height}px`;
    this.back.classList.toggle("hidden", !this.zoomed);
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
    const search = this.search;
    const found = search?.on && node.stack !== 0 && search.frame[node.frame] === 1;
    const dim = search?.on && node.found === 0;
    const main = this.palette.colour(mainCategory(node));
    const picked = node === this.picked;
    context.globalAlpha = dim ? 0.4 : 1;
    context.fillStyle = mix(main, colours.surface, picked ? TINT + 0.18 : found ? TINT + 0.14 : TINT);
    context.fillRect(x, y, width, height);
    let left = x;
    for (let c = 0; c < node.byCategory.length; ++c) {
      const size = (node.byCategory[c] / node.bytes) * width;
      if (size <= 0) continue;
      context.fillStyle = this.palette.colour(c);
      context.fillRect(left, y + height - STRIP, size, STRIP);
      left += size;
    }
    if (found || (picked && document.activeElement === this.canvas)) {
      context.strokeStyle = colours.accent;
      context.lineWidth = 1.5;
      if (width > 2) context.strokeRect(x + 0.75, y + 0.75, width - 1.5, height - 1.5);
    }
    if (width > 26) this.paintText(context, colours, node, x + 6, y + (height - STRIP) / 2 + 1, width - 12);
    context.globalAlpha = 1;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {ReturnType<typeof styleColours>} colours
   * @param {StackNode} node
   * @param {number} x
   * @param {number} y
   * @param {number} room
   */
  paintText(context, colours, node, x, y, room) {
    const { name, place } = this.label(node);
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
    /** @type {Record<string, () => StackNode|null|undefined>} */
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
 * As much of a text as fits, cut with an ellipsis.
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
