// SPDX-License-Identifier: Apache-2.0
// Work that can wait, a part a frame. So the browser lays out and paints one part at a time, and handles
// what the reader does in between.

// So long a part waits at most for a browser that is never idle.
const LATEST_MS = 200;

/** @typedef {() => (boolean|void)} Part Returns true where it has to be called again. */

export class Parts {
  /** @param {(busy: boolean) => void} tell Called where work begins, and where all is done. */
  constructor(tell) {
    this.tell = tell;
    /** @type {Part[]} What is still to be done. */
    this.left = [];
    this.asked = false;
  }

  /**
   * Takes the place of what is left of the last work.
   * @param {Part[]} parts
   */
  begin(parts) {
    this.left = parts;
    this.tell(true);
    this.ask();
  }

  cancel() {
    this.left = [];
    this.tell(false);
  }

  /** Does at once what is left. */
  finish() {
    while (this.left.length > 0) this.next();
    this.tell(false);
  }

  next() {
    const [part] = this.left;
    // It may have begun other work in its place.
    if (part() !== true && this.left[0] === part) this.left.shift();
  }

  /** Waits for a frame with the last part's changes, then for an idle browser. */
  ask() {
    if (this.asked) return;
    this.asked = true;
    // A page that is out of sight has no frames.
    if (document.hidden) this.whenIdle();
    else requestAnimationFrame(() => this.whenIdle());
  }

  whenIdle() {
    const go = () => this.go();
    if ("requestIdleCallback" in window) requestIdleCallback(go, { timeout: LATEST_MS });
    else setTimeout(go, 0);
  }

  go() {
    this.asked = false;
    if (this.left.length > 0) this.next();
    if (this.left.length > 0) this.ask();
    else this.tell(false);
  }
}
