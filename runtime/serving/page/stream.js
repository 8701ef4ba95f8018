/**
 * A session of the server, and every state that it was in.
 *
 * The text is read piece by piece. After each one the page keeps the state, a few kilobytes, so that the stream can
 * go back to any of them, bit for bit.
 */
import { get, newId, post, send } from "./api.js";

const TOP = 10;
const MOST_PIECES = 64; // of a text that is pasted

export class Stream {
  constructor(model) {
    this.model = model;
    this.path = `/v1/sessions/${newId()}`;
    this.pieces = []; // {typed, tokens: [{text, bits}], top, memory, state}
    this.at = 0; // how many of them the stream has read; the others are its future
  }

  get read() { return this.pieces.slice(0, this.at); }
  get text() { return this.read.map((piece) => piece.typed).join(""); }
  get last() { return this.pieces[this.at - 1]; }

  /** How many pieces a text begins with, of those that are read. */
  shared(text) {
    let count = 0;
    for (let end = 0; count < this.at; count += 1) {
      end += this.pieces[count].typed.length;
      if (!text.startsWith(this.pieces[count].typed, end - this.pieces[count].typed.length)) break;
    }
    return count;
  }

  /** The next piece of what is left of a text; "" where it has to grow first. */
  cut(left) {
    if (this.model.tokenizer?.startsWith("char")) {
      const symbols = Array.from(left);
      return symbols.slice(0, Math.ceil(symbols.length / MOST_PIECES)).join("");
    }
    return /^\s*\S+\s/.exec(left)?.[0] ?? ""; // a word, or the number of a token, with the space after it
  }

  /** Read one more piece, in place of the future. */
  async add(typed) {
    const input = this.model.text ? { text: typed } : { tokens: [Number(typed)] };
    const body = { ...input, top: TOP, texts: true, model: this.model.id };
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

  /** Travel to where `count` pieces are read. */
  async go(count) {
    if (count === this.at) return;
    if (count === 0) await post(`${this.path}/reset`);
    else await send("PUT", `${this.path}/state`, this.pieces[count - 1].state);
    this.at = count;
  }

  /** A copy that goes its own way: the path of its session. */
  async fork() {
    const { id } = await post(`${this.path}/fork`, { to: newId() });
    return `/v1/sessions/${id}`;
  }

  /** Forget it on the server, also while the page is being left. */
  close() {
    if (this.pieces.length) send("DELETE", this.path, undefined, { keepalive: true }).catch(() => {});
  }
}
