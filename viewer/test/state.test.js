// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { Store, formatHash, parseHash } from "../src/state.js";

const LIMITS = { devices: 2, duration: 1000, device: 0 };
const DEFAULT = { device: 0, at: null, search: "", only: null, zoom: null, mine: false };

test("a fragment comes back as it was written", () => {
  for (const state of [
    DEFAULT,
    { ...DEFAULT, device: 1, at: 500, search: "a b&c=#", zoom: [10, 20], mine: true },
    { ...DEFAULT, only: { category: "optimizer state" } },
    { ...DEFAULT, only: { path: ["a|b", "50%7C", "c › d"] } },
  ]) {
    assert.deepEqual(parseHash(`#${formatHash(state, 0)}`, LIMITS), state);
  }
});

test("what a fragment says wrongly is left at its default", () => {
  for (const hash of ["#device=9&at=x&zoom=5", "#device=-1&at=-5", "#at=99999&zoom=20-10", "#zoom=0-5000", "#&&=", ""]) {
    assert.deepEqual(parseHash(hash, LIMITS), DEFAULT, hash);
  }
});

test("listeners hear of changes only, and of what changed", () => {
  const store = new Store(DEFAULT);
  const heard = [];
  store.subscribe((state, changed) => heard.push([state.at, [...changed]]));
  store.set({ at: null, search: "" });
  store.set({ at: 5, search: "" });
  assert.deepEqual(heard, [[5, ["at"]]]);
});
