// SPDX-License-Identifier: Apache-2.0
// Search over everything that has a name: functions, files, source lines and levels of the ledger.

/** @typedef {import("./model.js").Model} Model */

export class Search {
  /**
   * @param {Model} model
   * @param {string} text
   */
  constructor(model, text) {
    this.needle = text.trim().toLowerCase();
    this.on = this.needle !== "";
    this.model = model;
    this.frame = new Uint8Array(model.frames.length);
    this.stack = new Uint8Array(model.stackParent.length);
    this.path = new Uint8Array(model.page.paths.length);
    if (this.on) this.find();
  }

  find() {
    const { model, needle } = this;
    model.frames.forEach((frame, id) => {
      const place = `${frame.name}\n${frame.file}:${frame.line}\n${frame.source}`;
      if (id > 0 && place.toLowerCase().includes(needle)) this.frame[id] = 1;
    });
    for (const id of model.stackOrder) {
      this.stack[id] = this.frame[model.stackFrame[id]] | this.stack[model.stackParent[id]];
    }
    model.page.paths.forEach((path, id) => {
      if (path.some((level) => level.toLowerCase().includes(needle))) this.path[id] = 1;
    });
  }

  /** @param {number} life */
  matches(life) {
    return this.stack[this.model.lifeStack[life]] === 1 || this.path[this.model.lifePath[life]] === 1;
  }
}
