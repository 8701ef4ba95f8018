/** The server's counters from /metrics: queue, batches, speed and latency, each with a plot of its last minutes. */
import { send } from "./api.js";
import { named, sharp } from "./colors.js";
import { counts, parse, quantile } from "./metrics.js";

const EVERY = 2000; // milliseconds
const KEPT = 60;

const short = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(2)).toString());
const time = (seconds) => (seconds === Infinity ? "over 30 s" : `≤ ${short(seconds * 1e3)} ms`);

const GAUGES = {
  "Waiting requests": { of: (now) => now.queue, text: short },
  "Tokens per batch": { of: (now, was) => (now.tokens - was.tokens) / (now.batches - was.batches), text: short },
  "Tokens per second": { of: (now, was) => (1e3 * (now.tokens - was.tokens)) / (now.at - was.at), text: short },
  "Half are answered in": { of: (now, was) => quantile(was.buckets, now.buckets, 0.5), text: time },
  "99% are answered in": { of: (now, was) => quantile(was.buckets, now.buckets, 0.99), text: time },
  "Streams in memory": { of: (now) => now.streams, text: short },
  "Sessions in the store": { of: (now) => now.sessions, text: short },
};

export class Gauges {
  constructor(list, name) {
    this.was = null;
    this.name = name;
    this.rows = Object.entries(GAUGES).map(([name, gauge]) => {
      const [box, title, value, canvas] = ["div", "dt", "dd", "canvas"].map((tag) => document.createElement(tag));
      title.textContent = name;
      value.textContent = "–";
      canvas.setAttribute("aria-hidden", "true");
      const line = document.createElement("dd");
      line.append(canvas);
      box.append(title, value, line);
      list.append(box);
      return { ...gauge, value, canvas, past: [] };
    });
  }

  /** Poll the server while the page is visible. */
  start() {
    const look = () => (document.hidden ? null : this.look().catch(() => {}));
    look();
    setInterval(look, EVERY);
  }

  async look() {
    const response = await send("GET", "/metrics");
    const { origin } = new URL(response.url);
    const now = { ...counts(parse(await response.text())), at: performance.now(), origin };
    if (this.was && this.was.origin !== origin) this.was = null; // another server
    this.name.textContent = origin;
    for (const row of this.rows) {
      const value = row.of(now, this.was ?? now);
      if (!Number.isNaN(value)) row.value.textContent = row.text(value);
      row.past = [...row.past, value].slice(-KEPT);
      this.line(row);
    }
    this.was = now;
  }

  line({ canvas, past }) {
    const { clientWidth: width, clientHeight: height } = canvas;
    const context = sharp(canvas, width, height);
    const most = Math.max(1e-9, ...past.filter(Number.isFinite));
    context.strokeStyle = named("--accent");
    context.lineWidth = 1.5;
    context.beginPath();
    past.forEach((value, i) => {
      const share = Number.isFinite(value) ? value / most : 0;
      context.lineTo(width - ((past.length - 1 - i) * width) / (KEPT - 1), height - 2 - share * (height - 4));
    });
    context.stroke();
  }
}
