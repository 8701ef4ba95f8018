"""KServe v2 over gRPC: the same answers, limits, tokens and errors as over HTTP, and the health service."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tsm.runtime import Model
from tsm.runtime.serving.rpc.messages import Messages
from tsm.runtime.serving.rpc.server import RpcServer
from tsm.runtime.serving.server import Options, Replica
from tsm.runtime.serving.streams.models import Source
from tsm.runtime.serving.transport.access import new_token

from .server_process import command, serving

grpc = pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")
MESSAGES = Messages()
SERVICE, CHECK = "inference.GRPCInferenceService", "grpc.health.v1.Health/Check"


class Client:
    """Makes calls by name, with messages like those of generated client code."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.metadata = [("authorization", f"Bearer {token}")] if token else []

    def call(self, name: str, package: str = "inference", service: str = SERVICE, /, **fields):
        kind = "HealthCheck" if service != SERVICE else name
        call = self.channel.unary_unary(
            f"/{service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=MESSAGES.of(package, f"{kind}Response").FromString,
        )
        request = MESSAGES.of(package, f"{kind}Request")(**fields)
        return call(request, metadata=self.metadata, timeout=60)

    def health(self, service: str = "") -> int:
        return self.call("Check", "grpc.health.v1", "grpc.health.v1.Health", service=service).status

    def infer(self, tokens, raw=False, model="lm", version="", **parameters):
        kinds = {bool: "bool_param", int: "int64_param", str: "string_param"}
        tensor = {"name": "tokens", "datatype": "INT64", "shape": [1, len(tokens)]}
        if not raw:
            tensor["contents"] = {"int64_contents": tokens}
        return self.call(
            "ModelInfer",
            model_name=model,
            model_version=version,
            id="7",
            inputs=[tensor],
            parameters={k: {kinds[type(v)]: v} for k, v in parameters.items()},
            raw_input_contents=[np.array(tokens, "<i8").tobytes()] if raw else [],
        )


def refusal(call) -> tuple[str, str, dict]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    found = dict(caught.value.trailing_metadata() or ())
    return caught.value.code().name, caught.value.details(), found


def grpc_port(server) -> int:
    line = server.process.stdout.readline()
    assert line.startswith("gRPC on "), line
    return int(line.rpartition(":")[2])


@pytest.fixture(scope="module")
def client(files):
    options = ("--store", "memory", "--grpc-port", 0, "--max-body", 20_000, "--grace", 30)
    with serving(files["lm"], files["tagger"], *options) as server:
        yield Client(grpc_port(server))
        assert server.stop() == 0
        assert '"event": "error"' not in server.process.stderr.read()


def test_inference(client, model, name):
    lone = model.create_stream()
    first, second = (lone.feed([1, 2, 3], last_only=True).tolist() for _ in range(2))
    alone = client.infer([1, 2, 3])
    assert list(alone.outputs[0].contents.fp32_contents) == first and alone.id == "7"
    assert (alone.outputs[0].name, list(alone.outputs[0].shape)) == ("logits", [1, 27])
    raw = client.infer([1, 2, 3], raw=True)
    assert np.frombuffer(raw.raw_output_contents[0], "<f4").tolist() == first
    for wanted in (first, second):
        step = client.infer([1, 2, 3], sequence_id=name)
        assert list(step.outputs[0].contents.fp32_contents) == wanted
    assert step.parameters["position"].int64_param == 6
    ended = [
        client.infer([5], sequence_id=name, sequence_end=True, request_id="end") for _ in range(2)
    ]
    assert ended[0] == ended[1] and ended[0].parameters["position"].int64_param == 7


def test_texts_and_numbers(client, model):
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1]}
    given = {"model_name": "lm", "inputs": [{**tensor, "contents": {"bytes_contents": [b"abc"]}}]}
    logits = model.create_stream().feed(model.encode("abc"), last_only=True).tolist()
    found = client.call("ModelInfer", **given)
    assert list(found.outputs[0].contents.fp32_contents) == logits
    raw = {"inputs": [tensor], "raw_input_contents": [b"\3\0\0\0abc"]}
    found = client.call("ModelInfer", model_name="lm", **raw)
    assert np.frombuffer(found.raw_output_contents[0], "<f4").tolist() == logits
    values = {"name": "values", "datatype": "FP32", "shape": [2, 5]}
    values["contents"] = {"fp32_contents": [0.5] * 10}
    found = client.call("ModelInfer", model_name="tagger", inputs=[values])
    assert list(found.outputs[0].shape) == [1, 3]


def test_facts_and_health(client):
    assert client.call("ServerLive").live and client.call("ServerReady").ready
    assert client.call("ModelReady", name="lm").ready
    assert not client.call("ModelReady", name="other").ready
    assert client.call("ServerMetadata").name == "tsm"
    facts = client.call("ModelMetadata", name="tagger")
    assert (facts.inputs[0].name, list(facts.inputs[0].shape)) == ("values", [-1, 5])
    assert [client.health(name) for name in ("", SERVICE, "lm")] == [1, 1, 1]
    assert refusal(lambda: client.health("other"))[0] == "NOT_FOUND"


def test_a_store_that_refuses_everything(files, tmp_path):
    options = ("--store", f"sqlite:{tmp_path}/states.db", "--grpc-port", 0)
    with serving(files["lm"], *options) as server:
        client = Client(grpc_port(server))
        assert client.call("ServerReady").ready and client.health("") == 1
        (tmp_path / "states.db").unlink()
        while client.call("ServerReady").ready:
            pass
        assert not client.call("ModelReady", name="lm").ready
        assert client.call("ServerLive").live and [client.health(n) for n in ("", "lm")] == [2, 2]


def test_versions(files, model):
    """If no version is given, the newest is used; a session keeps its own version, and requests for another one
    are refused."""
    models = (f"m={files['other']}", f"m={files['lm']}")
    new, old = (Model.load(files[name]) for name in ("other", "lm"))
    logits = {
        one.checksum: one.create_stream().feed([1], last_only=True).tolist() for one in (new, old)
    }
    with serving(*models, "--store", "memory", "--grpc-port", 0) as server:
        client = Client(grpc_port(server))
        tensor = {"name": "tokens", "datatype": "INT64", "shape": [1], "data": [1]}
        for version, used in ((None, new), (new.checksum, new), (old.checksum, old)):
            path = "/v2/models/m" + (f"/versions/{version}" if version else "")
            answer = server.post(f"{path}/infer", inputs=[tensor])
            assert answer["model_version"] == used.checksum
            assert answer["outputs"][0]["data"] == logits[used.checksum]
            assert server.get(path)["versions"] == [new.checksum, old.checksum]
            assert server.get(f"{path}/ready")["ready"]
            found = client.infer([1], model="m", version=version or "")
            assert found.model_version == used.checksum
            assert list(found.outputs[0].contents.fp32_contents) == logits[used.checksum]
            assert client.call("ModelReady", name="m", version=version or "").ready
        for path in ("", "/ready"):
            refused = server.ask("GET", f"/v2/models/m/versions/1{path}")
            assert refused.status == 404 and "no version '1' of model m" in refused.json["detail"]
        assert not client.call("ModelReady", name="m", version="1").ready
        code, detail, _ = refusal(lambda: client.infer([1], model="m", version="1"))
        assert code == "NOT_FOUND" and new.checksum in detail
        for version in (old.checksum, ""):  # the second request continues the session
            found = client.infer([1], model="m", version=version, sequence_id="s")
            assert found.model_version == old.checksum
        code, detail, _ = refusal(
            lambda: client.infer([1], model="m", version=new.checksum, sequence_id="s")
        )
        assert code == "FAILED_PRECONDITION" and f"to version {old.checksum}" in detail


def test_what_is_refused(client, name):
    tensor = {"name": "tokens", "datatype": "INT64", "shape": [1]}
    given = {"model_name": "lm", "inputs": [tensor]}
    client.infer([1], sequence_id=name)
    code, detail, more = refusal(lambda: client.infer([1], sequence_id=name, expected_position=0))
    assert code == "FAILED_PRECONDITION" and "but the stream is at 1" in detail
    assert json.loads(more["problem"])["position"] == 1
    for call, wanted, words in (
        (lambda: client.infer([99]), "INVALID_ARGUMENT", "token 99"),
        (lambda: client.infer([1], model="other"), "NOT_FOUND", "no model 'other'"),
        (lambda: client.infer([1], unknown=1), "INVALID_ARGUMENT", "unknown field 'unknown'"),
        (lambda: client.call("ModelInfer", **given), "INVALID_ARGUMENT", "shape of tokens"),
        (lambda: client.call("ModelInfer", **given, raw_input_contents=[b"1234567"]),
         "INVALID_ARGUMENT", "7 bytes"),
        (lambda: client.call("ModelInfer", **given, raw_input_contents=[b""] * 2),
         "INVALID_ARGUMENT", "raw_input_contents has 2 parts"),
        (lambda: client.call("ModelInfer", model_name="lm",
                             inputs=[{**tensor, "datatype": "UINT8"}]),
         "INVALID_ARGUMENT", "datatype of tokens"),
        (lambda: client.infer([1] * 5_000, raw=True), "RESOURCE_EXHAUSTED", "larger than max"),
        (lambda: client.call("ModelMetadata", name="x" * 3), "NOT_FOUND", "no model 'xxx'"),
    ):  # fmt: skip
        code, detail, _ = refusal(call)
        assert code == wanted and words in detail, (code, detail)


@pytest.mark.parametrize("method", [f"{SERVICE}/ModelInfer", CHECK, "grpc.health.v1.Health/Watch"])
def test_damaged_messages(client, method):
    """A field with the wire type 7, which does not exist."""
    kind = client.channel.unary_stream if "Watch" in method else client.channel.unary_unary
    code, detail, more = refusal(lambda: [*kind(f"/{method}")(b"\x0f\xff", timeout=60)])
    assert code == "INVALID_ARGUMENT" and detail.startswith("the message is not a ")
    assert json.loads(more["problem"])["status"] == 400


def test_connections_are_limited(files):
    """Those beyond --max-connections are closed; when one ends, another one is served."""
    with serving(files["lm"], "--grpc-port", 0, "--max-connections", 2) as server:
        port = grpc_port(server)

        def live() -> str:
            options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
            opened.append(grpc.insecure_channel(f"127.0.0.1:{port}", options))
            try:
                opened[-1].unary_unary(f"/{CHECK}")(b"", timeout=20)
            except grpc.RpcError as error:
                return str(error.code().name)
            return "OK"

        opened: list = []
        assert [live() for _ in range(3)] == ["OK", "OK", "UNAVAILABLE"]
        for channel in opened:
            channel.close()
        end = time.monotonic() + 20
        while live() != "OK":
            assert time.monotonic() < end
        assert server.get("/healthz") == {"status": "ok"}
        assert server.stop() == 0


def test_tokens_and_drain(files, tmp_path):
    (ann, first), (ben, second) = new_token("ann"), new_token("ben")
    (tmp_path / "tokens").write_text(f"{first}\n{second}\n")
    options = ("--store", "memory", "--grpc-port", 0, "--token-file", tmp_path / "tokens")
    with serving(files["lm"], *options, "--max-rate", 3, "--grace", 30, token=ann) as server:
        port = grpc_port(server)
        one, other, nobody = Client(port, ann), Client(port, ben), Client(port)
        assert one.infer([1, 2], sequence_id="s").parameters["position"].int64_param == 2
        assert other.infer([1], sequence_id="s").parameters["position"].int64_param == 1
        assert server.get("/v1/sessions/s")["position"] == 2  # a session of HTTP, too
        for client in (nobody, Client(port, "wrong")):
            assert refusal(lambda: client.infer([1]))[0] == "UNAUTHENTICATED"  # noqa: B023
        assert nobody.health() == 1
        codes = [refusal(lambda: one.call("ModelInfer", model_name="lm")) for _ in range(5)]
        code, detail, more = codes[-1]
        assert code == "RESOURCE_EXHAUSTED" and "--max-rate" in detail and more["retry-after"]
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert refusal(nobody.health)[0] == "UNAVAILABLE"


def test_its_connections_count_for_the_collector(files):
    """Each connection is counted once, at its first call."""
    counted = []

    async def program():
        replica = Replica(Options([Source("lm", str(files["lm"]))], log="off"))
        service = await replica.start()
        server = RpcServer(service, SimpleNamespace(connection_closed=counted.append))
        address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
        for _ in range(3):
            options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
            async with grpc.aio.insecure_channel(address, options) as channel:
                live, health = (
                    channel.unary_unary(f"/{name}") for name in (f"{SERVICE}/ServerLive", CHECK)
                )
                for call in (live, health, live):
                    await call(b"")
        await server.stop(0)
        await replica.end(service)

    asyncio.run(program())
    assert counted == [0, 0, 0]


def test_a_connection_that_says_nothing_is_closed(files):
    with serving(files["lm"], "--grpc-port", 0, "--max-seconds", 1) as server:
        with socket.create_connection(("127.0.0.1", grpc_port(server)), timeout=20) as client:
            while client.recv(1 << 12):  # the server's settings, then the end
                pass
        assert server.stop() == 0


def test_a_call_that_its_client_ends_is_not_counted_as_answered(files):
    async def program():
        replica = Replica(Options([Source("lm", str(files["lm"]))], log="off"))
        service = await replica.start()
        server = RpcServer(service, SimpleNamespace(connection_closed=lambda _: None))
        context = SimpleNamespace(peer=lambda: "", invocation_metadata=lambda: [])

        async def call(*_):
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await server._answer("ModelInfer", call, None, context)
        await replica.end(service)
        return [*service.metrics.requests]

    assert asyncio.run(program()) == [("grpc ModelInfer", 499)]


def test_grpc_that_is_missing(files, monkeypatch, capfd):
    import sys

    from tsm.runtime.serving.cli import main

    monkeypatch.setitem(sys.modules, "grpc", None)
    flags = ("--port", "0", "--store", "memory", "--grpc-port", "0")
    assert main([str(files["lm"]), *flags]) == 2
    said = capfd.readouterr().err
    assert "grpc is missing: --grpc-port needs pip install 'timescale-models[grpc]'" in said


def test_a_port_that_is_taken(files):
    import subprocess

    with serving(files["lm"], "--store", "memory", "--grpc-port", 0) as server:
        port = grpc_port(server)
        begin = command(files["lm"], "--store", "memory", "--port", 0, "--grpc-port", port)
        result = subprocess.run(**begin, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and f"cannot listen on 127.0.0.1:{port}" in result.stderr
