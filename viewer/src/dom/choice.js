// SPDX-License-Identifier: Apache-2.0
// A choice between a few options: a row of buttons that is one stop of the Tab key.
import { h } from "./dom.js";

export class Choice {
  /**
   * @param {string} label
   * @param {[string, string][]} options Ids and names.
   * @param {(chosen: string) => void} choose
   * @param {"radio"|"tab"} [role]
   */
  constructor(label, options, choose, role = "radio") {
    this.role = role;
    this.buttons = options.map(([id, name]) => ({
      id, button: h("button", { type: "button", role, class: "segment-button", id: role === "tab" ? `tab-${id}` : null, click: () => choose(id) }, name),
    }));
    this.element = h("div", {
      class: "segmented", role: role === "tab" ? "tablist" : "radiogroup", "aria-label": label,
      keydown: (/** @type {KeyboardEvent} */ event) => this.turn(event),
    }, ...this.buttons.map(({ button }) => button));
  }

  /** @param {string} chosen */
  show(chosen) {
    for (const { id, button } of this.buttons) {
      button.setAttribute(this.role === "tab" ? "aria-selected" : "aria-checked", String(id === chosen));
      button.tabIndex = id === chosen ? 0 : -1;
    }
  }

  /** @param {KeyboardEvent} event */
  turn(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const at = this.buttons.findIndex(({ button }) => button.tabIndex === 0);
    const { button } = this.buttons[(at + step + this.buttons.length) % this.buttons.length];
    button.click();
    button.focus();
  }
}
