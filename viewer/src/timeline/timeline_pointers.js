// SPDX-License-Identifier: Apache-2.0
// Elements over the timeline that follow the pointer: the chosen instant, the pointer's line, the selected window. They
// are separate elements, so that moving them does not redraw the picture.
import { h } from "../dom/dom.js";
import { MARGIN } from "./axis.js";
import { CLICK_PIXELS } from "./timeline_picture.js";

/** @typedef {import("./timeline.js").Timeline} Timeline */

export class Pointers {
  constructor() {
    this.cursor = h("div", { class: "cursor" });
    this.pointed = h("div", { class: "pointed gone" });
    this.stretch = h("div", { class: "stretch gone" });
    this.element = h("div", { class: "pointers", "aria-hidden": "true" }, this.cursor, this.pointed, this.stretch);
  }

  /** @param {Timeline} timeline */
  show(timeline) {
    const { drag, hover, store: { state }, model } = timeline;
    const at = timeline.xOf(state.at ?? model.peakTime(state.device));
    const isInside = at >= MARGIN.left - 1 && at <= timeline.width - MARGIN.right + 1;
    place(this.cursor, isInside ? `translateX(${Math.round(at) - 0.75}px)` : null);
    place(this.pointed, hover >= 0 && !drag ? `translateX(${MARGIN.left + hover}px)` : null);
    const size = drag?.act === "zoom" ? Math.abs(drag.to - drag.from) : 0;
    place(this.stretch, drag && size >= CLICK_PIXELS ? `translateX(${Math.min(drag.from, drag.to)}px) scaleX(${size})` : null);
  }
}

/**
 * @param {HTMLElement} element
 * @param {string|null} transform null: hidden.
 */
function place(element, transform) {
  element.classList.toggle("gone", transform === null);
  if (transform !== null && element.style.transform !== transform) element.style.transform = transform;
}
