// SPDX-License-Identifier: Apache-2.0
// The page's data contain names of a program. Characters that could control a terminal after pasting, or reverse the
// direction of text, are replaced by visible symbols.

// JSON escapes control characters; a backslash before one may itself be escaped.
const HARM = /\\u(?:00[01][0-9a-f]|007f|00[89][0-9a-f]|061c|200[ef]|202[89a-e]|206[6-9])|\\[^]|[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gi;
// Line ends and tabs stay.
const SPACE = /^\\u000[9ad]$/i;

/**
 * @param {string} json
 */
export function harmless(json) {
  return json.replace(HARM, (found) => (/^\\[^]$/.test(found) || SPACE.test(found) ? found : "\ufffd"));
}
