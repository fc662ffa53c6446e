// SPDX-License-Identifier: Apache-2.0
// The address space at the instant: a strip for each segment with its blocks and holes, and the blocks that keep free
// memory from being returned.
import { Choice } from "../dom/choice.js";
import { DataTable } from "../dom/datatable.js";
import { h, perFrame, sized, styleColours, swatch, tip } from "../dom/dom.js";
import { formatBytes, formatCount, formatExact, formatTime } from "../base/format.js";
import { placeNameOf } from "../model/places.js";
import { Segments, joinPins, pinsOf } from "../model/segments.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/palette.js").Palette} Palette */
/** @typedef {import("../model/view.js").View} View */
/** @typedef {import("../model/segments.js").Segment} Segment */

const ROW = 26;
const STRIP = 16;
const LABEL = 250;
const SHORTEST = 40;
// Columns of the text before a strip.
const FREE_RIGHT = 158;
const BLOCKS_LEFT = 170;
const LISTED = 40;

/** @typedef {"free"|"size"|"address"} Order */

export class AddressSpace {
  /**
   * @param {Model} model
   * @param {Palette} palette
   */
  constructor(model, palette) {
    this.model = model;
    this.palette = palette;
    /** @type {Segments|null} Made on first use. */
    this.segments = null;
    /** @type {Segment[]} */
    this.shown = [];
    /** @type {Order} */
    this.order = "free";
    this.by = new Choice("Order of segments", [["free", "Most free"], ["size", "Largest"], ["address", "Address"]], (order) => {
      this.order = /** @type {Order} */ (order);
      if (this.view) this.render(this.view);
    });
    this.all = false;
    this.canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "space", role: "img" }));
    this.text = h("p", { class: "soft" });
    this.more = h("button", { class: "more", type: "button", click: () => {
      this.all = true;
      if (this.view) this.render(this.view);
    } });
    const bytes = (/** @type {string} */ name, /** @type {"bytes"|"alone"|"pinned"} */ key, /** @type {string} */ title) => ({
      name, title, value: (/** @type {import("../model/segments.js").Pin} */ pin) => pin[key],
      show: (/** @type {import("../model/segments.js").Pin} */ pin) => formatBytes(pin[key]),
    });
    /** @type {DataTable<import("../model/segments.js").Pin>} */
    this.pins = new DataTable("Blocks that keep free memory", [
      { name: "Line or layer", text: true, value: ({ name }) => name },
      bytes("Size", "bytes", "Bytes of its blocks in segments with holes"),
      { name: "Blocks", value: ({ blocks }) => blocks, show: ({ blocks }) => formatCount(blocks) },
      { name: "Segments", value: ({ segments }) => segments, show: ({ segments }) => formatCount(segments) },
      bytes("Kept alone", "alone", "Free bytes of segments whose only blocks are these: freeing them returns the segments"),
      bytes("Kept with others", "pinned", "Free bytes of all segments with one of its blocks"),
    ], { sorted: 4, folding: {
      describe: ({ name, bytes: own, blocks, alone }) => ({ name, type: String(blocks), bytes: own, holds: String(alone > 0) }),
      sum: joinPins,
    } });
    this.hint = "blocks and holes of each segment at the instant · the length of a strip is the square root of its size";
    this.copy = this.pins.copy;
    this.element = h("div", {}, h("div", { class: "tools" }, this.by.element, this.text), this.canvas, this.more,
      h("h3", { class: "space-pins" }, "Blocks that keep free memory from being returned"), this.pins.element);
    this.draw = perFrame(() => this.paint());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.describe(event));
    this.canvas.addEventListener("pointerleave", () => tip.hide());
  }

  /** @param {View} view */
  render(view) {
    this.view = view;
    this.by.show(this.order);
    this.segments = this.segments ?? new Segments(this.model);
    const segments = this.segments.at(view.device, view.at);
    if (this.order === "size") segments.sort((a, b) => b.held - a.held);
    if (this.order === "address") segments.sort((a, b) => (a.extents[0]?.[0] ?? 0) - (b.extents[0]?.[0] ?? 0));
    const sum = (/** @type {"held"|"used"|"free"} */ key) => segments.reduce((total, segment) => total + segment[key], 0);
    this.shown = this.all ? segments : segments.slice(0, LISTED);
    this.text.textContent = segments.length === 0 ? "No allocator has segments on this device at this instant."
      : `${formatCount(segments.length)} segments hold ${formatBytes(sum("held"))}: ${formatBytes(sum("used"))} in blocks, ${formatBytes(sum("free"))} free`;
    this.canvas.setAttribute("aria-label", this.text.textContent);
    this.more.textContent = `Show ${formatCount(segments.length - this.shown.length)} more segments`;
    this.more.classList.toggle("gone", this.shown.length === segments.length);
    this.pins.render(pinsOf(this.model, segments, (kind) => placeNameOf(this.model, kind) || "(no line)"), "All free memory can be returned.");
    this.draw();
  }

  get widest() {
    return this.shown.reduce((most, { held }) => Math.max(most, held), 1);
  }

  /**
   * The width follows the square root of the size, so that a segment of 2 MiB is visible beside one of gigabytes.
   * @param {Segment} segment
   */
  widthOf(segment) {
    const room = Math.max(60, this.canvas.clientWidth - this.label - 4);
    return Math.max(SHORTEST, Math.sqrt(segment.held / this.widest) * room);
  }

  get label() {
    return Math.min(LABEL, this.canvas.clientWidth * 0.45);
  }

  /**
   * The parts of a strip as shares of its length: blocks and holes.
   * @param {Segment} segment
   * @returns {{block: number, from: number, to: number}[]} Block -1: a hole; -2: blocks that are not listed.
   */
  partsOf(segment) {
    const { allocations } = this.model.page;
    const { address } = /** @type {Segments} */ (this.segments);
    /** @type {{block: number, from: number, to: number}[]} */
    const parts = [];
    let at = 0;
    const put = (/** @type {number} */ block, /** @type {number} */ bytes) => {
      if (bytes <= 0) return;
      parts.push({ block, from: at / segment.held, to: (at + bytes) / segment.held });
      at += bytes;
    };
    // Without extents only the order of the blocks is known.
    const extents = segment.extents.length > 0 && segment.unlisted === 0 ? segment.extents : [];
    let next = 0;
    for (const [begin, size] of extents) {
      let done = begin;
      for (; next < segment.blocks.length && address[segment.blocks[next]] < begin + size; ++next) {
        const i = segment.blocks[next];
        put(-1, address[i] - done);
        put(i, allocations.bytes[i]);
        done = address[i] + allocations.bytes[i];
      }
      put(-1, begin + size - done);
    }
    for (; next < segment.blocks.length; ++next) put(segment.blocks[next], allocations.bytes[segment.blocks[next]]);
    put(-2, segment.unlisted);
    put(-1, segment.held - at);
    return parts;
  }

  paint() {
    const width = this.canvas.clientWidth;
    if (width === 0) return;
    const { label } = this;
    const height = Math.max(1, this.shown.length * ROW);
    this.canvas.style.height = `${height}px`;
    const colours = styleColours();
    const context = sized(this.canvas, width, height);
    const { kinds, page } = this.model;
    context.font = `12px ${colours.font}`;
    context.textBaseline = "middle";
    this.shown.forEach((segment, row) => {
      const y = row * ROW + (ROW - STRIP) / 2;
      const size = this.widthOf(segment);
      context.fillStyle = colours.ink;
      const middle = row * ROW + ROW / 2;
      context.textAlign = "right";
      context.fillText(formatBytes(segment.held), 64, middle);
      context.fillStyle = colours.soft;
      context.fillText(segment.free > 0 ? `${formatBytes(segment.free)} free` : "full", Math.min(FREE_RIGHT, label - 8), middle, label - 76);
      context.textAlign = "left";
      // A narrow screen has no room for text.
      if (label === LABEL) context.fillText(`${formatCount(segment.blocks.length)} block${segment.blocks.length === 1 ? "" : "s"}`, BLOCKS_LEFT, middle, label - BLOCKS_LEFT - 8);
      for (const { block, from, to } of this.partsOf(segment)) {
        const kind = block >= 0 ? page.allocations.site[block] : segment.freeSite;
        context.fillStyle = block === -2 ? colours.faint : this.palette.fill(context, kinds.category[kind]);
        const room = (to - from) * size;
        context.fillRect(label + from * size, y, Math.max(0.5, room > 3 && block >= 0 ? room - 1 : room), STRIP);
      }
      context.strokeStyle = colours.line;
      context.strokeRect(label + 0.5, y + 0.5, size - 1, STRIP - 1);
    });
  }

  /** @param {PointerEvent} event */
  describe(event) {
    const segment = this.shown[Math.floor(event.offsetY / ROW)];
    const share = segment ? (event.offsetX - this.label) / this.widthOf(segment) : -1;
    const part = segment && share >= 0 && share <= 1 ? this.partsOf(segment).find(({ to }) => share <= to) : undefined;
    if (!segment) {
      tip.hide();
      return;
    }
    const { model, model: { page, kinds } } = this;
    const where = segment.extents.length > 0 ? `at 0x${segment.extents[0][0].toString(16)}` : "";
    const head = (/** @type {string} */ name, /** @type {number} */ bytes) =>
      h("div", { class: "tip-head" }, h("span", {}, name), h("b", {}, formatBytes(bytes)));
    const whole = h("div", { class: "soft" }, `segment of ${formatBytes(segment.held)} ${where}, ${formatBytes(segment.free)} free`);
    if (!part) tip.show(event.clientX, event.clientY, head("segment", segment.held), whole);
    else if (part.block < 0) {
      const bytes = Math.round((part.to - part.from) * segment.held);
      tip.show(event.clientX, event.clientY, head(part.block === -2 ? "blocks without rows" : `hole: ${model.ownCategory(segment.freeSite)}`, bytes), whole);
    } else {
      const kind = page.allocations.site[part.block];
      tip.show(event.clientX, event.clientY, head(page.names[kinds.name[kind]] || placeNameOf(model, kind) || "block", page.allocations.bytes[part.block]),
        h("div", { class: "tip-row" }, swatch(kinds.category[kind]), h("span", {}, model.categories[kinds.category[kind]]), h("span", {})),
        h("div", { class: "soft" }, `${formatExact(page.allocations.bytes[part.block])} at 0x${page.allocations.address[part.block]}, ` +
          `since ${formatTime(model.begin[part.block])}, ${page.names[kinds.line[kind]]}`), whole);
    }
  }
}
