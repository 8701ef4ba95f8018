/** Colours of the canvases, in light and dark mode. */

const dark = matchMedia("(prefers-color-scheme: dark)");
export const still = matchMedia("(prefers-reduced-motion: reduce)");

const RAMPS = {
  age: {
    light: ["#eef3f8", "#9cc4e4", "#3a7ebf", "#123a6b"],
    dark: ["#141a23", "#1f4e79", "#3fa7d6", "#f9f3b0"],
  },
  value: {
    light: ["#9c3d0c", "#e59a63", "#f7f5f2", "#6aa3dd", "#0f4c97"],
    dark: ["#ffb27a", "#a8562a", "#181d25", "#2b69a8", "#8cc6ff"],
  },
};

const theme = () => (dark.matches ? "dark" : "light");
const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const tables = new Map();

/** 256 colours as [r, g, b]. */
export function ramp(name) {
  const key = `${name} ${theme()}`;
  if (!tables.has(key)) {
    const stops = RAMPS[name][theme()].map(parts);
    const table = Array.from({ length: 256 }, (_, i) => {
      const x = (i / 255) * (stops.length - 1);
      const low = Math.min(Math.floor(x), stops.length - 2);
      return stops[low].map((from, c) => Math.round(from + (stops[low + 1][c] - from) * (x - low)));
    });
    tables.set(key, table);
  }
  return tables.get(key);
}

export const gradient = (name) => `linear-gradient(to right, ${RAMPS[name][theme()].join(", ")})`;
export const named = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const onTheme = (redraw) => dark.addEventListener("change", redraw);

/** The canvas's context at the resolution of the screen; width and height are in CSS pixels. */
export function sharp(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
