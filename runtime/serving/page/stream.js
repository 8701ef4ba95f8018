/**
 * A session on the server, and every state that it has been in.
 *
 * The text is read piece by piece. After each piece the page keeps the state, a few kilobytes, so that the stream can
 * return to any of these states, bit for bit. It begins with pieces that the server has read for an example; the
 * session is created when the user goes on from there.
 */
import { ask, get, newId, post, send } from "./api.js";
import { outputsOf } from "./outputs.js";

const TOP = 10;
const MOST_PIECES = 64; // of a text that is pasted

export class Stream {
  constructor(model) {
    this.model = model;
    this.path = `/v1/sessions/${newId()}`;
    this.pieces = []; // {typed, tokens: [{text, bits}], outputs, memory, state}
    this.at = 0; // how many of them the page shows as read; after going back there are more
    this.serverAt = 0; // how many the session has read; null if unknown
    this.stored = false; // whether there is a session
  }

  get read() { return this.pieces.slice(0, this.at); }
  get text() { return this.read.map((piece) => piece.typed).join(""); }
  get last() { return this.pieces[this.at - 1]; }

  /** Begin with the server's example. */
  async begin() {
    const { pieces } = await get(`/v1/models/${this.model.id}/example`);
    this.pieces = pieces.map(({ typed, memory, state, ...answer }) =>
      this.piece(typed, answer, memory, Uint8Array.from(atob(state), (byte) => byte.charCodeAt(0)).buffer));
    this.at = pieces.length;
  }

  piece(typed, { texts, log_probs: logProbs, top, logits }, memory, state) {
    const tokens = texts.map((text, i) => ({ text, bits: logProbs && -logProbs[i] / Math.LN2 }));
    return { typed, tokens, outputs: outputsOf(this.model, top, logits), memory, state };
  }

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
    await this.sync();
    const { model } = this;
    const text = model.tokenizer === "char_ptb" ? typed.replaceAll(" ", "_") : typed; // a word break alone
    const input = model.text ? { text } : { tokens: [Number(typed)] };
    const once = { request_id: newId(), expected_position: this.last?.memory.position ?? 0 };
    const [action, wanted] = model.family === "lm" ? ["score", { top: TOP, texts: true }] : ["feed", { logits: "last" }];
    let answer, memory, state;
    try {
      answer = await post(`${this.path}/${action}`, { ...input, ...once, ...wanted, model: model.id });
      this.stored = true;
      [memory, state] = await Promise.all([
        get(`${this.path}/memory`),
        send("GET", `${this.path}/state`).then((response) => response.arrayBuffer()),
      ]);
    } catch (error) {
      if (this.stored) this.serverAt = null; // it may have read the piece: `sync` takes it back
      throw error;
    }
    this.pieces.length = this.at;
    this.pieces.push(this.piece(typed, { texts: [typed.trimEnd() || typed], ...answer }, memory, state));
    this.at = this.serverAt = this.pieces.length;
  }

  /** Brings the session to the position that the page shows, by one request at a time. */
  async sync() {
    while (this.serverAt !== this.at) {
      this.moving ??= this.move(this.at).finally(() => { this.moving = null; });
      await this.moving;
    }
  }

  async move(at) {
    if (at === 0) await post(`${this.path}/reset`);
    else await send("PUT", `${this.path}/state?model=${this.model.id}`, this.pieces[at - 1].state);
    this.stored = true;
    this.serverAt = at;
  }

  /** Fork the stream; returns the path and the position of the new session. */
  async fork() {
    await this.sync();
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
    if (this.stored) ask("", "DELETE", this.path, undefined, { keepalive: true }).catch(() => {});
  }
}
