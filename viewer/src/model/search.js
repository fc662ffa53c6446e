// SPDX-License-Identifier: Apache-2.0
// Search in all names: functions, files, source lines, modules, parameters and levels of the ledger.

/** @typedef {import("./model.js").Model} Model */

/**
 * The searched texts in lower case.
 * @typedef {{frames: string[], paths: string[], names: string[]}} Haystacks
 * @type {WeakMap<Model, Haystacks>}
 */
const haystacks = new WeakMap();

/**
 * Made once, because every typed key searches all of it.
 * @param {Model} model
 */
export function haystacksOf(model) {
  let made = haystacks.get(model);
  if (!made) {
    made = {
      frames: model.frames.map(({ name, file, line, source }) => `${name}\n${file}:${line}\n${source}`.toLowerCase()),
      // No level contains this separator, so a text is not found across two levels.
      paths: model.page.paths.map((path) => path.join("\u0000").toLowerCase()),
      names: model.page.names.map((name) => name.toLowerCase()),
    };
    haystacks.set(model, made);
  }
  return made;
}

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
    const { frames, paths, names } = haystacksOf(model);
    frames.forEach((frame, id) => { this.frame[id] = Number(id > 0 && frame.includes(needle)); });
    for (const id of model.stackOrder) {
      this.stack[id] = this.frame[model.stackFrame[id]] | this.stack[model.stackParent[id]];
    }
    this.path = Uint8Array.from(paths, (path) => Number(path.includes(needle)));
    this.name = Uint8Array.from(names, (name) => Number(name.includes(needle)));
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
