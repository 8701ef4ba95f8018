// Runs ONNX graphs for the tests: a line of JSON in, a line out. tests/consumers.py is the other end.
//
//   node serve.mjs ENVIRONMENT PACKAGE      PACKAGE: onnxruntime-node or onnxruntime-web, in its node_modules
//
//   {"open": path}     -> {"inputs": [[name, ...], ...]}: the names of each input
//   {"feeds": {name: {"type", "shape", "data": base64}}}    -> {"outputs": the same of each output}
//   what fails         -> {"error": message}
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [environment, packageName] = process.argv.slice(2);
const ort = createRequire(`${environment}/package.json`)(packageName);
ort.env.wasm.numThreads = 1;
const ARRAYS = { float32: Float32Array, int64: BigInt64Array };
let session;

async function open(path) {
  await session?.release();
  session = await ort.InferenceSession.create(await readFile(path), { intraOpNumThreads: 1 });
  return { inputs: session.inputNames.map((name) => [name]) };
}

async function run(given) {
  const feeds = {};
  for (const [name, { type, shape, data }] of Object.entries(given)) {
    const bytes = Uint8Array.from(Buffer.from(data, "base64"));
    feeds[name] = new ort.Tensor(type, new ARRAYS[type](bytes.buffer), shape);
  }
  const outputs = {};
  for (const [name, { type, dims, data }] of Object.entries(await session.run(feeds))) {
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    outputs[name] = { type, shape: dims, data: bytes.toString("base64") };
  }
  return { outputs };
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let answer;
  try {
    answer = await (request.open ? open(request.open) : run(request.feeds));
  } catch (error) {
    answer = { error: String(error.message ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
