// SPDX-License-Identifier: Apache-2.0
// Paths through levels as a trie, and sums of bytes over it, for icicles and tables.

/**
 * The name of a step of a path.
 * @typedef {object} Level
 * @property {string} name
 * @property {string} place Shown beside the name: file and line, class.
 * @property {number} frame 0: none.
 * @property {string} module The module that this level and those above it name, or "".
 * @property {number} [repeats] How many alike it stands for (repeats.js).
 */

/**
 * @typedef {object} TreeNode
 * @property {number} id In the trie. 0: all of it.
 * @property {Level} level
 * @property {number} depth
 * @property {number} bytes
 * @property {number} own Bytes right here, not in what lies within.
 * @property {number} count
 * @property {Float64Array} byCategory
 * @property {TreeNode|null} parent
 * @property {TreeNode[]} children Largest first.
 */

/**
 * @typedef {object} Share Bytes of one category at the end of a path.
 * @property {number} path
 * @property {number} bytes
 * @property {number} count
 * @property {number} category
 */

// Sorts "h.9" before "h.10".
export const NAMES = new Intl.Collator("en", { numeric: true });
// No page has more levels. The limit keeps the key of a step an exact integer.
const LEVELS = 2 ** 24;

export class Trie {
  constructor() {
    /** @type {Level[]} */
    this.levels = [{ name: "", place: "", frame: 0, module: "" }];
    // A path has a higher number than its parent.
    this.parent = [0];
    this.level = [0];
    /** @type {Map<string, number>} */
    this.levelIds = new Map();
    /** @type {Map<number, number>} */
    this.pathIds = new Map();
  }

  /**
   * The path one level below `parent`.
   * @param {number} parent
   * @param {string} name
   * @param {Partial<Level>} [more]
   */
  step(parent, name, more = {}) {
    const key = more.frame ? `${more.frame}` : `${name}\u0000${more.module ?? ""}`;
    let level = this.levelIds.get(key);
    if (level === undefined) {
      level = this.levels.length;
      this.levels.push({ name, place: "", frame: 0, module: "", ...more });
      this.levelIds.set(key, level);
    }
    const step = parent * LEVELS + level;
    let path = this.pathIds.get(step);
    if (path === undefined) {
      path = this.parent.length;
      this.parent.push(parent);
      this.level.push(level);
      this.pathIds.set(step, path);
    }
    return path;
  }
}

/**
 * @param {Trie} trie
 * @param {Iterable<Share>} shares
 * @param {number} categories
 * @returns {TreeNode}
 */
export function fold(trie, shares, categories) {
  /** @type {Map<number, TreeNode>} */
  const nodes = new Map();
  /** @type {(path: number) => TreeNode} */
  const nodeOf = (path) => {
    const known = nodes.get(path);
    if (known) return known;
    const parent = path === 0 ? null : nodeOf(trie.parent[path]);
    const node = {
      id: path, level: trie.levels[trie.level[path]], depth: parent ? parent.depth + 1 : 0, bytes: 0, own: 0,
      count: 0, byCategory: new Float64Array(categories), parent, children: [],
    };
    parent?.children.push(node);
    nodes.set(path, node);
    return node;
  };
  nodeOf(0);
  for (const { path, bytes, count, category } of shares) {
    const node = nodeOf(path);
    node.own += bytes;
    node.bytes += bytes;
    node.count += count;
    node.byCategory[category] += bytes;
  }
  const inward = [...nodes.values()].sort((a, b) => b.id - a.id);
  for (const node of inward) {
    node.children.sort((a, b) => b.bytes - a.bytes || NAMES.compare(a.level.name, b.level.name));
    const { parent } = node;
    if (!parent) continue;
    parent.bytes += node.bytes;
    parent.count += node.count;
    for (let c = 0; c < categories; ++c) parent.byCategory[c] += node.byCategory[c];
  }
  return nodeOf(0);
}

/**
 * The largest category of a node.
 * @param {{byCategory: Float64Array}} node
 */
export function mainCategory(node) {
  let best = 0;
  for (let c = 1; c < node.byCategory.length; ++c) {
    if (node.byCategory[c] > node.byCategory[best]) best = c;
  }
  return best;
}

/** @param {TreeNode} node */
export function labelOf(node) {
  return node.level.place ? `${node.level.name} ${node.level.place}` : node.level.name;
}

/**
 * The labels from the outermost level down to a node; addresses identify nodes by them.
 * @param {TreeNode|null} node
 */
export function labelsTo(node) {
  const labels = [];
  for (let at = node; at && at.parent; at = at.parent) labels.unshift(labelOf(at));
  return labels;
}

/**
 * The node with these labels, or null.
 * @param {TreeNode} root
 * @param {string[]} labels
 */
export function nodeAt(root, labels) {
  /** @type {TreeNode|undefined} */
  let at = root;
  for (const label of labels) at = at?.children.find((child) => labelOf(child) === label);
  return at && at !== root ? at : null;
}
