// SPDX-License-Identifier: Apache-2.0
// Work that can wait, a part at a time while the browser is idle: between two parts it draws.

// So long the work waits at most for a browser that is never idle.
const LATEST_MS = 200;
// A part is begun where the browser has so much time left; 60 frames a second leave 16.
const ROOM_MS = 8;
// After so long an act of the reader has its turn, although an idle browser offers more.
const TURN_MS = 5;

/** @typedef {() => (boolean|void)} Part Returns true where it has to be called again. */
/** @typedef {Pick<IdleDeadline, "didTimeout"|"timeRemaining">} Deadline */

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

  ask() {
    if (this.asked) return;
    this.asked = true;
    const go = (/** @type {Deadline} */ deadline) => {
      this.asked = false;
      this.go(deadline);
    };
    if ("requestIdleCallback" in window) requestIdleCallback(go, { timeout: LATEST_MS });
    else setTimeout(() => go({ didTimeout: true, timeRemaining: () => 0 }), 0);
  }

  /** @param {Deadline} deadline */
  go(deadline) {
    const began = performance.now();
    do {
      if (this.left.length > 0) this.next();
    } while (this.left.length > 0 && deadline.timeRemaining() > ROOM_MS && performance.now() - began < TURN_MS);
    if (this.left.length > 0) this.ask();
    else this.tell(false);
  }
}
