// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { makePage } from "../dev/make_page.js";
import { Filter } from "../src/model/filter.js";
import { heaviestOf, layOutLifetimes } from "../src/views/lifetimes.js";
import { Model } from "../src/model/model.js";
import { UNFILTERED } from "../src/model/state.js";

test("of too many allocations the heaviest are drawn, of equal ones the first", () => {
  const weights = [3, 9, 3, 1, 3, 10];
  const pick = (limit) => heaviestOf([0, 1, 2, 3, 4, 5], (i) => weights[i], limit);
  assert.deepEqual(pick(6), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(pick(5), [0, 1, 2, 4, 5]);
  assert.deepEqual(pick(4), [0, 1, 2, 5]);
  assert.deepEqual(pick(2), [1, 5]);
  assert.deepEqual(pick(1), [5]);
});

test("repeated layers are one band that opens", () => {
  const names = ["", "", "", "", "", "(no stack)", "a.py:1 in f", "a.py:2 in g", "blocks.0", "blocks.1", "blocks.2", "blocks.10", "head"];
  const layers = [8, 9, 10, 11].map((module) => [4096, module, 500, { module }]);
  const model = new Model(makePage({ duration_ns: 1000, names, allocations: [...layers, [64, 5, 900, { module: 12 }]] }));
  const lay = (/** @type {Set<string>} */ unfolded) => {
    const filter = new Filter(model, { device: 0, ...UNFILTERED });
    return layOutLifetimes(model, filter, 0, [0, 1000], "module", unfolded);
  };
  const folded = lay(new Set());
  assert.deepEqual(folded.bands.map(({ name, open, count }) => [name, open, count]), [["blocks.[0-2,10] x4", false, 4], ["head", null, 1]]);
  assert.equal(folded.bands[0].lanes.length, 4);
  const opened = lay(new Set(["blocks.[0-2,10] x4"]));
  assert.deepEqual(opened.bands.map(({ name, inner }) => [name, inner]),
    [["blocks.[0-2,10] x4", false], ["blocks.0", true], ["blocks.1", true], ["blocks.2", true], ["blocks.10", true], ["head", false]]);
  assert.equal(opened.bands[0].lanes.length, 0);
  assert.equal(opened.hidden, 0);
});
