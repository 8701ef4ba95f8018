"""examples/clients with a server, and examples/embed_python: they print the results of a separate stream."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys

import pytest

from documented import ROOT

EXAMPLES = ROOT / "examples"


def run(*command: object, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """As a reader runs it."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    args = [*map(str, command)]
    return subprocess.run(
        args, input=text, capture_output=True, text=True, env=variables, timeout=120
    )


def test_the_python_client(server, model, name):
    client = EXAMPLES / "clients" / "client.py"
    arguments = ("--server", server.address, "--n", 5, name)
    stream, texts = model.create_stream(), []
    for text in ("once upon ", "a time "):
        stream.feed(model.encode(text))
        texts.append(text + model.decode(stream.generate(5, temperature=0.5).tolist()))
    first = run(sys.executable, client, *arguments, "once upon ", TSM_REQUEST="1")
    again = run(sys.executable, client, *arguments, "once upon ", TSM_REQUEST="1")
    second = run(sys.executable, client, *arguments, "a time ")
    assert first.stdout == again.stdout == f"{texts[0]}\n[the session is at 15 tokens]\n", first
    assert second.stdout == f"{texts[1]}\n[the session is at {stream.position} tokens]\n", second
    refused = run(sys.executable, client, *arguments, "one\ntwo")
    assert refused.returncode == 1 and refused.stderr.startswith("error: "), refused


def test_the_shell_client(server, name):
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    done = run(EXAMPLES / "clients" / "client.sh", name, "once upon a time", server.address)
    assert done.returncode == 0, done.stderr
    assert re.search(r'^\{"position": 16, "log_probs": ', done.stdout), done.stdout
    assert '"position": 56' in done.stdout


# Runs the page's script with a stand-in for the document, and sends two texts, the second over a new socket.
BROWSER = """
const form = {elements: {text: {value: "once upon "}}}, said = {textContent: ""};
globalThis.document = {forms: [form], getElementById: () => said};
globalThis.location = {search: `?server=${process.argv[2]}&session=${process.argv[3]}`};
const sockets = [], Plain = WebSocket;
globalThis.WebSocket = class extends Plain { constructor(...a) { super(...a); sockets.push(this); } };
eval(process.argv[1]);
const until = async (position) => {
  while (true) {
    const found = await fetch(`${process.argv[2].replace("ws", "http")}/v1/sessions/${process.argv[3]}`);
    if (found.ok && (await found.json()).position === position) return;
    await new Promise((done) => setTimeout(done, 20));
  }
};
const whole = async (length) => {
  while (said.textContent.length !== length) await new Promise((done) => setTimeout(done, 20));
};
form.onsubmit({preventDefault() {}});
await until(50); await whole(50);
sockets[0].close();
form.elements.text.value = "a time ";
form.onsubmit({preventDefault() {}});
await until(97); await whole(97);
console.log(JSON.stringify([sockets.length, said.textContent]));
process.exit(0);
"""


def test_the_browser_client(server, model, name):
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    page = (EXAMPLES / "clients" / "client.html").read_text()
    script = page.partition('<script type="module">')[2].partition("</script>")[0]
    address = server.address.replace("http", "ws")
    arguments = ("--experimental-websocket", "--input-type=module", "-e", BROWSER)
    done = run("node", *arguments, script, address, name)
    assert done.returncode == 0, done.stderr
    stream, text = model.create_stream(), ""
    for said in ("once upon ", "a time "):
        stream.feed(model.encode(said))
        text += said + model.decode(stream.generate(40, temperature=0.5).tolist())
    assert json.loads(done.stdout) == [2, text]


def test_the_pool_in_a_program(files, model):
    lines = [("ann", "the old "), ("bob", "once upon "), ("ann", "sailor "), ("cyd", "N0")]
    text = "".join(f"{user} {said}\n" for user, said in lines)
    done = run(sys.executable, EXAMPLES / "embed_python" / "lines.py", files["lm"], text=text)
    streams, expected = {user: model.create_stream() for user, _ in lines}, []
    for user, said in lines[:3]:
        bits = -streams[user].score(model.encode(said)).mean() / math.log(2)
        expected.append(f"{user} {streams[user].position} {bits:.3f}")
    answers = {user: re.findall(f"^{user} .*$", done.stdout, re.MULTILINE) for user in streams}
    assert answers["ann"] == expected[::2] and answers["bob"] == [expected[1]], done
    assert len(answers["cyd"]) == 1 and answers["cyd"][0].startswith("cyd error: ")
