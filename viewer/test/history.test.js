// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { makePage, randomNumbers } from "../dev/make_page.js";
import { Filter } from "../src/model/filter.js";
import { Events, lastNotAbove } from "../src/model/events.js";
import { valueAt } from "../src/model/history.js";
import { Model } from "../src/model/model.js";
import { UNFILTERED } from "../src/model/state.js";

const DURATION = 1_000_000;

function randomAllocations(count, seed) {
  const random = randomNumbers(seed);
  return Array.from({ length: count }, () => {
    const alloc = random(DURATION);
    const free = random(4) === 0 ? -1 : alloc + 1 + random(DURATION / 10);
    return [512 * (1 + random(100)), alloc, free, { path: random(3) }];
  });
}

/** Bytes by category straight from the allocations. */
function bruteForce(model, at) {
  const sums = new Array(model.categories.length).fill(0);
  for (let i = 0; i < model.allocationCount; ++i) {
    if (model.begin[i] <= at && model.end[i] > at) sums[model.kinds.category[model.page.allocations.site[i]]] += model.bytes[i];
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
  const model = new Model(makePage({ duration_ns: DURATION, allocations: randomAllocations(5000, 1) }));
  for (let at = 0; at <= DURATION; at += 9973) {
    assert.deepEqual([...model.histories[0].events.sumsAt(at)], bruteForce(model, at), `at ${at}`);
    assert.equal(sum(model.liveAt(0, at).map((i) => model.bytes[i])), sum(bruteForce(model, at)));
  }
});

test("bytes by site are the same whichever instants were asked for before", () => {
  const model = new Model(makePage({ duration_ns: DURATION, allocations: randomAllocations(5000, 4) }));
  const { events } = model.histories[0];
  const random = randomNumbers(9);
  for (let turn = 0; turn < 300; ++turn) {
    // Near the last one, as a hand goes, and far away.
    const at = turn % 3 === 0 ? random(DURATION) : Math.min(DURATION, Math.max(0, (turn * 7919) % DURATION + random(200) - 100));
    const { bytes, count } = events.sitesAt(at);
    const expected = { bytes: new Float64Array(bytes.length), count: new Float64Array(bytes.length) };
    for (const i of model.liveAt(0, at)) {
      expected.bytes[model.page.allocations.site[i]] += model.bytes[i];
      expected.count[model.page.allocations.site[i]] += 1;
    }
    assert.deepEqual({ bytes, count }, expected, `at ${at}`);
    bytes.fill(-1); // what was handed out is the caller's
  }
});

test("a column shows its highest instant, and the categories there", () => {
  const model = new Model(makePage({ duration_ns: DURATION, allocations: randomAllocations(800, 2) }));
  const [from, to, count] = [100_000, 400_000, 37];
  const columns = model.histories[0].events.sweep(from, to, count);
  const instants = [...model.begin].filter((at) => at > from && at < to);
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

test("nothing is between what happens at one time", () => {
  // A block that begins takes what was cached away; a column over all of it is never higher than the segment.
  const model = /** @type {any} */ ({ categories: ["cached", "activation"], kinds: { category: [0, 1] } });
  const changes = { time: [10, 20, 20, 30, 30], site: [0, 1, 0, 1, 0], bytes: [100, 80, -80, -80, 80], count: [0, 1, 0, -1, 0] };
  const events = new Events(model, {
    time: Float64Array.from(changes.time), site: Uint32Array.from(changes.site),
    bytes: Float64Array.from(changes.bytes), count: Float64Array.from(changes.count),
  });
  const whole = events.sweep(0, 40, 1);
  // Of equal totals that with most in use.
  assert.deepEqual([whole.total[0], whole.at[0], ...whole.bytes], [100, 20, 20, 80]);
  const parts = events.sweep(0, 40, 4);
  assert.deepEqual([...parts.total], [0, 100, 100, 100]);
  assert.deepEqual([...parts.bytes], [0, 0, 100, 0, 20, 80, 20, 80]);
});

test("frees come before allocations of the same instant", () => {
  const model = new Model(makePage({ allocations: [[100, 10, 50], [100, 50, -1]] }));
  assert.equal(model.histories[0].events.sweep(0, 1000, 1).total[0], 100);
});

const TIMELINE = {
  device: 0, groups: ["cached", "driver", "parameter", "fragmentation"], t: [100, 200, 300],
  peak: [[0, 30, 60], [10, 10, 10], [100, 80, 40], [0, 10, 20]], nvml: [[100, 111], [250, 140]],
};

test("a device's first bucket is not drawn before its time", () => {
  const history = new Model(makePage({ timelines: [TIMELINE] })).histories[0];
  assert.deepEqual([...history.sweepBuckets(0, 400, 4).total], [0, 110, 130, 130]);
  assert.equal(history.highest(), 140);
  assert.deepEqual([50, 100, 249, 250].map((at) => valueAt(history.nvml, at)), [null, 111, 111, 140]);
});

test("a counter is a line of its devices, and not of their memory", () => {
  const lines = [
    { name: "query/op #1", process: 0, devices: [0], samples: [[10, 5], [20, 900]] },
    { name: "elsewhere", process: 0, devices: [], samples: [[10, 5]] },
  ];
  const history = new Model(makePage({ timelines: [TIMELINE], lines })).histories[0];
  assert.deepEqual(history.counters.map(({ name }) => name), ["query/op #1"]);
  assert.deepEqual([9, 10, 19, 20, 400].map((at) => valueAt(history.counters[0], at)), [null, 5, 5, 900, 900]);
  assert.equal(history.highest(), 140);
});

test("where allocations are left out, a wide picture is the buckets' and a narrow one what is known", () => {
  const leftOut = { count: 2, instants: [100, 200, 300], rows: [[{ path: 0 }, 0, 70], [{ path: 0 }, 1, -70]] };
  const model = new Model(makePage({ timelines: [TIMELINE], allocations: [[30, 100, -1]], leftOut }));
  const columns = (from, to, count) => model.histories[0].columns(from, to, count, filterOf(model, {}));
  assert.deepEqual([columns(0, 400, 4).detailed, [...columns(0, 400, 4).total]], [false, [0, 110, 130, 130]]);
  assert.deepEqual([columns(100, 110, 10).detailed, columns(100, 110, 10).total[0]], [true, 100]);
  assert.deepEqual([50, 149, 151, 290, 999].map((at) => model.nearestExact(at)), [100, 100, 200, 300, 300]);
  assert.equal(new Model(makePage()).nearestExact(7), 7);
});

test("the picture of what passes a filter is that of a page without the rest", () => {
  const allocations = randomAllocations(900, 3);
  const model = new Model(makePage({ duration_ns: DURATION, allocations }));
  const filter = filterOf(model, { categories: ["activation"], min: 20_000 });
  const kept = new Model(makePage({ duration_ns: DURATION,
    allocations: allocations.filter(([bytes, , , { path }]) => path === 1 && bytes >= 20_000) }));
  const [shown, expected] = [model, kept].map((each) =>
    each.histories[0].columns(100_000, 900_000, 50, each === model ? filter : filterOf(each, {})));
  assert.deepEqual([...shown.total], [...expected.total]);
  assert.deepEqual([...shown.at], [...expected.at]);
  assert.ok(Math.max(...shown.total) > 0);
});

test("the picture of a filter is the same in parts, and from window to window", () => {
  const model = new Model(makePage({ duration_ns: DURATION, allocations: randomAllocations(3000, 5) }));
  const [history] = model.histories;
  for (const more of [{ categories: ["activation"] }, { categories: ["parameter"], min: 10_000 }, {}]) {
    const filter = filterOf(model, more);
    for (const [from, to] of [[0, DURATION], [313_000, 640_000]]) {
      const drawing = history.drawing(from, to, 70, filter);
      let parts = 1;
      while (!drawing.go(100)) ++parts;
      assert.ok(parts > 3, `${parts} parts`);
      const whole = history.columns(from, to, 70, filter);
      assert.deepEqual([drawing.columns.total, drawing.columns.bytes, drawing.columns.at], [whole.total, whole.bytes, whole.at]);
      const at = whole.at[35];
      const shown = bruteForce(model, at).map((_, category) => sum(model.liveAt(0, at)
        .filter((i) => filter.passes(i) && model.kinds.category[model.page.allocations.site[i]] === category).map((i) => model.bytes[i])));
      const width = model.categories.length;
      assert.deepEqual([...whole.bytes.subarray(35 * width, 36 * width)], shown);
    }
  }
});
