// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { makePage, randomNumbers } from "../dev/make_page.js";
import { Filter } from "../src/filter.js";
import { lastNotAbove } from "../src/events.js";
import { Model } from "../src/model.js";
import { UNFILTERED } from "../src/state.js";

const DURATION = 1_000_000;

function randomLives(count, seed) {
  const random = randomNumbers(seed);
  return Array.from({ length: count }, () => {
    const alloc = random(DURATION);
    const free = random(4) === 0 ? -1 : alloc + 1 + random(DURATION / 10);
    return [512 * (1 + random(100)), alloc, free, 0, random(3)];
  });
}

/** Bytes by category straight from the lives. */
function bruteForce(model, at) {
  const sums = new Array(model.categories.length).fill(0);
  for (let i = 0; i < model.lifeCount; ++i) {
    if (model.lifeAlloc[i] <= at && model.lifeFree[i] > at) {
      sums[model.lifeCategory[i]] += model.lifeBytes[i];
    }
  }
  return sums;
}

const filterOf = (model, more) => new Filter(model, { device: 0, ...UNFILTERED, ...more });
const sum = (values) => values.reduce((a, b) => a + b, 0);

test("lastNotAbove finds the last element that is not above", () => {
  const sorted = Float64Array.from([1, 3, 3, 7]);
  assert.deepEqual([0, 1, 2, 3, 6.9, 7, 9].map((value) => lastNotAbove(sorted, value)), [-1, 0, 0, 2, 2, 3, 3]);
});

test("bytes at any instant are those of the live set, across stored sums", () => {
  const model = new Model(makePage({ duration_ns: DURATION, lives: randomLives(5000, 1) }));
  for (let at = 0; at <= DURATION; at += 9973) {
    assert.deepEqual([...model.histories[0].bytesAt(at)], bruteForce(model, at), `at ${at}`);
    assert.equal(sum(model.liveAt(0, at).map((life) => model.lifeBytes[life])), sum(bruteForce(model, at)));
  }
});

test("a column shows its highest instant, and the categories there", () => {
  const model = new Model(makePage({ duration_ns: DURATION, lives: randomLives(800, 2) }));
  const [from, to, count] = [100_000, 400_000, 37];
  const columns = model.histories[0].events.sweep(from, to, count);
  const instants = [...model.lifeAlloc].filter((at) => at > from && at < to);
  for (let column = 0; column < count; ++column) {
    const start = from + ((to - from) * column) / count;
    const end = from + ((to - from) * (column + 1)) / count;
    const inside = [start, ...instants.filter((at) => at >= start && at < end)];
    const highest = Math.max(...inside.map((at) => sum(bruteForce(model, at))));
    assert.equal(columns.total[column], highest, `column ${column}`);
    const width = model.categories.length;
    assert.deepEqual([...columns.bytes.subarray(column * width, (column + 1) * width)],
      bruteForce(model, columns.at[column]));
  }
});

test("frees come before allocations of the same instant", () => {
  const model = new Model(makePage({ lives: [[100, 10, 50, 0, 0], [100, 50, -1, 0, 0]] }));
  assert.equal(model.histories[0].events.sweep(0, 1000, 1).total[0], 100);
});

const TIMELINE = {
  device: 0, groups: ["cached", "driver", "parameter", "fragmentation"], t: [100, 200, 300],
  peak: [[0, 30, 60], [10, 10, 10], [100, 80, 40], [0, 10, 20]], nvml: [[100, 111], [250, 140]],
};

test("a device's first bucket is not drawn before its time", () => {
  const history = new Model(makePage({ timelines: [TIMELINE] })).histories[0];
  assert.deepEqual([...history.sweepBuckets(0, 400, 4).total], [0, 110, 130, 130]);
  assert.equal(sum(history.bytesAt(50)), 0);
  assert.equal(history.highest(), 140);
  assert.deepEqual([50, 100, 249, 250].map((at) => history.nvmlAt(at)), [null, 111, 111, 140]);
});

test("what no life explains comes from the bucket, and freed blocks stay with their allocator", () => {
  const page = makePage({ timelines: [TIMELINE], lives: [[80, 100, 220, 0, 0], [20, 100, 150, 0, 0]] });
  const model = new Model(page);
  const at = (time) => Object.fromEntries([...model.histories[0].bytesAt(time)]
    .map((bytes, category) => [model.categories[category], bytes]).filter(([, bytes]) => bytes > 0));
  assert.deepEqual(at(120), { driver: 10, parameter: 100 });
  // The second life is gone: its 20 bytes are cached, for the bucket's total still stands.
  assert.deepEqual(at(160), { driver: 10, parameter: 80, cached: 20 });
  assert.deepEqual(at(210), { driver: 10, parameter: 80, cached: 30, fragmentation: 10 });
  assert.deepEqual(at(230), { driver: 10, cached: 90, fragmentation: 30 });
});

test("a segment that nothing was cut out of yet is unknown, and no other column's", () => {
  const timeline = { device: 0, groups: ["application / allocated", "fragmentation"], t: [0, 100, 200],
    peak: [[0, 8, 2], [0, 0, 6]], nvml: [] };
  const model = new Model(makePage({ timelines: [timeline], lives: [[2, 200, -1, 0, 0, "unknown", 1]] }));
  const columns = model.histories[0].columns(0, 300, 3, filterOf(model, {}));
  const width = model.categories.length;
  const bytes = [0, 1, 2].map((column) => Object.fromEntries(model.categories.map((name, at) => [name, columns.bytes[column * width + at]])
    .filter(([, value]) => value > 0)));
  assert.deepEqual(bytes, [{}, { unknown: 8 }, { "h.0.mlp": 2, fragmentation: 6 }]);
  assert.deepEqual([...columns.total], [0, 8, 8]);
});

test("lives that the page leaves out are a band of their own", () => {
  const page = makePage({
    timelines: [{ device: 0, groups: ["parameter"], t: [0, 500], peak: [[130, 100]], nvml: [] }],
    lives: [[100, 0, -1, 0, 0]], left_out: { count: 3, peak_bytes: 30 },
  });
  const model = new Model(page);
  const listed = model.categoryIndex.get("not listed");
  assert.equal(model.histories[0].bytesAt(100)[listed], 30);
  assert.equal(model.histories[0].bytesAt(600)[listed], 0);
});


test("the picture of what passes a filter is that of a page without the rest", () => {
  const lives = randomLives(900, 3);
  const model = new Model(makePage({ duration_ns: DURATION, lives }));
  const filter = filterOf(model, { categories: ["activation"], min: 20_000 });
  const kept = new Model(makePage({ duration_ns: DURATION, lives: lives.filter((life) => life[4] === 1 && life[0] >= 20_000) }));
  const [shown, expected] = [model, kept].map((each) =>
    each.histories[0].columns(100_000, 900_000, 50, each === model ? filter : filterOf(each, {})));
  assert.deepEqual([...shown.total], [...expected.total]);
  assert.deepEqual([...shown.at], [...expected.at]);
  assert.ok(Math.max(...shown.total) > 0);
});

test("slack is drawn where its category is chosen, and not beside a narrower filter", () => {
  const page = makePage({ timelines: [TIMELINE], lives: [[80, 100, 220, 0, 0], [20, 100, 150, 0, 0]] });
  const model = new Model(page);
  const total = (more) => model.histories[0].columns(110, 111, 1, filterOf(model, more)).total[0];
  assert.equal(total({}), 110);
  assert.equal(total({ categories: ["driver"] }), 10);
  assert.equal(total({ categories: ["driver", "parameter"] }), 110);
  assert.equal(total({ categories: ["driver", "parameter"], min: 50 }), 80);
});
