// SPDX-License-Identifier: Apache-2.0
import { test } from "node:test";
import assert from "node:assert/strict";
import { Parts } from "../src/parts.js";

/** Time passes, and idle periods come, when the test says so; each has room for `parts` parts. */
function makeIdle() {
  let nowMs = 0;
  Object.defineProperty(globalThis, "performance", { configurable: true, value: { now: () => nowMs } });
  /** @type {((deadline: {didTimeout: boolean, timeRemaining: () => number}) => void)[]} */
  const asked = [];
  const act = (/** @type {any} */ callback) => asked.push(callback);
  Object.assign(globalThis, { window: { requestIdleCallback: act }, requestIdleCallback: act });
  return {
    asked,
    work(/** @type {number} */ ms) { nowMs += ms; },
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

test("a part that is not done is called again, and others have their turn in between", () => {
  const idle = makeIdle();
  /** @type {string[]} */
  const done = [];
  const parts = new Parts((busy) => done.push(busy ? "begins" : "ends"));
  let left = 3;
  parts.begin([() => { done.push(`long ${left}`); return --left > 0; }, () => done.push("short")]);
  idle.pass();
  assert.deepEqual(done, ["begins", "long 3"]);
  idle.pass();
  parts.begin([() => { done.push("new"); }]);
  idle.pass(5);
  assert.deepEqual(done, ["begins", "long 3", "long 2", "begins", "new", "ends"]);
  left = 2;
  parts.begin([() => { done.push(`long ${left}`); return --left > 0; }, () => done.push("short")]);
  parts.finish();
  assert.deepEqual(done.slice(-4), ["long 2", "long 1", "short", "ends"]);
});

test("however long a browser is idle, a reader's act waits for a few milliseconds alone", () => {
  const idle = makeIdle();
  const parts = new Parts(() => {});
  let done = 0;
  const slow = () => {
    idle.work(3);
    ++done;
  };
  parts.begin(Array.from({ length: 20 }, () => slow));
  idle.pass(100);
  assert.equal(done, 2);
});
