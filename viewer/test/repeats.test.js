// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { asTsv, shellQuoted } from "../src/dom/clipboard.js";
import { foldRepeated, foldTree, rangeText, splitNumbers } from "../src/base/repeats.js";
import { Trie, fold } from "../src/base/trie.js";

test("numbers count layers where they are whole parts, or end one behind an underline", () => {
  assert.deepEqual(splitNumbers("blocks.3.attn"), { shape: "blocks.#.attn", numbers: [3] });
  assert.deepEqual(splitNumbers("encoder_layer_12.0"), { shape: "encoder_layer_#.#", numbers: [12, 0] });
  assert.deepEqual(splitNumbers("conv1.norm2d"), { shape: "conv1.norm2d", numbers: [] });
  assert.deepEqual(splitNumbers("h.1234567890"), { shape: "h.1234567890", numbers: [] });
});

test("ranges", () => {
  assert.deepEqual([[3], [0, 1], [0, 1, 2, 3], [5, 0, 2, 3, 4], [1, 3, 5, 7, 9, 11]].map(rangeText),
    ["3", "[0,1]", "[0-3]", "[0,2-5]", "[1,3,5,7,...]"]);
});

const layer = (name, bytes, type = "Block", holds = "1") => ({ name, bytes, type, holds });
const folded = (items) => foldRepeated(items, (item) => item).map(({ name, items: of }) => [name, of.length]);

test("layers fold that differ in numbers alone, within a hundredth", () => {
  const blocks = Array.from({ length: 12 }, (_, i) => layer(`blocks.${11 - i}`, 1000 - i % 3));
  assert.deepEqual(folded([layer("head", 2000), ...blocks]), [["head", 1], ["blocks.[0-11]", 12]]);
  assert.deepEqual(foldRepeated(blocks, (item) => item)[0].items.map(({ name }) => name),
    Array.from({ length: 12 }, (_, i) => `blocks.${i}`));
  assert.deepEqual(folded([layer("a.0", 1000), layer("a.1", 989)]), [["a.0", 1], ["a.1", 1]]);
  assert.deepEqual(folded([layer("a.0", 1000), layer("a.1", 1000, "Linear")]), [["a.0", 1], ["a.1", 1]]);
  assert.deepEqual(folded([layer("a.0", 1000), layer("a.1", 1000, "Block", "2")]), [["a.0", 1], ["a.1", 1]]);
  assert.deepEqual(folded([layer("a#.0", 1000), layer("a#.1", 1000)]), [["a#.0", 1], ["a#.1", 1]]);
});

test("repeated levels of a tree stand below one, and nothing is lost", () => {
  const trie = new Trie();
  const shares = Array.from({ length: 12 }, (_, i) => ({
    path: trie.step(trie.step(trie.step(0, "blocks"), String(i), { place: "Block" }), "mlp"), bytes: 100, count: 2, category: 0,
  }));
  const root = foldTree(fold(trie, shares, 1));
  const [blocks] = root.children;
  assert.deepEqual(blocks.children.map(({ level, bytes, count, own }) => [level.name, level.place, level.repeats, bytes, count, own]),
    [["[0-11]", "Block x12", 12, 1200, 24, 0]]);
  assert.deepEqual(blocks.children[0].children.map(({ level, parent }) => [level.name, parent === blocks.children[0]]),
    Array.from({ length: 12 }, (_, i) => [String(i), true]));
  assert.equal(blocks.children[0].children[2].children[0].level.name, "mlp");
});

test("cells stay cells, arguments stay arguments", () => {
  assert.equal(asTsv([["a", 1], ["b\tc\n", 2]]), "a\t1\nb c \t2\n");
  assert.deepEqual(["a.vram", "module=h.0/x", "it's", "a b", ""].map(shellQuoted), ["a.vram", "module=h.0/x", "'it'\\''s'", "'a b'", "''"]);
});
