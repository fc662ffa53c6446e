// SPDX-License-Identifier: Apache-2.0
// One colour for each category, the same in all views and in plots (src/output/plot/palette.def). Categories that users
// tune (parameters, activations, ...) have hues. Slack and the driver are grey; free memory is also hatched. Any two hues
// can be distinguished under protanopia, deuteranopia and tritanopia (viewer/test/palette.test.js).

/**
 * @typedef {object} Swatch
 * @property {string} name
 * @property {string} light
 * @property {string} dark
 * @property {Hatch} [hatch]
 */

/** @typedef {"up"|"down"|"across"|"dots"} Hatch Which way its lines go. */

/**
 * From the bottom of the stack: long-lived categories first, short-lived ones last.
 * @type {Swatch[]}
 */
export const KNOWN = [
  { name: "driver", light: "#2f3f4f", dark: "#727884" },
  { name: "parameter", light: "#4071b9", dark: "#436cb9" },
  { name: "buffer", light: "#9ccdfd", dark: "#b3ddff" },
  { name: "optimizer state", light: "#633792", dark: "#b598f2" },
  { name: "gradient", light: "#cf6f19", dark: "#df8c37" },
  { name: "activation", light: "#36a17f", dark: "#56bf96" },
  { name: "kv cache", light: "#a2fca8", dark: "#d2fcfc" },
  { name: "retained", light: "#9c7ef6", dark: "#741a92" },
  { name: "temporary", light: "#edc764", dark: "#f7e785" },
  { name: "input", light: "#df83b8", dark: "#eea5cc" },
  { name: "workspace", light: "#885828", dark: "#a0723e" },
  { name: "communication", light: "#84180e", dark: "#a13124" },
  { name: "other places", light: "#bfab8b", dark: "#d3cfb5" },
  { name: "unknown", light: "#707175", dark: "#89939e" },
  { name: "rounding", light: "#b7babf", dark: "#5f636a", hatch: "dots" },
  { name: "fragmentation", light: "#c9ccd1", dark: "#4d535d", hatch: "up" },
  { name: "cached", light: "#d9dfe6", dark: "#3b4048", hatch: "down" },
  { name: "graph pool", light: "#eff0f2", dark: "#2b2e33", hatch: "across" },
];

// For names that are not categories (owners, parts of an import), after the unused hues of the categories.
const OTHERS = [
  { light: "#3f7d4e", dark: "#69ab79" },
  { light: "#b08bd0", dark: "#c6a9e0" },
  { light: "#4f8fa8", dark: "#78b3ca" },
  { light: "#6b7a2f", dark: "#98a85c" },
];
const SPARE_FIRST = ["activation", "parameter", "gradient", "optimizer state", "temporary", "input",
  "buffer", "workspace", "communication", "retained"];

// The most distinct of these for lines, on light and dark ground.
const LINES = ["parameter", "gradient", "activation", "optimizer state", "communication", "input", "workspace"];

// Size of a pattern in pixels.
const TILE = 6;

export const OTHER_PLACES = "other places";
const RANK = new Map(KNOWN.map((swatch, rank) => [swatch.name, rank]));

/** @param {string} name */
export function isKnown(name) {
  return RANK.has(name);
}

/**
 * Whether a name is a purpose, and not only an owner.
 * @param {string} name
 */
export function isPurpose(name) {
  return SPARE_FIRST.includes(name);
}

/**
 * The names in stacking order, each once. Names that are not categories are data of the program: they come below unknown
 * and free memory, in the given order.
 * @param {Iterable<string>} names
 */
export function inOrder(names) {
  const others = (RANK.get(OTHER_PLACES) ?? KNOWN.length) - 0.5;
  const rank = (/** @type {string} */ name) => RANK.get(name) ?? others;
  return [...new Set(names)].sort((a, b) => rank(a) - rank(b));
}

export class Palette {
  /**
   * @param {string[]} names Categories in stacking order.
   * @param {string[]} [heaviest] Those that are to have the first hues, before the rest.
   */
  constructor(names, heaviest = []) {
    const spare = [...SPARE_FIRST.filter((name) => !names.includes(name))
      .map((name) => KNOWN[RANK.get(name) ?? 0]), ...OTHERS];
    const nameless = [...heaviest, ...names.filter((name) => !heaviest.includes(name))]
      .filter((name) => !RANK.has(name));
    /** @type {Swatch[]} */
    this.swatches = names.map((name) => {
      const rank = RANK.get(name);
      if (rank !== undefined) return KNOWN[rank];
      return { ...spare[nameless.indexOf(name) % spare.length], name };
    });
    this.dark = false;
    /** @type {Map<string, CanvasPattern|string>} */
    this.patterns = new Map();
  }

  /**
   * The CSS background of a category.
   * @param {number} category
   */
  background(category) {
    const { hatch } = this.swatches[category];
    const colour = this.colour(category);
    if (!hatch) return colour;
    const ink = this.ink();
    if (hatch === "dots") return `radial-gradient(${ink} 0.9px, transparent 1.1px) 0 0 / 4px 4px, ${colour}`;
    return `repeating-linear-gradient(${{ up: 135, down: 45, across: 0 }[hatch]}deg, ${ink} 0 1px, transparent 1px 4px), ${colour}`;
  }

  /**
   * The canvas fill style of a category.
   * @param {CanvasRenderingContext2D} context
   * @param {number} category
   */
  fill(context, category) {
    const { hatch } = this.swatches[category];
    const colour = this.colour(category);
    return hatch ? this.hatched(context, hatch, colour) : colour;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Hatch} hatch
   * @param {string} colour
   */
  hatched(context, hatch, colour) {
    const key = `${hatch} ${colour} ${this.dark}`;
    const known = this.patterns.get(key);
    if (known) return known;
    const tile = document.createElement("canvas");
    tile.width = tile.height = TILE;
    const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    pen.fillStyle = colour;
    pen.fillRect(0, 0, TILE, TILE);
    pen.strokeStyle = pen.fillStyle = this.ink();
    pen.lineWidth = 1;
    if (hatch === "dots") pen.fillRect(1, 1, 2, 2);
    else if (hatch === "across") pen.fillRect(0, 2, TILE, 1);
    else {
      // Three lines, so that the corners join those of the next tile.
      for (const shift of [-TILE, 0, TILE]) {
        pen.moveTo(shift - 1, hatch === "up" ? TILE + 1 : -1);
        pen.lineTo(shift + TILE + 1, hatch === "up" ? -1 : TILE + 1);
      }
      pen.stroke();
    }
    const pattern = context.createPattern(tile, "repeat") ?? colour;
    this.patterns.set(key, pattern);
    return pattern;
  }

  /** Colours for lines of devices and processes. */
  lines() {
    const swatches = [...LINES.map((name) => KNOWN[RANK.get(name) ?? 0]), ...OTHERS];
    return swatches.map(({ light, dark }) => (this.dark ? dark : light));
  }

  /** The colour of hatching. */
  ink() {
    return this.dark ? "rgb(255 255 255 / 16%)" : "rgb(30 41 59 / 22%)";
  }

  /**
   * The colour of a category.
   * @param {number} category
   */
  colour(category) {
    const swatch = this.swatches[category];
    return this.dark ? swatch.dark : swatch.light;
  }
}

/**
 * Red, green and blue of "#rrggbb".
 * @param {string} hex
 */
export function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/**
 * `share` of `over` on `under`.
 * @param {string} over
 * @param {string} under
 * @param {number} share
 */
export function mix(over, under, share) {
  const [a, b] = [channels(over), channels(under)];
  const mixed = a.map((value, i) => Math.round(value * share + b[i] * (1 - share)));
  return `rgb(${mixed.join(",")})`;
}
