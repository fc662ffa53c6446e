// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { levelsOf, strength, treeOf } from "../src/diff/diff_icicle.js";
import { inIterations } from "../src/diff/diff_timeline.js";

const row = (category, module, name, line, a, b) => ({
  path: ["gpu0", category, "forward", module, name, line], a_bytes: a, b_bytes: b, delta_bytes: b - a,
});

test("a row's levels are its category, its layer's names and its line or name", () => {
  assert.deepEqual(levelsOf(row("activation", "blocks.0.mlp", "(none)", "train.py:7 in f", 1, 2)),
    ["activation", "blocks", "0", "mlp", "train.py:7 in f"]);
  assert.deepEqual(levelsOf(row("parameter", "head", "head.weight", "(none)", 1, 2)), ["parameter", "head", "head.weight"]);
  assert.deepEqual(levelsOf(row("cached", "(none)", "(none)", "(none)", 1, 2)), ["cached"]);
});

test("boxes are as wide as the larger of both, and sums are exact", () => {
  const root = treeOf([row("activation", "b.0", "(none)", "x", 10, 30), row("activation", "b.1", "(none)", "x", 20, 0),
    row("parameter", "b.0", "w", "(none)", 5, 5)]);
  assert.deepEqual([root.a, root.b, root.width], [35, 35, 55]);
  const activation = root.children.get("activation");
  assert.deepEqual([activation.a, activation.b, activation.width, activation.change], [30, 30, 50, 40]);
  assert.equal(strength(activation), 0);
  assert.equal(strength(activation.children.get("b").children.get("1")), -1);
});

test("times are placed by iteration, whatever each of them takes", () => {
  const history = { duration_ns: 100, iterations: [[20, 30], [30, 70], [70, 80]] };
  assert.deepEqual([0, 10, 20, 25, 30, 50, 75, 80, 90, 100].map((time) => inIterations(history, time)),
    [-1, -0.5, 0, 0.5, 1, 1.5, 2.5, 3, 3.5, 4]);
});
