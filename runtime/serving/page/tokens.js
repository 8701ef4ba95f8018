/** The tokens read so far, with their surprisal as colour and number; other inputs have none. */

import { element, shown, spoken } from "./names.js";

const HOT = 8; // surprisal in bits that gets the full colour
export class Tokens {
  /** `travel(count)`: called when a token is selected, to go to the end of its piece. */
  constructor(box, mean, travel) {
    this.box = box;
    this.mean = mean;
    this.drawn = []; // {piece, buttons}
    box.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) travel(Number(button.dataset.piece) + 1);
    });
    box.addEventListener("keydown", (event) => this.move(event));
  }

  draw(stream) {
    const { pieces, at } = stream;
    let same = 0;
    while (same < this.drawn.length && this.drawn[same].piece === pieces[same]) same += 1;
    for (const old of this.drawn.splice(same)) for (const button of old.buttons) button.remove();
    for (const [i, piece] of pieces.slice(same).entries()) {
      const buttons = piece.tokens.map((token) => this.button(token, same + i));
      this.box.append(...buttons);
      this.drawn.push({ piece, buttons });
    }
    for (const [i, { buttons }] of this.drawn.entries()) {
      for (const button of buttons) {
        button.classList.toggle("later", i >= at);
        button.classList.toggle("here", i === at - 1);
        button.tabIndex = -1;
      }
    }
    const current = this.drawn[Math.max(at - 1, 0)]?.buttons.at(-1);
    if (current) {
      current.tabIndex = 0;
      if (at === pieces.length) this.box.scrollTop = this.box.scrollHeight;
    }
    const bits = stream.read.flatMap((piece) => piece.tokens.map((token) => token.bits ?? 0));
    const sum = bits.reduce((a, b) => a + b, 0);
    this.mean.textContent = bits.length ? (sum / bits.length).toFixed(2) : "–";
  }

  button({ text, bits }, piece) {
    const button = document.createElement("button");
    button.className = "token";
    button.dataset.piece = piece;
    button.append(element("b", shown(text)));
    if (bits === undefined) return button;
    button.append(element("i", bits.toFixed(bits < 9.95 ? 1 : 0)));
    button.setAttribute("aria-label", `${spoken(text)}, ${bits.toFixed(1)} bits`);
    button.style.setProperty("--share", Math.min(bits / HOT, 1).toFixed(3));
    return button;
  }

  /** Arrow keys, Home and End move the focus. */
  move(event) {
    const all = [...this.box.children];
    const here = all.indexOf(document.activeElement);
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined || !all[to]) return;
    event.preventDefault();
    all[here].tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
  }
}
