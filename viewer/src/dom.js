// SPDX-License-Identifier: Apache-2.0
// The few helpers that the views need in place of a framework.

/**
 * Makes an element. Attributes whose value is null are left out; functions become listeners.
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
 * Text with the places that match a search marked.
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

/**
 * Calls `draw` at most once a frame.
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
 * A canvas that keeps the screen's resolution; `draw` gets a context scaled to CSS pixels.
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

/** Colours of the page's style for canvases. */
export function styleColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return {
    ink: read("--ink"),
    soft: read("--ink-soft"),
    faint: read("--ink-faint"),
    line: read("--line"),
    surface: read("--surface"),
    accent: read("--accent"),
    font: read("--font"),
    mono: read("--mono"),
  };
}

/** One floating label for all views. */
class Tip {
  constructor() {
    this.element = h("div", { class: "tip", role: "presentation" });
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
    this.element.classList.remove("on");
  }
}

export const tip = new Tip();
