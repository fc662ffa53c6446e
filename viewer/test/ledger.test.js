// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { makePage, randomNumbers } from "../dev/make_page.js";
import { Ledger, Samples, fromDeltas, sortedBy } from "../src/model/ledger.js";

/** Bytes and allocations by the ledger's levels, after all that changed up to an instant. */
function at(page, time) {
  const [{ time: times, site, bytes, count }] = new Ledger(page).changes;
  const sums = {};
  for (let i = 0; i < times.length && times[i] <= time; ++i) {
    const name = page.paths[page.sites.path[site[i]]].join("/");
    const sum = sums[name] ??= [0, 0];
    sum[0] += bytes[i];
    sum[1] += count[i];
  }
  return Object.fromEntries(Object.entries(sums).filter(([, [bytes_, count_]]) => bytes_ !== 0 || count_ !== 0));
}

const SEGMENT = { path: 3, backing: 1, segment: 1 };

test("differences are undone", () => {
  assert.deepEqual([...fromDeltas([5, 0, -2, 4])], [5, 5, 3, 7]);
});

test("an allocation lives from its begin to before its end", () => {
  const page = makePage({ allocations: [[100, 10, 20], [50, 15, -1, { path: 2 }]] });
  assert.deepEqual([9, 10, 15, 19, 20].map((time) => at(page, time)), [
    {}, { "PyTorch/allocated": [100, 1] }, { "PyTorch/allocated": [100, 1], "driver-owned/context": [50, 1] },
    { "PyTorch/allocated": [100, 1], "driver-owned/context": [50, 1] }, { "driver-owned/context": [50, 1] },
  ]);
});

test("rounding stands apart and counts nothing", () => {
  const page = makePage({ allocations: [[512, 10, -1, { rounding: 12 }]] });
  assert.deepEqual(at(page, 10), { "PyTorch/allocated": [500, 1], "PyTorch/rounding": [12, 0] });
});

test("free bytes of a segment are cached, and fragmentation once something of it is in use", () => {
  const page = makePage({ segments: 1, allocations: [
    [1000, 10, 90, SEGMENT], [600, 20, 80, { segment: 1, rounding: 100 }], [400, 30, 40, { segment: 1 }]] });
  assert.deepEqual(at(page, 10), { "PyTorch/cached": [1000, 0] });
  assert.deepEqual(at(page, 20), { "PyTorch/allocated": [500, 1], "PyTorch/rounding": [100, 0], "PyTorch/fragmentation": [400, 0] });
  assert.deepEqual(at(page, 30), { "PyTorch/allocated": [900, 2], "PyTorch/rounding": [100, 0] });
  assert.deepEqual(at(page, 80), { "PyTorch/cached": [1000, 0] });
  assert.deepEqual(at(page, 90), {});
});

test("a block without device memory is no part of the device's sum, nor of its segment", () => {
  const unbacked = { segment: 1, unbacked: 1, rounding: 100 };
  const page = makePage({ segments: 1, allocations: [
    [1000, 10, 20, SEGMENT], [600, 10, 20, { segment: 1, rounding: 100 }], [600, 20, 30, unbacked], [1000, 30, -1, SEGMENT],
    [600, 30, -1, { segment: 1, rounding: 100 }]] });
  assert.deepEqual(at(page, 20), {});
  assert.deepEqual(at(page, 30), at(page, 10));
  const { time, bytes, count } = new Ledger(page).asleep[0];
  assert.deepEqual([...time], [20, 20, 30, 30]);
  assert.deepEqual([...bytes].sort((a, b) => a - b), [-500, -100, 100, 500]);
  assert.deepEqual(count.reduce((a, b) => a + b), 0);
});

test("blocks beyond what their segment holds are not free bytes below nothing", () => {
  const page = makePage({ segments: 1, allocations: [[100, 10, -1, SEGMENT], [300, 20, -1, { segment: 1 }]] });
  assert.deepEqual(at(page, 20), { "PyTorch/allocated": [300, 1] });
});

test("a counter shows what it counted where that is more than nothing", () => {
  const context = { path: 2 };
  const page = makePage({ steps: [[context, 10, 50], [context, 20, -80], [context, 30, 40], [context, 40, 5]] });
  assert.deepEqual([10, 20, 30, 40].map((time) => at(page, time)), [
    { "driver-owned/context": [50, 1] }, {}, { "driver-owned/context": [10, 1] }, { "driver-owned/context": [15, 1] }]);
  // Of no recorded process nothing is counted.
  assert.deepEqual(at(makePage({ steps: [[{ account: 2, path: 6 }, 10, 50]] }), 10), { "other processes": [50, 0] });
});

test("a counter of a segment is what that holds", () => {
  const pool = { path: 3, segment: 1 };
  const page = makePage({ segments: 1, steps: [[pool, 10, 100], [pool, 30, -60]], allocations: [[40, 20, 50, { segment: 1 }]] });
  assert.deepEqual([10, 20, 30, 50].map((time) => at(page, time)), [
    { "PyTorch/cached": [100, 0] }, { "PyTorch/allocated": [40, 1], "PyTorch/fragmentation": [60, 0] },
    { "PyTorch/allocated": [40, 1] }, { "PyTorch/cached": [40, 0] }]);
});

test("a checkpointed account has nothing, and what happens meanwhile is there when it is back", () => {
  const page = makePage({ segments: 1, checkpointed: { account: [1], begin: [30], end: [60] }, allocations: [
    [1000, 10, -1, SEGMENT], [600, 20, 40, { segment: 1 }], [7, 50, -1, { path: 2 }], [9, 5, -1, { account: 2, path: 6 }]],
  });
  assert.deepEqual(at(page, 30), { "other processes": [9, 1] });
  assert.deepEqual(at(page, 50), { "other processes": [9, 1] });
  assert.deepEqual(at(page, 60), { "other processes": [9, 1], "PyTorch/cached": [1000, 0], "driver-owned/context": [7, 1] });
  page.checkpointed.end = [-1];
  assert.deepEqual(at(page, 999), { "other processes": [9, 1] });
});

test("what is left out stands in sums at stated instants, and takes of its segment", () => {
  const page = makePage({ segments: 1, allocations: [[1000, 10, -1, SEGMENT]],
    leftOut: { count: 5, instants: [20, 40], rows: [[{ segment: 1 }, 0, 300], [{ segment: 1 }, 1, -300]] } });
  assert.deepEqual(at(page, 20), { "PyTorch/allocated": [300, 1], "PyTorch/fragmentation": [700, 0] });
  assert.deepEqual(at(page, 40), { "PyTorch/cached": [1000, 0] });
});

/** The rules again, from nothing, at one instant (src/query/core/live_set.cc). */
function bruteForce(page, time) {
  const { allocations, sites, segments, counters, steps, checkpointed } = page;
  const away = (site) => checkpointed.account.some((account, i) => account === sites.account[site] &&
    checkpointed.begin[i] <= time && (checkpointed.end[i] < 0 || time < checkpointed.end[i]));
  const bytes = new Map();
  const put = (site, more) => bytes.set(site, (bytes.get(site) ?? 0) + more);
  const of = segments.free_site.map(() => ({ held: 0, used: 0, children: 0 }));
  const begin = fromDeltas(allocations.begin);
  begin.forEach((from, i) => {
    const site = allocations.site[i];
    const to = allocations.duration[i] < 0 ? Infinity : from + allocations.duration[i];
    if (from > time || time >= to || away(site)) return;
    const segment = of[allocations.segment[i]];
    put(allocations.rounding_site[i], allocations.rounding[i]);
    const own = allocations.bytes[i] - allocations.rounding[i];
    if (sites.backing[site] === 1) {
      segment.held += own;
      return;
    }
    put(site, own);
    segment.used += allocations.bytes[i];
    segment.children += 1;
  });
  const sums = counters.site.map(() => 0);
  fromDeltas(steps.t).forEach((when, i) => {
    if (when <= time && !away(counters.site[steps.counter[i]])) sums[steps.counter[i]] += steps.bytes[i];
  });
  sums.forEach((sum, counter) => {
    if (counters.segment[counter] !== 0) of[counters.segment[counter]].held += sum;
    else if (sum > 0) put(counters.site[counter], sum);
  });
  of.forEach(({ held, used, children }, segment) => {
    if (segment > 0) put((children > 0 ? segments.free_site_in_use : segments.free_site)[segment], Math.max(0, held - used));
  });
  return Object.fromEntries([...bytes].filter(([site, sum]) => site !== 0 && sum !== 0).sort(([a], [b]) => a - b));
}

test("at random instants of random recordings the changes sum to what the rules say", () => {
  for (let seed = 1; seed <= 20; ++seed) {
    const random = randomNumbers(seed);
    const account = () => 1 + random(3);
    const allocations = Array.from({ length: 400 }, () => {
      const begin = random(1000);
      const end = random(3) === 0 ? -1 : begin + 1 + random(200);
      const backing = random(6) === 0 ? 1 : 0;
      return [100 + random(900), begin, end, { account: account(), path: backing ? 3 : random(3), backing,
        segment: random(4), rounding: random(2) * random(50), stack: random(5) }];
    });
    const steps = Array.from({ length: 60 }, () => [{ account: account(), path: 2 + random(2), segment: random(4) }, random(1000), random(400) - 150]);
    const checkpointed = { account: [1, 2, 1], begin: [200, 300, 700], end: [400, -1, 800] };
    const page = makePage({ allocations, steps, segments: 3, checkpointed, accounts: { device: [-1, 0, 0, 0], process: [0, 1, 0, 2] } });
    const [{ time, site, bytes }] = new Ledger(page).changes;
    for (let instant = 0; instant <= 1000; instant += 37) {
      const sums = new Map();
      for (let i = 0; i < time.length && time[i] <= instant; ++i) sums.set(site[i], (sums.get(site[i]) ?? 0) + bytes[i]);
      const found = Object.fromEntries([...sums].filter(([, sum]) => sum !== 0).sort(([a], [b]) => a - b));
      assert.deepEqual(found, bruteForce(page, instant), `seed ${seed}, at ${instant}`);
    }
  }
});

// Time, NVML's figure, the ledger's, low, high.
const SAMPLES = [[10, 100, 100], [50, 260, 200, 0, 80], [60, 190, 200, 50, 0], [90, 205, 200], [150, 500, 300, 0, 150]];

test("a sample belongs to the state in which it was taken, else to an equal total", () => {
  const samples = new Samples(makePage({ samples: SAMPLES, changes: [40, 80, 120] }), 0);
  assert.deepEqual(samples.find(20, 100), { at: 11, version: 0, used: 100, ledger: 100, transit: 0 });
  assert.equal(samples.find(55, 200).used, 260);
  assert.equal(samples.find(55, 200).transit, 60);
  assert.equal(samples.find(85, 200).used, 205);
  // More than the calls under way explain.
  assert.equal(samples.find(130, 300).transit, 150);
  assert.equal(new Samples(makePage({ samples: SAMPLES, changes: [5, 40, 80, 120] }), 0).find(2, 100).used, 100);
  assert.equal(new Samples(makePage({ samples: SAMPLES, changes: [5, 40, 80, 120] }), 0).find(2, 7), null);
});

test("places of times in their order", () => {
  const random = randomNumbers(5);
  for (const span of [1, 7, 70_000, 2 ** 31]) {
    const times = Float64Array.from({ length: 3000 }, () => (random(9) === 0 ? Infinity : 40 + random(span) * (span > 1e6 ? 4096 : 1)));
    const expected = [...times.keys()].sort((a, b) => (times[a] === times[b] ? a - b : times[a] - times[b]));
    assert.deepEqual([...sortedBy(times)], expected, `within ${span}`);
  }
  assert.deepEqual([...sortedBy(new Float64Array())], []);
});
