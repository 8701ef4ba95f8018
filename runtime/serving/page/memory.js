/** A layer's memory: a row per unit, slowest at the top; a column per step, newest on the right. */
import { named, ramp, sharp, still } from "./colors.js";
import { contentOf, slowestFirst, wasReset } from "./units.js";

const COLUMN = { least: 4, most: 8 }; // pixels
const NOW = 26; // pixels of the present
const GAP = 6;
const TALLEST = 384;
const FLASH = 600; // milliseconds

export class LayerView {
  /** `choose(view, unit)` is called when the user points at a unit. */
  constructor(box, number, law, choose) {
    this.law = law;
    this.number = number;
    this.unit = null;
    this.columns = [];
    this.reset = []; // units that the last step reset
    this.since = 0;
    this.title = document.createElement("h3");
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.order) choose(this, this.order[this.rowAt(event.offsetY)]);
    });
    this.canvas.addEventListener("keydown", (event) => {
      const by = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 }[event.key];
      if (!by || !this.order) return;
      event.preventDefault();
      const row = this.order.indexOf(this.unit ?? this.order[0]) + (this.unit === null ? 0 : by);
      choose(this, this.order[Math.min(Math.max(row, 0), this.order.length - 1)]);
    });
    this.box = document.createElement("div");
    this.box.className = "layer";
    this.box.append(this.title, this.canvas);
    box.append(this.box);
  }

  rowAt(y) {
    const row = Math.floor((y / this.canvas.clientHeight) * this.order.length);
    return Math.min(Math.max(row, 0), this.order.length - 1);
  }

  /** `history`: the layer's states after each piece, the current ones last. */
  show(history, shown) {
    this.columns = history;
    this.shown = history.at(-1)?.age ? shown : "value";
    const now = history.at(-1);
    if (now) this.order ??= slowestFirst(this.law, contentOf(now).length);
    this.reset = [];
    if (now?.age && history.length > 1) {
      const before = history.at(-2).age;
      this.reset = this.order.filter((unit) => before[unit] > 1 && wasReset(before[unit], now.age[unit]));
    }
    this.since = performance.now();
    this.describe();
    this.draw();
  }

  describe() {
    const units = this.order?.length ?? 0;
    const sorted = this.law.law ? "slowest at the top" : "in their order";
    const resets = this.columns.at(-1)?.age ? `, ${this.reset.length} reset at this step` : "";
    this.title.textContent = `Layer ${this.number + 1}: ${this.law.cell}, ${units} units, ${sorted}${resets}`;
    this.canvas.setAttribute("aria-label", this.title.textContent);
    this.canvas.dataset.resets = this.reset.length;
  }

  get height() {
    const units = this.order.length;
    return Math.min(units * Math.max(1, Math.round(220 / units)), TALLEST);
  }

  draw() {
    if (!this.order) return;
    const width = this.canvas.parentElement.clientWidth;
    const { height } = this;
    this.canvas.style.height = `${height}px`;
    const context = sharp(this.canvas, width, height);
    if (!this.columns.length) return;
    const room = width - NOW - GAP;
    const column = Math.min(COLUMN.most, Math.max(COLUMN.least, Math.floor(room / this.columns.length)));
    const past = this.columns.slice(-Math.floor(room / column) - 1, -1);
    const image = this.image([...past, this.columns.at(-1)]);
    context.imageSmoothingEnabled = false;
    const start = room - past.length * column;
    if (past.length) context.drawImage(image, 0, 0, past.length, image.height, start, 0, past.length * column, height);
    context.drawImage(image, past.length, 0, 1, image.height, width - NOW, 0, NOW, height);
    this.flash(context, width, height);
    if (this.unit !== null) {
      const row = height / this.order.length;
      context.strokeStyle = named("--text");
      context.strokeRect(0.5, this.order.indexOf(this.unit) * row - 0.5, width - 1, Math.max(row, 2) + 1);
    }
  }

  /** One pixel per unit and step. */
  image(columns) {
    const units = this.order.length;
    const pixels = new ImageData(columns.length, units);
    const table = ramp(this.shown);
    const bright = (age) => Math.log1p(8 * age); // most units are young
    const oldest = bright(Math.max(16, ...columns.map((layer) => (layer.age ? Math.max(...layer.age) : 0))));
    columns.forEach((layer, x) => {
      const values = this.shown === "age" ? layer.age : contentOf(layer);
      this.order.forEach((unit, y) => {
        const value = values[unit];
        const share = this.shown === "age" ? bright(value) / oldest : 0.5 + 0.5 * Math.tanh(1.5 * value);
        const color = table[Math.min(Math.max(Math.round(255 * share), 0), 255)];
        pixels.data.set([...color, 255], 4 * (y * columns.length + x));
      });
    });
    const canvas = new OffscreenCanvas(columns.length, units);
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    return canvas;
  }

  /** Units that were just reset flash and fade; with reduced motion they stay marked. */
  flash(context, width, height) {
    const passed = (performance.now() - this.since) / FLASH;
    if (!this.reset.length || (passed >= 1 && !still.matches)) return;
    const row = height / this.order.length;
    context.globalAlpha = still.matches ? 1 : 1 - passed;
    context.fillStyle = named("--hot");
    for (const unit of this.reset) {
      const y = Math.floor(this.order.indexOf(unit) * row);
      context.fillRect(width - NOW, y, NOW, Math.max(row, 1));
    }
    context.globalAlpha = 1;
    if (still.matches || this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }
}
