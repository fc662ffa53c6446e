// SPDX-License-Identifier: Apache-2.0
// Search over everything that has a name: functions, files, source lines, modules, parameters and
// levels of the ledger.

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
    if (this.on) this.find();
  }

  find() {
    const { model, needle } = this;
    const has = (/** @type {string} */ text) => (text.toLowerCase().includes(needle) ? 1 : 0);
    model.frames.forEach((frame, id) => {
      if (id > 0) this.frame[id] = has(`${frame.name}\n${frame.file}:${frame.line}\n${frame.source}`);
    });
    for (const id of model.stackOrder) {
      this.stack[id] = this.frame[model.stackFrame[id]] | this.stack[model.stackParent[id]];
    }
    this.path = Uint8Array.from(model.page.paths, (path) => (path.some((level) => has(level) === 1) ? 1 : 0));
    this.name = Uint8Array.from(model.page.names, has);
  }

  /** @param {number} kind */
  matches(kind) {
    const { kinds } = this.model;
    const stack = kinds.placeStack[kind];
    return this.stack[kinds.stack[kind]] === 1 || this.stack[stack] === 1 || this.path?.[kinds.path[kind]] === 1 ||
      this.name?.[kinds.line[kind]] === 1 || this.name?.[kinds.module[kind]] === 1 ||
      this.name?.[kinds.name[kind]] === 1;
  }
}
