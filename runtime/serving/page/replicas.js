/** The servers that can continue a session: the one that sent this page, and its peers with the same store. */
import { ask, get, moveTo } from "./api.js";

const COLOURS = 4; // in parts.css
const symbol = (number) => (number < 20 ? String.fromCodePoint(0x2460 + number) : `(${number + 1})`);

export class Replicas {
  /** `session()` is the path of the session to move; "" if there is none. */
  constructor(session) {
    this.session = session;
    this.origins = [location.origin];
    this.current = location.origin;
    [this.box, this.select, this.pace, this.legend, this.status] =
      ["move", "replica", "pace", "legend", "status"].map((id) => document.getElementById(id));
    this.select.addEventListener("change", () => this.move(this.select.value));
  }

  get several() { return this.origins.length > 1; }

  async load() {
    const { peers } = await get("/v1/peers");
    this.origins = [...new Set([location.origin, ...peers])];
    this.select.replaceChildren(...this.origins.map((origin, i) => new Option(`${symbol(i)} ${origin}`, origin)));
    this.box.hidden = this.legend.hidden = !this.several;
    this.count([]);
  }

  /** Sends requests to a server with the session, once that server has answered. */
  async move(origin) {
    try {
      await ask(origin, "GET", this.session() || "/v1/models");
    } catch (error) {
      return this.select.value === origin && this.stay(this.current, origin, error);
    }
    if (this.select.value !== origin) return; // another one was chosen meanwhile
    moveTo(origin, (error) => this.stay(location.origin, origin, error));
    this.current = origin;
    this.status.textContent = `Moved: the next requests go to ${origin}.`;
  }

  stay(current, failed, error) {
    this.current = this.select.value = current;
    this.status.textContent = `${reason(failed, error)}. The stream goes on at ${current}.`;
  }

  /** Tokens per second. */
  speed() { return Math.max(this.pace.valueAsNumber || 0, 0.1); }

  /** Show which server computed a text: by colour, and by a number where the server changes. */
  mark(element, origin, begins) {
    const number = this.origins.indexOf(origin);
    if (!this.several || number < 0) return;
    element.classList.add("part", `replica-${number % COLOURS}`);
    element.dataset.mark = begins ? symbol(number) : "";
    element.title = origin;
  }

  /** The legend, with the number of tokens in these parts. */
  count(parts) {
    this.legend.replaceChildren(...this.origins.map((origin) => {
      const [item, name] = ["li", "span"].map((tag) => document.createElement(tag));
      const tokens = parts.filter((part) => part.origin === origin).reduce((sum, part) => sum + part.tokens, 0);
      name.textContent = origin;
      this.mark(name, origin, true);
      item.append(name, ` ${tokens} tokens`);
      return item;
    }));
  }
}

function reason(origin, { status, message }) {
  if (!status) return `${origin} does not answer, or does not accept requests from ${location.origin} (--peer)`;
  if (status === 404) return `${origin} does not have this session: its store is another one`;
  return `${origin} refused: ${message.replace(/\.$/, "")}`;
}
