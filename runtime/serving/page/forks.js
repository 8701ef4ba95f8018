/** Continuations: each is generated from a fork of the stream, which is deleted afterwards. */
import { ask, remove } from "./api.js";
import { atOnce, inParts } from "./generate.js";

class Fork {
  constructor(name, seed, owner) {
    this.owner = owner;
    this.parts = []; // {text, tokens, origin}
    this.session = null; // while it runs
    this.box = document.getElementById("fork").content.firstElementChild.cloneNode(true);
    this.box.querySelector("h3").textContent = name;
    this.box.setAttribute("aria-label", `Continuation ${name}`);
    this.drawn = this.box.querySelector(".drawn");
    this.field("seed").value = seed;
    this.field("go").addEventListener("click", () => owner.run([this]));
    this.field("keep").addEventListener("click", () => owner.keep(this.text));
  }

  get text() { return this.parts.map((part) => part.text).join(""); }

  field(name) { return this.box.querySelector(`[name=${name}]`); }

  async run(stream, count, signal) {
    const settings = ["temperature", "top_p", "seed"].map((name) => [name, this.field(name).valueAsNumber]);
    this.parts = [];
    this.owner.draw();
    const { replicas } = this.owner;
    const session = await stream.fork();
    this.session = session;
    try {
      const body = { n: count, ...Object.fromEntries(settings) };
      const generated = replicas.several
        ? inParts(stream.model, session, body, () => replicas.speed(), signal)
        : atOnce(session, body, signal);
      for await (this.parts of generated) this.owner.draw();
    } finally {
      this.session = null;
      await remove(session.path);
    }
  }

  /** The page is being closed. */
  close() {
    if (this.session) ask("", "DELETE", this.session.path, undefined, { keepalive: true }).catch(() => {});
  }
}

export class Forks {
  /** `keep(text)` is called when the user chooses a continuation, `fail(error)` when one fails. */
  constructor(keep, fail, replicas) {
    [this.fail, this.replicas] = [fail, replicas];
    this.stream = null;
    this.running = null;
    this.keep = (text) => {
      keep(text);
      this.clear();
    };
    this.both = document.getElementById("both");
    this.stopButton = document.getElementById("stop");
    this.count = document.getElementById("count");
    this.forks = [new Fork("A", 1, this), new Fork("B", 2, this)];
    document.getElementById("forks").append(...this.forks.map((fork) => fork.box));
    this.both.addEventListener("click", () => this.run(this.forks));
    this.stopButton.addEventListener("click", () => this.running?.abort());
  }

  /** Called when the stream has moved; clears continuations that no longer fit. */
  follow(stream) {
    if (this.stream !== stream || this.from !== stream.last) this.clear();
    this.stream = stream;
    this.from = stream.last;
    this.draw();
  }

  clear() {
    this.running?.abort();
    for (const fork of this.forks) fork.parts = [];
    this.draw();
  }

  close() {
    for (const fork of this.forks) fork.close();
  }

  async run(forks) {
    this.running = new AbortController();
    this.draw();
    const { signal } = this.running;
    const done = await Promise.allSettled(forks.map((fork) => fork.run(this.stream, this.count.valueAsNumber, signal)));
    const failed = done.find((one) => one.status === "rejected" && one.reason.name !== "AbortError");
    this.fail(failed?.reason);
    this.running = null;
    this.draw();
  }

  draw() {
    const ready = Boolean(this.stream?.at) && !this.running;
    this.both.disabled = !ready;
    this.stopButton.disabled = !this.running;
    const [a, b] = this.forks.map((fork) => fork.text);
    let same = 0;
    while (same < Math.min(a.length, b.length) && a[same] === b[same]) same += 1;
    for (const fork of this.forks) {
      fork.field("go").disabled = !ready;
      fork.field("keep").disabled = !ready || !fork.text;
      fork.drawn.replaceChildren(...this.spans(fork.parts, same));
    }
    this.replicas.count(this.forks.flatMap((fork) => fork.parts));
  }

  /** The parts as elements, split where the continuations begin to differ. */
  spans(parts, same) {
    const found = [];
    let at = 0;
    for (const { text, origin } of parts) {
      const cut = Math.min(Math.max(same - at, 0), text.length);
      for (const [piece, begins] of [[text.slice(0, cut), true], [text.slice(cut), cut === 0]]) {
        if (!piece) continue;
        const span = document.createElement("span");
        span.textContent = piece;
        if (at < same) span.className = "same"; // what both have in common
        this.replicas.mark(span, origin, begins);
        found.push(span);
        at += piece.length;
      }
    }
    return found;
  }
}
