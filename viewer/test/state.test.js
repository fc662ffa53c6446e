// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { Store, UNFILTERED, formatHash, parseHash } from "../src/model/state.js";

const LIMITS = { devices: 2, duration: 1000 };
const USUAL = { device: 0, by: "module", zoom: null };
const DEFAULT = { ...USUAL, at: null, ...UNFILTERED, focus: [], mine: false, tab: "lifetimes", base: null };

test("a fragment comes back as it was written", () => {
  for (const state of [
    DEFAULT,
    { ...DEFAULT, device: 1, at: 500, search: "a b&c=#", zoom: [10, 20], mine: true },
    { ...DEFAULT, categories: ["optimizer state", "f(int, char|)"] },
    { ...DEFAULT, path: ["a|b", "50%7C", "c › d"], min: 4096 },
    { ...DEFAULT, module: "h.3.mlp", by: "stack", focus: ["main app.py:1", "f|g"] },
    { ...DEFAULT, module: "", tab: "space", base: 12 },
  ]) {
    assert.deepEqual(parseHash(`#${formatHash(state, USUAL)}`, LIMITS, USUAL), state);
  }
});

test("what a fragment says wrongly is left at its default", () => {
  for (const hash of ["#device=9&at=x&zoom=5", "#device=-1&at=-5", "#at=99999&zoom=20-10", "#zoom=0-5000", "#&&=", "",
    "#tab=x&base=-1", "#min=-4&by=colour&cat=&path=&in="]) {
    assert.deepEqual(parseHash(hash, LIMITS, USUAL), DEFAULT, hash);
  }
});

test("listeners hear of changes only, and of what changed", () => {
  const store = new Store(DEFAULT);
  const heard = [];
  store.subscribe((state, changed) => heard.push([state.at, [...changed]]));
  store.set({ at: null, search: "" });
  store.set({ at: 5, search: "" });
  assert.deepEqual(heard, [[5, ["at"]]]);
  store.set({ categories: ["a"], zoom: [0, 9] });
  store.set({ categories: ["a"], zoom: [0, 8], focus: [] });
  assert.deepEqual(heard.slice(1), [[5, ["categories", "zoom"]], [5, ["zoom"]]]);
});
