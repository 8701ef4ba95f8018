/** What the model expects or answers after a step, as bars: the next tokens, the classes, or numbers. */
import { element, shown, spoken } from "./names.js";

const MOST = 10;

/** [{name, share (length of the bar), value}] from the likeliest tokens, or from all outputs. */
export function outputsOf({ labels, targets }, top, logits) {
  if (top) return top.map(({ token, text, log_prob: logProb }) => ofShare(text ?? String(token), Math.exp(logProb)));
  const most = Math.max(...logits.map((value) => (targets ? Math.abs(value) : value)));
  if (targets) {
    return logits.slice(0, MOST).map((value, i) =>
      ({ name: targets[i], share: Math.abs(value) / (most || 1), value: value.toPrecision(3) }));
  }
  const shares = logits.map((value) => Math.exp(value - most));
  const sum = shares.reduce((a, b) => a + b, 0);
  const bars = shares.map((share, i) => ofShare(labels?.[i] ?? `class ${i}`, share / sum));
  return bars.sort((a, b) => b.share - a.share).slice(0, MOST);
}

const ofShare = (name, share) => ({ name, share, value: `${(100 * share).toFixed(1)}%` });

/** `choose(name)` is called when a bar is clicked; without it, the bars are no buttons. */
export function drawOutputs(list, outputs, choose) {
  list.replaceChildren(...outputs.map(({ name, share, value }) => {
    const bar = document.createElement(choose ? "button" : "div");
    bar.append(element("b", shown(name)), element("span", ""), element("i", value));
    bar.style.setProperty("--share", share.toFixed(4));
    if (choose) {
      bar.setAttribute("aria-label", `${spoken(name)}, ${value.replace("%", " percent")}; read it`);
      bar.addEventListener("click", () => choose(name));
    }
    const item = document.createElement("li");
    item.append(bar);
    return item;
  }));
}
