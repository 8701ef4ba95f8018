/** What share of a unit's content is left after 1 to 1000 steps, from its parameters and its age. */
import { named, sharp } from "./colors.js";
import { left } from "./units.js";

const LAST = 1000;
const MARGIN = { left: 34, right: 10, top: 8, bottom: 20 };

export function drawDecay(canvas, law, unit, age) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const context = sharp(canvas, width, height);
  if (unit === null || !law?.law) return;
  const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  const x = (steps) => MARGIN.left + (Math.log(steps) / Math.log(LAST)) * inner.width;
  const y = (share) => MARGIN.top + (1 - share) * inner.height;
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = named("--soft");
  context.strokeStyle = named("--line");
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const share of [0, 0.5, 1]) {
    line(context, [[x(1), y(share)], [x(LAST), y(share)]]);
    context.fillText(`${100 * share}%`, MARGIN.left - 5, y(share));
  }
  context.textBaseline = "alphabetic";
  for (const steps of [1, 10, 100, LAST]) {
    context.textAlign = { 1: "left", [LAST]: "right" }[steps] ?? "center";
    context.fillText(steps === LAST ? `${LAST} steps` : steps, x(steps), height - 5);
  }
  const points = Array.from({ length: 121 }, (_, i) => LAST ** (i / 120));
  const curve = (at) => points.map((steps) => [x(steps), y(left(law, unit, at, steps))]);
  context.lineWidth = 2;
  if (law.law === "power") {
    context.strokeStyle = named("--soft");
    context.setLineDash([4, 4]);
    line(context, curve(0));
    context.setLineDash([]);
  }
  context.strokeStyle = named("--accent");
  line(context, curve(age));
}

function line(context, points) {
  context.beginPath();
  points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.stroke();
}
