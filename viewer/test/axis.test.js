// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { MARGIN, WindowAxis } from "../src/timeline/axis.js";

const axisOf = (/** @type {[number, number]|null} */ zoom) => new WindowAxis({ duration: 1000 },
  /** @type {any} */ ({ state: { zoom }, subscribe: () => {} }), { clientWidth: MARGIN.left + 500 + MARGIN.right, isConnected: true });

test("times and pixels are each other's inverse, within the window", () => {
  const axis = axisOf([200, 700]);
  assert.equal(axis.width, 500);
  assert.deepEqual([200, 450, 700].map((time) => axis.timeAt(axis.xOf(time))), [200, 450, 700]);
  assert.deepEqual([axis.xOf(0), axis.xOf(999)], [MARGIN.left, MARGIN.left + 500]);
  assert.deepEqual([axis.timeAt(0), axis.timeAt(1e6)], [200, 700]);
  assert.deepEqual([199, 200, 700, 701].map((time) => axis.shows(time)), [false, true, true, false]);
});

test("without a zoom all of the recording is the window, with ticks inside it", () => {
  const axis = axisOf(null);
  assert.deepEqual(axis.window, [0, 1000]);
  const ticks = axis.ticks();
  assert.ok(ticks.length > 2);
  assert.ok(ticks.every(({ x }) => x >= MARGIN.left && x <= MARGIN.left + 500));
});
