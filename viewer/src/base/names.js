// SPDX-License-Identifier: Apache-2.0
// Names of modules as paths: "blocks.3.attention" is inside "blocks.3". Scopes of programs without modules are separated
// by "/" instead of ".".

/** The displayed name for bytes without a module. */
export const NO_MODULE = "(no module)";

/**
 * The name with its parents, outermost first: ["h", "h.3", "h.3.mlp"].
 * @param {string} name
 */
export function prefixes(name) {
  const found = [];
  for (let at = 1; at < name.length; ++at) {
    if ((name[at] === "." || name[at] === "/") && at + 1 < name.length) found.push(name.slice(0, at));
  }
  if (name !== "") found.push(name);
  return found;
}

/**
 * The part of `name` below `outer`.
 * @param {string} name
 * @param {string} outer
 */
export function within(name, outer) {
  return outer !== "" && isWithin(name, outer) && name !== outer ? name.slice(outer.length + 1) : name;
}

/**
 * @param {string} name
 * @param {string} outer
 */
export function isWithin(name, outer) {
  return name === outer || (name.startsWith(outer) && (name[outer.length] === "." || name[outer.length] === "/"));
}
