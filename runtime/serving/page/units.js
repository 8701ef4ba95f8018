/** A layer's units: how slowly they forget, how they are sorted, and how much a unit keeps. */

const LONG = 1e6;

/** Steps until a unit has lost half of its content, from age 0 and without resets; NaN if unknown. */
export function halfLife(law, unit) {
  if (law.law === "power") return Math.min(2 ** (1 / law.p[unit]) - 1, LONG);
  if (law.law === "exponential") return Math.min(-Math.LN2 / Math.log(law.f[unit]), LONG);
  return NaN;
}

/** The units, slowest first; in their original order if nothing is known. */
export function slowestFirst(law, count) {
  const order = Array.from({ length: count }, (_, i) => i);
  return law.law ? order.sort((a, b) => halfLife(law, b) - halfLife(law, a)) : order;
}

/** The share of the content left after `steps`, starting at `age`. */
export function left(law, unit, age, steps) {
  if (law.law === "power") return ((1 + age) / (1 + age + steps)) ** law.p[unit];
  return law.f[unit] ** steps;
}

/** Whether the unit was reset in a step: it lost most of its age. */
export const wasReset = (before, now) => now < 0.5 * (before + 1);

/** The state that holds the cell's content: c, nru's m, sLSTM's a, or the output itself. */
export const contentOf = (layer) => layer.c ?? layer.m ?? layer.a ?? layer.h;

export function describe(law, layer, unit) {
  const parts = [];
  if (law.law === "power") parts.push(`p ${law.p[unit].toFixed(3)}`);
  if (law.law === "exponential") parts.push(`f ${law.f[unit].toFixed(3)}`);
  const half = halfLife(law, unit);
  if (half) parts.push(`half-life ${half >= LONG ? "over a million" : Number(half.toPrecision(2))} steps`);
  if (layer?.age) parts.push(`age ${layer.age[unit].toFixed(1)}`);
  if (layer) parts.push(`cell ${contentOf(layer)[unit].toFixed(3)}`);
  return parts.join(" · ");
}
