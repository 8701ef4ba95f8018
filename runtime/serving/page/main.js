/** Connects the parts: the stream reads what the user types, and every view shows the stream's position. */
import { get, setToken } from "./api.js";
import { gradient, onTheme } from "./colors.js";
import { drawDecay } from "./decay.js";
import { Forks } from "./forks.js";
import { Gauges } from "./gauges.js";
import { LayerView } from "./memory.js";
import { Replicas } from "./replicas.js";
import { Stream } from "./stream.js";
import { drawNext, Tokens } from "./tokens.js";
import { describe } from "./units.js";

const by = (id) => document.getElementById(id);
const [text, position, models] = [by("text"), by("position"), by("model")];
const state = { stream: null, views: [], laws: [], chosen: null, shown: "age", busy: false, goal: null };

const tokens = new Tokens(by("tokens"), by("mean"), (count) => travel(count));
const replicas = new Replicas(() => (state.stream?.pieces.length ? state.stream.path : ""));
const forks = new Forks((more) => type(more), fail, replicas);

function fail(error) {
  by("problem").textContent = error?.message ?? "";
  if (error?.status === 401) by("access").hidden = false;
}

// ---- the stream follows the text, one piece at a time

function type(more) {
  text.value = state.stream.text + more + (state.stream.model.tokenizer?.startsWith("char") ? "" : " ");
  follow();
}

/** Goes to piece `goal` if set, else reads the text. Nothing else changes the stream. */
async function follow() {
  if (state.busy) return;
  state.busy = true;
  fail();
  try {
    while (await step());
  } catch (error) {
    fail(error);
  }
  state.busy = false;
}

async function step() {
  const { stream } = state;
  if (state.goal !== null) {
    const goal = state.goal;
    state.goal = null;
    await stream.go(goal);
    if (state.goal === null) text.value = stream.text;
    draw();
    return true;
  }
  const wanted = text.value;
  const shared = stream.shared(wanted);
  if (shared < stream.at) {
    await stream.go(shared);
    stream.pieces.length = shared;
    draw();
    return true;
  }
  const piece = stream.cut(wanted.slice(stream.text.length));
  if (!piece) return false;
  await stream.add(piece);
  draw();
  return true;
}

function travel(count) {
  state.goal = count;
  follow();
}

// ---- what is shown

function draw() {
  const { stream } = state;
  tokens.draw(stream);
  drawNext(by("next"), stream.last?.top, type);
  position.max = stream.pieces.length;
  position.value = stream.at;
  const steps = stream.last?.memory.position ?? 0;
  by("where").textContent = steps;
  position.setAttribute("aria-valuetext", `after ${steps} tokens`);
  by("memory-size").textContent = stream.last ? `${stream.last.state.byteLength.toLocaleString("en")} bytes` : "";
  const read = stream.read;
  state.views.forEach((view, i) => view.show(read.map((piece) => piece.memory.layers[i]), state.shown));
  drawUnit();
  forks.follow(stream);
}

function drawUnit() {
  if (!state.chosen) return drawDecay(by("decay"), null, null, 0);
  const { view, unit } = state.chosen;
  const layer = state.stream.last?.memory.layers[view.number];
  by("unit").textContent = `Layer ${view.number + 1}, unit ${unit}: ${describe(view.law, layer, unit)}`;
  drawDecay(by("decay"), view.law, unit, layer?.age?.[unit] ?? 0);
}

function choose(view, unit) {
  for (const one of state.views) one.unit = one === view ? unit : null;
  state.chosen = { view, unit };
  for (const one of state.views) one.draw();
  drawUnit();
}

function drawScale() {
  const ages = state.shown === "age";
  by("scale").style.setProperty("--ramp", gradient(state.shown));
  by("low").textContent = ages ? "just reset" : "-1";
  by("high").textContent = ages ? "old" : "1";
}

function redraw() {
  drawScale();
  for (const view of state.views) view.draw();
  drawUnit();
}

// ---- the model

async function open(model) {
  state.stream?.close();
  state.stream = new Stream(model);
  state.chosen = null;
  by("layers").replaceChildren();
  state.views = [];
  const { layers } = await get(`/v1/models/${model.id}/timescales`);
  state.views = layers.map((law, i) => new LayerView(by("layers"), i, law, choose));
  const power = layers.some((law) => law.law === "power");
  state.shown = power ? "age" : "value";
  for (const radio of document.getElementsByName("shown")) {
    radio.checked = radio.value === state.shown;
    radio.disabled = !power && radio.value === "age";
  }
  by("memory-hint").textContent = power
    ? "Age: steps since the last reset. Solid: what is left at the present age; dashed: just after a reset."
    : "";
  text.disabled = model.takes !== "tokens" || model.family !== "lm";
  by("text-hint").textContent = hint(model);
  drawScale();
  draw();
}

function hint(model) {
  if (text.disabled) return `${model.id} is not a language model; this page only shows language models.`;
  if (!model.text) return `${model.id} has no dictionary: type numbers from 0 to ${model.inputs - 1}, each with a space after it.`;
  if (!model.tokenizer.startsWith("char")) return "A word is read when a space follows it.";
  return `Type: each character is read at once. The dictionary has ${model.inputs} symbols.`;
}

async function start() {
  fail();
  try {
    const { data } = await get("/v1/models");
    by("access").hidden = true;
    await replicas.load();
    models.replaceChildren(...data.map((model) => new Option(model.id)));
    models.onchange = () => {
      text.value = "";
      open(data[models.selectedIndex]).catch(fail);
    };
    await open(data[0]);
    text.focus();
    new Gauges(by("gauges"), by("server")).start();
  } catch (error) {
    fail(error);
  }
}

text.addEventListener("input", follow);
position.addEventListener("input", () => travel(position.valueAsNumber));
for (const radio of document.getElementsByName("shown")) {
  radio.addEventListener("change", () => {
    state.shown = radio.value;
    for (const view of state.views) view.show(view.columns, state.shown);
    redraw();
  });
}
by("access").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(by("token").value);
  start();
});
addEventListener("resize", redraw);
addEventListener("pagehide", () => {
  forks.close();
  state.stream?.close();
});
onTheme(redraw);
start();
