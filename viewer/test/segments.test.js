// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { joinPins, pinsOf } from "../src/model/segments.js";

const segment = (free, blocks, unlisted = 0) => ({ id: 1, held: 100, used: 100 - free, unlisted, free, freeSite: 0, blocks, extents: [] });
const NAMES = ["h.0", "h.1", "other"];
// Allocations 0 to 5 of 10 bytes, of h.0, h.0, h.1, h.1, other, h.0.
const MODEL = { page: { allocations: { site: [0, 0, 1, 1, 2, 0], bytes: [10, 10, 10, 10, 10, 10] } } };

test("layers that pin together what none of them pins alone are counted once", () => {
  const pins = pinsOf(MODEL, [segment(50, [0]), segment(30, [1, 2]), segment(7, [3, 4]), segment(0, [5])], (site) => NAMES[site]);
  const of = (name) => pins.find((pin) => pin.name === name);
  assert.deepEqual([of("h.0").alone, of("h.0").pinned, of("h.1").alone, of("h.1").pinned], [50, 80, 0, 37]);
  const joined = joinPins("h.[0,1] x2", [of("h.0"), of("h.1")]);
  assert.deepEqual([joined.bytes, joined.blocks, joined.segments, joined.alone, joined.pinned], [40, 4, 3, 80, 87]);
});

test("who has blocks that are not listed is nobody's to say", () => {
  const pins = pinsOf(MODEL, [segment(50, [0], 10)], (site) => NAMES[site]);
  assert.deepEqual([pins[0].alone, joinPins("h", pins).alone, pins[0].pinned], [0, 0, 50]);
});
