// SPDX-License-Identifier: Apache-2.0
// Deferred work, one part in each frame. The browser can paint and handle input between the parts.

// A part waits at most this long for an idle browser.
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
   * Replaces the remaining work.
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

  /** Does the remaining work at once. */
  finish() {
    while (this.left.length > 0) this.next();
    this.tell(false);
  }

  next() {
    const [part] = this.left;
    // The part may have begun other work.
    if (part() !== true && this.left[0] === part) this.left.shift();
  }

  /** Waits for a frame with the changes of the last part, then for an idle browser. */
  ask() {
    if (this.asked) return;
    this.asked = true;
    // A hidden page has no frames.
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
