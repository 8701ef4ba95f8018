/** Requests to the server that sent this page, or to the replica that the user has chosen instead. */

const OWN_FAULT = [400, 413]; // every server would refuse such a request

let token = "";
let chosen = ""; // origin of the replica; "": the server of this page
let left = () => {};

export const setToken = (value) => { token = value; };

/** Later requests go to this server. If it fails, they return to the server of the page, and `told(error)` is called. */
export function moveTo(origin, told) {
  chosen = origin === location.origin ? "" : origin;
  left = told;
}

/** A refused request: the status (0 if there was no answer), and the sentence in the problem+json. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Sends a request to the server at this origin; "" is the server of the page. */
export async function ask(origin, method, path, body, more = {}) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  let response;
  try {
    response = await fetch(origin + path, { method, headers, body, ...more });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer.");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem.detail ?? `The server answered ${response.status}.`);
}

/** Returns what `read` makes of the response. If a replica fails, the server of the page gets the request instead. */
export async function send(method, path, body, more, read = (response) => response) {
  const origin = chosen;
  try {
    return await read(await ask(origin, method, path, body, more));
  } catch (error) {
    if (!origin || error.name === "AbortError" || OWN_FAULT.includes(error.status)) throw error;
    if (chosen === origin) {
      chosen = "";
      left(error);
    }
    return read(await ask("", method, path, body, more));
  }
}

/** The JSON object of a response, and the server that it comes from. */
const json = async (response) => ({ ...(await response.json()), origin: new URL(response.url).origin });

export const get = (path) => send("GET", path, undefined, {}, json);
export const post = (path, body = {}, more = {}) => send("POST", path, JSON.stringify(body), more, json);

/** Deletes a session. A replica may have done so already, if its answer was lost. */
export async function remove(path) {
  try {
    await send("DELETE", path);
  } catch (error) {
    if (error.status !== 404) throw error;
  }
}

/** Server-sent events of a POST, as [name, object]. */
export async function* events(path, body, signal) {
  const response = await send("POST", path, JSON.stringify(body), { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (held + value).split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      const name = /^event: (.*)$/m.exec(block)?.[1] ?? "";
      yield [name, JSON.parse(/^data: (.*)$/m.exec(block)[1])];
    }
  }
}

/** A name that nobody else has. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return "page-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
