// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { leftText } from "../src/views/phases.js";

test("four categories of what a phase left are named, the others are a sum", () => {
  const of = (...bytes) => ({ left: bytes.map((each, at) => ({ category: "abcdef"[at], bytes: each })), left_bytes: bytes.reduce((a, b) => a + b, 0) });
  assert.equal(leftText(of()), "");
  assert.equal(leftText(of(2048, -1024)), "a +2.0 KiB, b -1.0 KiB");
  assert.equal(leftText(of(6, 5, 4, -3, 2, 1)), "a +6 B, b +5 B, c +4 B, d -3 B, others +3 B");
  assert.equal(leftText(of(6, 5, 4, -3, 2, -2)), "a +6 B, b +5 B, c +4 B, d -3 B");
});
