/** Prometheus's text format: [{name, labels, value}, ...]. */
export function parse(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const match = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries([...(match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((m) => [m[1], m[2]]));
    found.push({ name: match[1], labels, value: match[3] === "+Inf" ? Infinity : Number(match[3]) });
  }
  return found;
}

const sum = (samples, keep) => samples.filter(keep).reduce((total, one) => total + one.value, 0);

/** The numbers that the page shows, at one moment. */
export function counts(samples) {
  const pool = (name) => sum(samples, (one) => one.name === "tsm_pool" && one.labels.name === name);
  const buckets = new Map();
  for (const { name, labels, value } of samples) {
    if (name !== "tsm_request_seconds_bucket" || !["step", "generate", "websocket"].includes(labels.route)) continue;
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  return {
    queue: pool("queue"),
    streams: pool("streams"),
    batches: pool("batches"),
    tokens: pool("fed_tokens") + pool("generated_tokens"),
    sessions: sum(samples, (one) => one.name === "tsm_sessions_stored"),
    buckets: [...buckets].sort((a, b) => a[0] - b[0]),
  };
}

/** The latency within which `share` of the requests since `before` were answered; NaN if none. */
export function quantile(before, now, share) {
  const earlier = new Map(before);
  const counted = now.map(([bound, value]) => [bound, value - (earlier.get(bound) ?? 0)]);
  const all = counted.at(-1)?.[1] ?? 0;
  return all ? counted.find(([, value]) => value >= share * all)[0] : NaN;
}
