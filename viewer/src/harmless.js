// SPDX-License-Identifier: Apache-2.0
// The page's data are a program's names: what in them would drive a terminal that they are pasted
// into, or turn the text around that people read, is shown as a sign of its own.

// In JSON a control character is an escape; a backslash before it may be one itself.
const HARM = /\\u(?:00[01][0-9a-f]|007f|00[89][0-9a-f]|061c|200[ef]|202[89a-e]|206[6-9])|\\[^]|[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gi;
// Line ends and tabs are none.
const SPACE = /^\\u000[9ad]$/i;

/**
 * @param {string} json
 */
export function harmless(json) {
  return json.replace(HARM, (found) => (/^\\[^]$/.test(found) || SPACE.test(found) ? found : "\ufffd"));
}
