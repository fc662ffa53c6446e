// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { heaviestOf } from "../src/lifetimes.js";

test("of too many allocations the heaviest are drawn, of equal ones the first", () => {
  const weights = [3, 9, 3, 1, 3, 10];
  const pick = (limit) => heaviestOf([0, 1, 2, 3, 4, 5], (i) => weights[i], limit);
  assert.deepEqual(pick(6), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(pick(5), [0, 1, 2, 4, 5]);
  assert.deepEqual(pick(4), [0, 1, 2, 5]);
  assert.deepEqual(pick(2), [1, 5]);
  assert.deepEqual(pick(1), [5]);
});
