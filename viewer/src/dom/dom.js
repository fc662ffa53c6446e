// SPDX-License-Identifier: Apache-2.0
// Helpers for the views, instead of a framework.

/**
 * Makes an element. Attributes with value null are left out; functions become listeners.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Node|string|null)} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") {
      element.addEventListener(name, /** @type {EventListener} */ (value));
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

/**
 * A square in a category's colour.
 * @param {number} category
 */
export function swatch(category) {
  return h("span", { class: "swatch", style: `background:var(--c${category})`, "aria-hidden": "true" });
}

/**
 * A text with the matches of a search marked.
 * @param {string} text
 * @param {string} needle Lower case; empty marks nothing.
 */
export function marked(text, needle) {
  const part = document.createDocumentFragment();
  if (needle === "") {
    part.append(text);
    return part;
  }
  const lower = text.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
    part.append(text.slice(from, at), h("mark", {}, text.slice(at, at + needle.length)));
    from = at + needle.length;
  }
  part.append(text.slice(from));
  return part;
}

// Longer names are shortened in the middle if they do not fit: both ends distinguish names.
const WHOLE = 20;
const END = 12;

// "train.py:12 in forward": if it does not fit, first the function is cut, then the file, and never the line.
const PLACE = /^(.+)(:\d+)( in .+)$/s;

/**
 * A name that is cut where it matters least: at the end of a place, in the middle of any other name.
 * @param {string} text
 * @param {string} needle
 */
export function named(text, needle) {
  if (text.length <= WHOLE) return marked(text, needle);
  const part = document.createDocumentFragment();
  const place = PLACE.exec(text);
  if (place) {
    part.append(...["cut-start", "cut-end", "cut-first"].map((name, at) => h("span", { class: name }, marked(place[at + 1], needle))));
    return part;
  }
  part.append(h("span", { class: "cut-start" }, marked(text.slice(0, -END), needle)),
    h("span", { class: "cut-end" }, marked(text.slice(-END), needle)));
  return part;
}

/**
 * The text and the needle of the last setNamed().
 * @type {WeakMap<Element, string>}
 */
const namedBefore = new WeakMap();

/**
 * Sets a name if its text or its marks change. Most keys typed in the search change few names.
 * @param {Element} element
 * @param {string} text
 * @param {string} needle
 * @param {(text: string, needle: string) => Node} [make] named() or marked().
 */
export function setNamed(element, text, needle, make = named) {
  const marks = text.toLowerCase().includes(needle) ? needle : "";
  const now = `${marks}\u0000${text}`;
  if (namedBefore.get(element) === now) return;
  namedBefore.set(element, now);
  element.replaceChildren(make(text, marks));
}

/**
 * Sets a text only if it changes, to avoid layout.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent === text) return;
  const { firstChild } = element;
  // Changing a text node is cheaper than replacing it.
  if (firstChild instanceof Text && firstChild === element.lastChild) firstChild.data = text;
  else element.textContent = text;
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {string|null} value
 */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/**
 * The elements of a list, kept while their keys exist and updated in place.
 * @template Item
 */
export class Rows {
  /**
   * @param {Element} parent
   * @param {(item: Item) => HTMLElement} make
   * @param {(element: HTMLElement, item: Item) => void} patch
   */
  constructor(parent, make, patch) {
    this.parent = parent;
    this.make = make;
    this.patch = patch;
    /**
     * The elements in the list.
     * @type {Map<string, HTMLElement>}
     */
    this.known = new Map();
    /**
     * Items that go() still has to show.
     * @type {[string, Item][]}
     */
    this.left = [];
    /** @type {Element|null} Where the next of them belongs. */
    this.at = null;
  }

  /** @param {[string, Item][]} items By keys that are unique. */
  update(items) {
    this.begin(items);
    this.go(Infinity);
  }

  /**
   * Removes elements of other items; go() shows the items.
   * @param {[string, Item][]} items Unique keys and items.
   */
  begin(items) {
    const keys = new Set(items.map(([key]) => key));
    for (const [key, element] of this.known) {
      if (keys.has(key)) continue;
      element.remove();
      this.known.delete(key);
    }
    this.left = items;
    this.at = this.parent.firstElementChild;
  }

  /**
   * Shows the next items.
   * @param {number} limit
   * @returns {boolean} Whether some are left.
   */
  go(limit) {
    for (const [key, item] of this.left.slice(0, limit)) {
      const element = this.known.get(key) ?? this.make(item);
      this.patch(element, item);
      if (element === this.at) this.at = this.at.nextElementSibling;
      else this.parent.insertBefore(element, this.at);
      this.known.set(key, element);
    }
    this.left = this.left.slice(limit);
    return this.left.length > 0;
  }
}

/**
 * Makes the buttons and lists of a group one stop of the Tab key. Arrow keys go to the next one; up and down choose in a
 * list.
 * @param {HTMLElement} group
 */
export function roving(group) {
  const stops = () => /** @type {HTMLElement[]} */ ([...group.querySelectorAll("button:not([disabled]):not(.gone), select")]);
  const settle = () => {
    const all = stops();
    const stop = all.find((each) => each.tabIndex === 0) ?? all[0];
    for (const each of all) each.tabIndex = each === stop ? 0 : -1;
  };
  group.addEventListener("keydown", (event) => {
    const all = stops();
    const at = all.indexOf(/** @type {HTMLElement} */ (event.target));
    /** @type {Record<string, number>} */
    const places = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 };
    const next = all[places[event.key]];
    const list = event.target instanceof HTMLSelectElement;
    if (at < 0 || (list ? !/^Arrow(Left|Right)$/.test(event.key) : !next)) return;
    event.preventDefault();
    if (!next) return;
    all[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  new MutationObserver(settle).observe(group, { childList: true, subtree: true, attributeFilter: ["class"] });
  settle();
}

/**
 * Calls `draw` at most once in each frame.
 * @param {() => void} draw
 */
export function perFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

/**
 * Sizes a canvas for the screen's resolution. Returns a context scaled to CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @returns {CanvasRenderingContext2D}
 */
export function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, hgt] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== hgt) {
    canvas.width = w;
    canvas.height = hgt;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/**
 * @typedef {Record<"ink"|"soft"|"faint"|"line"|"surface"|"accent"|"bad"|"font"|"mono", string>} Colours
 * @type {Colours|null}
 */
let colours = null;

/** Call this after the page's style has changed. */
export function forgetColours() {
  colours = null;
}

/** Colours of the page's style for canvases, cached: reading them makes the browser compute all styles. */
export function styleColours() {
  colours = colours ?? readColours();
  return colours;
}

/** @returns {Colours} */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return {
    ink: read("--ink"),
    soft: read("--ink-soft"),
    faint: read("--ink-faint"),
    line: read("--line"),
    surface: read("--surface"),
    accent: read("--accent"),
    bad: read("--bad"),
    font: read("--font"),
    mono: read("--mono"),
  };
}

/** The floating label that all views share. */
class Tip {
  constructor() {
    /** @type {HTMLElement|null} */
    this.made = null;
  }

  get element() {
    this.made = this.made ?? h("div", { class: "tip", role: "presentation" });
    return this.made;
  }

  /**
   * @param {number} x Client coordinates.
   * @param {number} y
   * @param {...(Node|string)} content
   */
  show(x, y, ...content) {
    if (!this.element.isConnected) document.body.append(this.element);
    this.element.replaceChildren(...content);
    this.element.classList.add("on");
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = x + 14 + width > window.innerWidth - 8 ? x - 14 - width : x + 14;
    const top = Math.min(y + 14, window.innerHeight - height - 8);
    this.element.style.transform = `translate(${Math.max(8, left)}px, ${Math.max(8, top)}px)`;
  }

  hide() {
    this.made?.classList.remove("on");
  }
}

export const tip = new Tip();
