// SPDX-License-Identifier: Apache-2.0
// Groups repeated layers: "blocks.[0-11]" for "blocks.0" to "blocks.11", by the rules of
// src/query/dimensions/fold_names.cc and fold_modules.cc.
import { NAMES } from "./trie.js";

/** @typedef {import("./trie.js").TreeNode} TreeNode */

const MOST_DIGITS = 9;
const MOST_RANGES = 4;
// Entries are sorted by size, so equal ones are near each other.
const LOOKS = 8;

/**
 * Splits a name from its numbers: "blocks.3.attn" becomes "blocks.#.attn" and 3.
 * @param {string} name
 */
export function splitNumbers(name) {
  /** @type {number[]} */
  const numbers = [];
  const shape = name.split(".").map((part) => {
    const found = /^(|.*_)(\d+)$/s.exec(part);
    if (!found || found[2].length > MOST_DIGITS) return part;
    numbers.push(Number(found[2]));
    return `${found[1]}#`;
  }).join(".");
  return { shape, numbers };
}

/**
 * The text of a set of numbers: "3", "[0-11]", "[0,2-5]".
 * @param {Iterable<number>} numbers
 */
export function rangeText(numbers) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  if (sorted.length === 1) return String(sorted[0]);
  /** @type {[number, number][]} */
  const ranges = [];
  for (const number of sorted) {
    const last = ranges[ranges.length - 1];
    if (last && number === last[1] + 1) last[1] = number;
    else ranges.push([number, number]);
  }
  const texts = ranges.slice(0, MOST_RANGES).map(([first, last]) =>
    (first === last ? `${first}` : `${first}${last === first + 1 ? "," : "-"}${last}`));
  return `[${texts.join(",")}${ranges.length > MOST_RANGES ? ",..." : ""}]`;
}

/**
 * @template Item
 * @typedef {object} Group
 * @property {string} name That of the item where it is one alone.
 * @property {Item[]} items In natural order of their names.
 */

/**
 * Groups items whose names differ only in numbers, ordered by the first of each.
 * @template Item
 * @param {Item[]} items Largest first.
 * @param {(item: Item) => {name: string, type: string, bytes: number, holds: string}} describe `holds`:
 *     the same text where they hold the same categories.
 * @returns {Group<Item>[]}
 */
export function foldRepeated(items, describe) {
  /** @type {{first: {bytes: number, holds: string}, shape: string, numbers: number[][], items: Item[], names: string[]}[]} */
  const groups = [];
  /** @type {Map<string, number[]>} */
  const alike = new Map();
  for (const item of items) {
    const { name, type, bytes, holds } = describe(item);
    // A name that contains the mark stays as it is.
    const { shape, numbers } = name.includes("#") ? { shape: name, numbers: [] } : splitNumbers(name);
    const key = `${shape}\u0000${type}`;
    const known = alike.get(key) ?? [];
    const found = numbers.length === 0 ? undefined : known.slice(-LOOKS).reverse().find((at) => {
      const { first } = groups[at];
      return first.holds === holds && Math.abs(first.bytes - bytes) <= Math.floor(first.bytes / 100);
    });
    if (found !== undefined) {
      groups[found].items.push(item);
      groups[found].names.push(name);
      groups[found].numbers.forEach((of, i) => of.push(numbers[i]));
      continue;
    }
    known.push(groups.length);
    alike.set(key, known);
    groups.push({ first: { bytes, holds }, shape, numbers: numbers.map((number) => [number]), items: [item], names: [name] });
  }
  return groups.map(({ shape, numbers, items: of, names }) => {
    if (of.length === 1) return { name: names[0], items: of };
    let at = 0;
    const order = names.map((_, i) => i).sort((a, b) => NAMES.compare(names[a], names[b]));
    return { name: shape.replace(/#/g, () => rangeText(numbers[at++])), items: order.map((i) => of[i]) };
  });
}

/**
 * A tree in which repeated levels are children of a level that names the group.
 * @param {TreeNode} node
 * @returns {TreeNode}
 */
export function foldTree(node) {
  const children = node.children.map(foldTree);
  const groups = foldRepeated(children, (child) => ({
    name: child.level.name, type: child.level.place, bytes: child.bytes,
    holds: [...child.byCategory.keys()].filter((category) => child.byCategory[category] > 0).join(","),
  }));
  const folded = { ...node, children: groups.map(({ name, items }) => (items.length === 1 ? items[0] : groupNode(name, items))) };
  folded.children.sort((a, b) => b.bytes - a.bytes || NAMES.compare(a.level.name, b.level.name));
  for (const child of folded.children) child.parent = folded;
  return folded;
}

/**
 * @param {string} name
 * @param {TreeNode[]} children
 * @returns {TreeNode}
 */
function groupNode(name, children) {
  const [{ id, level, depth, byCategory }] = children;
  /** @type {TreeNode} */
  const group = {
    id: -id, depth, parent: null, children, bytes: 0, own: 0, count: 0, byCategory: new Float64Array(byCategory.length),
    level: { name, place: `${level.place} x${children.length}`.trim(), frame: 0, module: "", repeats: children.length },
  };
  for (const child of children) {
    child.parent = group;
    group.bytes += child.bytes;
    group.own += child.own;
    group.count += child.count;
    child.byCategory.forEach((bytes, category) => { group.byCategory[category] += bytes; });
  }
  return group;
}
