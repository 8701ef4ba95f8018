/** How a token is written and read aloud. */

const NAMES = { " ": "·", "\n": "↵", "\t": "→", "": "□" };
const SPOKEN = { " ": "space", "\n": "new line", "\t": "tab", "": "part of a character" };

export const shown = (text) => NAMES[text] ?? text;
export const spoken = (text) => SPOKEN[text] ?? text;

export function element(name, text) {
  const one = document.createElement(name);
  one.textContent = text;
  return one;
}
