// SPDX-License-Identifier: Apache-2.0
// The live set folded by stack: what the icicle draws. A node is a stack (a frame and its callers).

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./search.js").Search} Search */

/**
 * @typedef {object} StackNode
 * @property {number} stack 0: all of it.
 * @property {number} frame
 * @property {number} depth
 * @property {number} bytes
 * @property {number} own Bytes allocated right here, not in what it calls.
 * @property {number} count
 * @property {number} found Allocations among them that match the search.
 * @property {Float64Array} byCategory
 * @property {StackNode|null} parent
 * @property {StackNode[]} children Largest first.
 */

/**
 * @param {Model} model
 * @param {number[]} live
 * @param {boolean} mine Leave out frames of libraries; their bytes stay with their callers.
 * @param {Search} search
 * @returns {StackNode}
 */
export function foldStacks(model, live, mine, search) {
  const count = model.stackParent.length;
  const categories = model.categories.length;
  /** @type {(StackNode|undefined)[]} */
  const nodes = new Array(count);
  /** @type {StackNode} */
  const root = {
    stack: 0, frame: 0, depth: 0, bytes: 0, own: 0, count: 0, found: 0,
    byCategory: new Float64Array(categories), parent: null, children: [],
  };
  // With `mine`, the nearest caller that is not a library's stands for a stack.
  const standIn = model.stackParent.slice();
  for (const id of model.stackOrder) {
    const hidden = mine && model.frames[model.stackFrame[id]].library;
    standIn[id] = hidden ? standIn[model.stackParent[id]] : id;
  }
  const parentOf = (/** @type {number} */ id) => {
    const parent = model.stackParent[id];
    return parent === 0 ? 0 : standIn[parent];
  };
  /** @type {Map<string, StackNode>} */
  const merged = new Map();
  const nodeOf = (/** @type {number} */ id) => {
    const missing = [];
    let at = id;
    for (; at !== 0 && nodes[at] === undefined; at = parentOf(at)) missing.push(at);
    let parent = at === 0 ? root : /** @type {StackNode} */ (nodes[at]);
    for (let stack = missing.pop(); stack !== undefined; stack = missing.pop()) {
      const frame = model.stackFrame[stack];
      // Hidden frames can make two stacks one.
      const key = mine ? `${parent.stack},${frame}` : "";
      let node = mine ? merged.get(key) : undefined;
      if (!node) {
        node = {
          stack, frame, depth: parent.depth + 1, bytes: 0, own: 0, count: 0, found: 0,
          byCategory: new Float64Array(categories), parent, children: [],
        };
        parent.children.push(node);
        if (mine) merged.set(key, node);
      }
      nodes[stack] = node;
      parent = node;
    }
    return parent;
  };
  for (const life of live) {
    const stack = model.lifeStack[life];
    const category = model.lifeCategory[life];
    const bytes = model.lifeBytes[life];
    const leaf = nodeOf(stack === 0 ? 0 : standIn[stack]);
    const found = search.on && search.matches(life) ? 1 : 0;
    leaf.own += bytes;
    for (let node = /** @type {StackNode|null} */ (leaf); node; node = node.parent) {
      node.bytes += bytes;
      node.count += 1;
      node.found += found;
      node.byCategory[category] += bytes;
    }
  }
  const sort = (/** @type {StackNode} */ node) => {
    node.children.sort((a, b) => b.bytes - a.bytes || a.frame - b.frame);
    node.children.forEach(sort);
  };
  sort(root);
  return root;
}

/**
 * The category that holds most of a node.
 * @param {StackNode} node
 */
export function mainCategory(node) {
  let best = 0;
  for (let c = 1; c < node.byCategory.length; ++c) {
    if (node.byCategory[c] > node.byCategory[best]) best = c;
  }
  return best;
}
