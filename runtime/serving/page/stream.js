/**
 * A session on the server, and every state that it has been in.
 *
 * The text is read piece by piece. After each piece the page keeps the state, a few kilobytes, so that the stream can
 * return to any of these states, bit for bit.
 */
import { ask, get, newId, post, send } from "./api.js";

const TOP = 10;
const MOST_PIECES = 64; // of a text that is pasted

export class Stream {
  constructor(model) {
    this.model = model;
    this.path = `/v1/sessions/${newId()}`;
    this.pieces = []; // {typed, tokens: [{text, bits}], top, memory, state}
    this.at = 0; // how many of them the stream has read; after going back there are more
  }

  get read() { return this.pieces.slice(0, this.at); }
  get text() { return this.read.map((piece) => piece.typed).join(""); }
  get last() { return this.pieces[this.at - 1]; }

  /** How many of the pieces read so far still match the beginning of a text. */
  shared(text) {
    let count = 0;
    for (let end = 0; count < this.at; count += 1) {
      end += this.pieces[count].typed.length;
      if (!text.startsWith(this.pieces[count].typed, end - this.pieces[count].typed.length)) break;
    }
    return count;
  }

  /** The next piece of the unread text; "" if more must be typed first. */
  cut(left) {
    if (this.model.tokenizer?.startsWith("char")) {
      const symbols = Array.from(left);
      return symbols.slice(0, Math.ceil(symbols.length / MOST_PIECES)).join("");
    }
    return /^\s*\S+\s/.exec(left)?.[0] ?? ""; // a word, or the number of a token, with the space after it
  }

  /** Read one more piece; it replaces those after the current position. */
  async add(typed) {
    const input = this.model.text ? { text: typed } : { tokens: [Number(typed)] };
    const once = { request_id: newId(), expected_position: this.last?.memory.position ?? 0 };
    const body = { ...input, ...once, top: TOP, texts: true, model: this.model.id };
    const scored = await post(`${this.path}/score`, body);
    const [memory, state] = await Promise.all([
      get(`${this.path}/memory`),
      send("GET", `${this.path}/state`).then((response) => response.arrayBuffer()),
    ]);
    const tokens = scored.texts.map((text, i) => ({ text, bits: -scored.log_probs[i] / Math.LN2 }));
    this.pieces.length = this.at;
    this.pieces.push({ typed, tokens, top: scored.top, memory, state });
    this.at += 1;
  }

  /** Go to the position after `count` pieces. */
  async go(count) {
    if (count === this.at) return;
    if (count === 0) await post(`${this.path}/reset`);
    else await send("PUT", `${this.path}/state`, this.pieces[count - 1].state);
    this.at = count;
  }

  /** Fork the stream; returns the path and the position of the new session. */
  async fork() {
    const to = newId(), path = `/v1/sessions/${to}`;
    try {
      const { position } = await post(`${this.path}/fork`, { to });
      return { path, position };
    } catch (error) {
      if (error.status !== 409) throw error;
      const { position } = await get(path).catch(() => { throw error; }); // a replica made it, but its answer was lost
      return { path, position };
    }
  }

  /** Delete the session on the server, even while the page is being closed. */
  close() {
    if (this.pieces.length) ask("", "DELETE", this.path, undefined, { keepalive: true }).catch(() => {});
  }
}
