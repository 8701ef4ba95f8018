/** Connects the parts: the stream reads what the user types, and every view shows the stream's position. */
import { get, setToken } from "./api.js";
import { gradient, onTheme } from "./colors.js";
import { drawDecay } from "./decay.js";
import { Forks } from "./forks.js";
import { Gauges } from "./gauges.js";
import { LayerView } from "./memory.js";
import { drawOutputs } from "./outputs.js";
import { Replicas } from "./replicas.js";
import { Stream } from "./stream.js";
import { Tokens } from "./tokens.js";
import { describe } from "./units.js";

const by = (id) => document.getElementById(id);
const [text, position, models] = [by("text"), by("position"), by("model")];
const state = { stream: null, views: [], laws: [], chosen: null, shown: "age", busy: false, goal: null };

const tokens = new Tokens(by("tokens"), by("mean"), (count) => travel(count));
const replicas = new Replicas(() => (state.stream?.stored ? state.stream.path : ""));
const forks = new Forks((more) => type(more), fail, replicas);

function fail(error) {
  by("problem").textContent = error?.message ?? "";
  if (error?.status !== 401) return;
  by("access").hidden = false;
  by("problem").textContent = by("token").value
    ? "The server does not accept this token."
    : "The server needs a token, one of its --token-file. Enter it above.";
  by("token").focus();
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
    stream.at = goal;
    text.value = stream.text;
    draw();
    return true;
  }
  const wanted = text.value;
  const shared = stream.shared(wanted);
  if (shared < stream.at) {
    stream.at = stream.pieces.length = shared;
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
  drawOutputs(by("next"), stream.last?.outputs ?? [], stream.model.family === "lm" && type);
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
  const stream = new Stream(model);
  state.opening = stream;
  text.disabled = true; // what is typed now would be lost
  const [{ layers }] = await Promise.all([get(`/v1/models/${model.id}/timescales`), stream.begin()]);
  if (state.opening !== stream) return; // another one was chosen meanwhile
  state.stream?.close();
  state.stream = stream;
  state.chosen = null;
  fit(model);
  text.value = stream.text;
  text.select(); // what is typed first replaces the example
  by("layers").replaceChildren();
  state.views = layers.map((law, i) => new LayerView(by("layers"), i, law, choose));
  const power = layers.some((law) => law.law === "power");
  state.shown = power ? "age" : "value";
  for (const radio of document.getElementsByName("shown")) {
    radio.checked = radio.value === state.shown;
    radio.disabled = !power && radio.value === "age";
  }
  by("memory-hint").hidden = !power;
  drawScale();
  draw();
  const [view] = state.views;
  if (view.order) choose(view, view.order[0]);
}

/** Show the parts that fit what the model reads and answers. */
function fit(model) {
  const parts = { tokens: model.takes === "tokens", values: model.takes === "values", lm: model.family === "lm" };
  for (const part of document.querySelectorAll("[data-for]")) part.hidden = !parts[part.dataset.for];
  for (const name of ["header label", "main", "footer"]) document.querySelector(name).hidden = false;
  text.disabled = !parts.tokens;
  by("text-hint").textContent = hint(model);
  by("tokens-name").textContent = parts.lm ? "Surprisal" : "Read so far";
  by("next-title").textContent = parts.lm ? "Next token" : model.targets ? "Outputs" : "Classes";
  const row = `[${model.inputs > 20 ? "0, 0, ..." : Array(model.inputs).fill(0).join(", ")}]`;
  by("request").textContent = `curl ${location.origin}/v1/sessions/mine/feed -d `
    + `'{"model": "${model.id}", "values": [${row}, ${row}], "logits": "last"}'`;
}

function hint(model) {
  const { id, inputs } = model;
  if (model.takes === "values") {
    const numbers = inputs === 1 ? "one number per step: here a wave" : `${inputs} numbers per step: here a wave in each`;
    return `${id} reads ${numbers}, then zeros. Send your own in a request, with a list for each step:`;
  }
  if (!model.text) return `${id} has no dictionary: type numbers from 0 to ${inputs - 1}, each with a space after it.`;
  if (!model.tokenizer.startsWith("char")) return "Type to replace this text. A word is read when a space follows it.";
  return `Type to replace this text: each character is read at once. The dictionary has ${inputs} symbols.`;
}

async function start() {
  fail();
  try {
    const { data } = await get("/v1/models");
    by("access").hidden = true;
    await replicas.load();
    models.replaceChildren(...data.map((model) => new Option(model.id)));
    models.onchange = () => open(data[models.selectedIndex]).catch(fail);
    await open(data[0]);
    text.focus();
    new Gauges(by("gauges"), by("server")).start();
  } catch (error) {
    fail(error);
  }
}

text.addEventListener("input", follow);
by("clear").addEventListener("click", () => {
  text.value = "";
  text.focus();
  follow();
});
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
