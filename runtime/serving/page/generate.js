/** Generated text, as all parts so far: [{text, tokens (their number), origin (the server)}]. */
import { events, newId, post } from "./api.js";

const PART = 4; // tokens of a request
const HALF = "\ufffd"; // what a part of a character decodes to

const idsOf = (tokens) => tokens.map((token) => `${token} `).join("");

/** Generates in one request, which streams its tokens. */
export async function* atOnce({ path }, body, signal) {
  let text = "";
  for await (const [name, part] of events(`${path}/generate`, { ...body, stream: true }, signal)) {
    if (name === "error") throw new Error(part.detail);
    const more = part.text ?? idsOf(part.tokens);
    text = name === "done" ? more : text + more;
    yield [{ text }];
  }
}

/**
 * Generates in requests of a few tokens, each to the replica that is chosen at that time.
 *
 * A token depends on the state, the seed and the position, so the text is that of a single request. A request that was
 * not answered is sent again with the same id, and takes effect once.
 */
export async function* inParts(model, { path, position }, { n, ...settings }, perSecond, signal) {
  const [tokens, parts] = [[], []];
  let given = "";
  while (tokens.length < n) {
    const count = Math.min(PART, n - tokens.length);
    const body = { ...settings, n: count, expected_position: position, request_id: newId() };
    const answer = await post(`${path}/generate`, body, { signal });
    tokens.push(...answer.tokens);
    position = answer.position;
    let text = await textOf(model, tokens, given, answer);
    if (text.endsWith(HALF) && tokens.length < n) text = given;
    if (!text.startsWith(given)) [given, parts.length] = ["", 0];
    if (parts.at(-1)?.origin !== answer.origin) parts.push({ text: "", tokens: 0, origin: answer.origin });
    parts.at(-1).text += text.slice(given.length);
    parts.at(-1).tokens += count;
    given = text;
    yield parts;
    if (tokens.length < n) await pause((1e3 * count) / perSecond(), signal);
  }
}

/** The text of all tokens; for characters, it is just the parts' texts joined. */
async function textOf(model, tokens, given, answer) {
  if (!model.text) return idsOf(tokens);
  if (model.tokenizer.startsWith("char")) return given + answer.text;
  return (await post(`/v1/models/${model.id}/decode`, { tokens })).text;
}

const pause = (milliseconds, signal) => new Promise((done) => {
  const timer = setTimeout(done, milliseconds);
  signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});
