// SPDX-License-Identifier: Apache-2.0
import { test } from "node:test";
import assert from "node:assert/strict";
import { Parts } from "../src/parts.js";

/** Idle periods come when the test says so, each with room for `parts` parts. */
function makeIdle() {
  /** @type {((deadline: {didTimeout: boolean, timeRemaining: () => number}) => void)[]} */
  const asked = [];
  const act = (/** @type {any} */ callback) => asked.push(callback);
  Object.assign(globalThis, { window: { requestIdleCallback: act }, requestIdleCallback: act });
  return {
    asked,
    pass(parts = 1) {
      let left = parts;
      asked.shift()?.({ didTimeout: false, timeRemaining: () => (--left > 0 ? 50 : 0) });
    },
  };
}

test("work is done a part at a time, and who waits is told of its end", () => {
  const idle = makeIdle();
  /** @type {string[]} */
  const done = [];
  const parts = new Parts((busy) => done.push(busy ? "begins" : "ends"));
  parts.begin([() => done.push("a"), () => done.push("b"), () => done.push("c")]);
  assert.deepEqual(done, ["begins"]);
  idle.pass();
  assert.deepEqual(done, ["begins", "a"]);
  idle.pass(5);
  assert.deepEqual(done, ["begins", "a", "b", "c", "ends"]);
  assert.equal(idle.asked.length, 0);
});

test("new work takes the place of old, and of none is asked twice", () => {
  const idle = makeIdle();
  /** @type {string[]} */
  const done = [];
  const parts = new Parts(() => {});
  parts.begin([() => done.push("old"), () => done.push("old, too")]);
  idle.pass();
  parts.begin([() => done.push("new")]);
  assert.equal(idle.asked.length, 1);
  idle.pass(5);
  assert.deepEqual(done, ["old", "new"]);
  parts.begin([() => done.push("never")]);
  parts.cancel();
  idle.pass();
  assert.deepEqual(done, ["old", "new"]);
  parts.begin([() => done.push("at"), () => done.push("once")]);
  parts.finish();
  assert.deepEqual(done, ["old", "new", "at", "once"]);
});
