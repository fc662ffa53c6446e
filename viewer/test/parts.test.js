// SPDX-License-Identifier: Apache-2.0
import { test } from "node:test";
import assert from "node:assert/strict";
import { Parts } from "../src/base/parts.js";

/** Frames and idle periods come when the test says so. */
function makeBrowser({ hidden = false } = {}) {
  /** @type {(() => void)[]} */
  const frames = [];
  /** @type {(() => void)[]} */
  const idle = [];
  const requestIdleCallback = (/** @type {() => void} */ callback) => idle.push(callback);
  Object.assign(globalThis, {
    document: { hidden }, window: { requestIdleCallback }, requestIdleCallback,
    requestAnimationFrame: (/** @type {() => void} */ callback) => frames.push(callback),
  });
  const pass = (/** @type {(() => void)[]} */ queue) => queue.splice(0).forEach((callback) => callback());
  return { frames, idle, pass(/** @type {number} */ frameCount = 1) {
    for (let frame = 0; frame < frameCount; ++frame) {
      pass(frames);
      pass(idle);
    }
  } };
}

test("a part is done a frame, and who waits is told of the end", () => {
  const browser = makeBrowser();
  /** @type {string[]} */
  const done = [];
  const parts = new Parts((busy) => done.push(busy ? "begins" : "ends"));
  parts.begin([() => done.push("a"), () => done.push("b"), () => done.push("c")]);
  assert.deepEqual(done, ["begins"]);
  browser.pass();
  assert.deepEqual(done, ["begins", "a"], "what a part changed is drawn before the next one");
  assert.equal(browser.idle.length, 0);
  browser.pass(2);
  assert.deepEqual(done, ["begins", "a", "b", "c", "ends"]);
  assert.equal(browser.frames.length, 0);
});

test("a page that is out of sight has no frames to wait for", () => {
  const browser = makeBrowser({ hidden: true });
  /** @type {string[]} */
  const done = [];
  const parts = new Parts(() => {});
  parts.begin([() => done.push("a"), () => done.push("b")]);
  assert.equal(browser.frames.length, 0);
  browser.pass(2);
  assert.deepEqual(done, ["a", "b"]);
});

test("new work takes the place of old, and is asked for once", () => {
  const browser = makeBrowser();
  /** @type {string[]} */
  const done = [];
  const parts = new Parts(() => {});
  parts.begin([() => done.push("old"), () => done.push("old, too")]);
  browser.pass();
  parts.begin([() => done.push("new")]);
  assert.equal(browser.frames.length, 1);
  browser.pass(5);
  assert.deepEqual(done, ["old", "new"]);
  parts.begin([() => done.push("never")]);
  parts.cancel();
  browser.pass();
  assert.deepEqual(done, ["old", "new"]);
  parts.begin([() => done.push("at"), () => done.push("once")]);
  parts.finish();
  assert.deepEqual(done, ["old", "new", "at", "once"]);
});

test("a part that is not done is called again, and others have their turn in between", () => {
  const browser = makeBrowser();
  /** @type {string[]} */
  const done = [];
  const parts = new Parts((busy) => done.push(busy ? "begins" : "ends"));
  let left = 3;
  parts.begin([() => { done.push(`long ${left}`); return --left > 0; }, () => done.push("short")]);
  browser.pass();
  assert.deepEqual(done, ["begins", "long 3"]);
  browser.pass();
  parts.begin([() => { done.push("new"); }]);
  browser.pass(5);
  assert.deepEqual(done, ["begins", "long 3", "long 2", "begins", "new", "ends"]);
  left = 2;
  parts.begin([() => { done.push(`long ${left}`); return --left > 0; }, () => done.push("short")]);
  parts.finish();
  assert.deepEqual(done.slice(-4), ["long 2", "long 1", "short", "ends"]);
});
