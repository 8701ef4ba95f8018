/** Requests to the server that sent this page. */

let token = "";
export const setToken = (value) => { token = value; };

/** A refused request: the status, and the sentence in the problem+json. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export async function send(method, path, body, more = {}) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  let response;
  try {
    response = await fetch(path, { method, headers, body, ...more });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer.");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem.detail ?? `The server answered ${response.status}.`);
}

export const get = async (path) => (await send("GET", path)).json();
export const post = async (path, body = {}) => (await send("POST", path, JSON.stringify(body))).json();

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
