/** Continuations: each is generated from a fork of the stream, which is deleted afterwards. */
import { events, send } from "./api.js";

class Fork {
  constructor(name, seed, owner) {
    this.owner = owner;
    this.text = "";
    this.box = document.getElementById("fork").content.firstElementChild.cloneNode(true);
    this.box.querySelector("h3").textContent = name;
    this.box.setAttribute("aria-label", `Continuation ${name}`);
    this.drawn = this.box.querySelector(".drawn");
    this.field("seed").value = seed;
    this.field("go").addEventListener("click", () => owner.run([this]));
    this.field("keep").addEventListener("click", () => owner.keep(this.text));
  }

  field(name) { return this.box.querySelector(`[name=${name}]`); }

  async run(stream, count, signal) {
    const settings = ["temperature", "top_p", "seed"].map((name) => [name, this.field(name).valueAsNumber]);
    this.text = "";
    this.owner.draw();
    const path = await stream.fork();
    try {
      const body = { n: count, ...Object.fromEntries(settings), stream: true };
      for await (const [name, part] of events(`${path}/generate`, body, signal)) {
        if (name === "error") throw new Error(part.detail);
        this.text = name === "done" ? this.textOf(part) : this.text + this.textOf(part);
        this.owner.draw();
      }
    } finally {
      await send("DELETE", path);
    }
  }

  textOf(part) { return part.text ?? part.tokens.map((token) => `${token} `).join(""); }
}

export class Forks {
  /** `keep(text)` is called when the user chooses a continuation, `fail(error)` when one fails. */
  constructor(keep, fail) {
    this.fail = fail;
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

  /** The stream has moved: the continuations on the page no longer follow it. */
  follow(stream) {
    if (this.stream !== stream || this.from !== stream.last) this.clear();
    this.stream = stream;
    this.from = stream.last;
    this.draw();
  }

  clear() {
    this.running?.abort();
    for (const fork of this.forks) fork.text = "";
    this.draw();
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
      const first = document.createElement("span");
      first.className = "same"; // what both have in common
      first.textContent = fork.text.slice(0, same);
      fork.drawn.replaceChildren(first, fork.text.slice(same));
    }
  }
}
