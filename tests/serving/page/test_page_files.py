"""The page at /: its files are served with a strict security policy and are in the wheel; its numbers are
right."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
from scikit_build_core.build._pathutil import packages_to_file_mapping

from documented import ROOT
from small_models import small
from tsm.export.tsm.package import package
from tsm.plugin.analysis.probes.numpy_layer import NumpyLayer
from tsm.plugin.analysis.probes.retention import retention
from tsm.plugin.analysis.probes.timescale import bias_timescales, of_factor
from tsm.runtime import Model
from tsm.runtime.serving.routes.page import FILES, FOLDER, KINDS
from tsm.runtime.timescales import timescales

from ..server_process import serving

TEXT = "the page"


def served(server, path, **headers):
    answer = server.ask("GET", path, **headers)
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = dict(
        part.split(maxsplit=1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert (
        policy["default-src"] == "'none'"
        and "'self'" == policy["script-src"] == policy["style-src"]
    )
    return answer


def test_every_file_is_served(server):
    assert set(FILES) == {path.name for path in FOLDER.iterdir()}
    for name, body in FILES.items():
        answer = served(server, f"/page/{name}")
        assert (answer.status, answer.body) == (200, body)
        assert answer.headers["content-type"].encode() == KINDS["." + name.rpartition(".")[2]]
        again = served(server, f"/page/{name}", if_none_match=answer.headers["etag"])
        assert (again.status, again.body) == (304, b"")
    assert served(server, "/").body == FILES["index.html"]
    for name in ("none.js", "..%2fapp.py", "%2e%2e"):
        assert server.ask("GET", f"/page/{name}").status == 404
    assert server.ask("POST", "/").status == 405


def test_peers(files):
    """The page may send requests to its peers, and their pages may send requests to this server."""
    with serving(files["lm"], "--peer", "http://Peer.example:80/") as server:
        policy = served(server, "/").headers["content-security-policy"]
        assert "connect-src 'self' http://peer.example;" in policy
        assert server.get("/v1/peers") == {"peers": ["http://peer.example"]}
        answer = server.ask("GET", "/v1/models", origin="http://peer.example")
        assert answer.headers["access-control-allow-origin"] == "http://peer.example"
        assert server.ask("GET", "/v1/models", origin="http://other.example").status == 403


def test_peers_with_ipv6_addresses(files):
    """The policy has no syntax for such an address, and names its port only."""
    peers = ["http://[2001:DB8:0:0::1]:8081", "https://[::FFFF:127.0.0.1]:443"]
    origins = ["http://[2001:db8::1]:8081", "https://[::ffff:7f00:1]"]
    with serving(files["lm"], *(x for peer in peers for x in ("--peer", peer))) as server:
        policy = served(server, "/").headers["content-security-policy"]
        assert "connect-src 'self' http://*:8081 https://*;" in policy
        assert server.get("/v1/peers") == {"peers": origins}
        for origin in origins:
            answer = server.ask("GET", "/v1/models", origin=origin)
            assert answer.headers["access-control-allow-origin"] == origin


def test_text_of_tokens(server, files):
    """The text of all tokens together, which differs from the joined texts of the parts."""
    words = Model.load(files["words"])
    with serving(files["words"]) as of_words:
        asked = partial(of_words.ask, "POST", "/v1/models/words/decode")
        parts = [of_words.post("/v1/sessions/a/generate", n=4, temperature=9.0) for _ in range(3)]
        tokens = [token for part in parts for token in part["tokens"]]
        assert asked({"tokens": tokens}).json == {"text": words.decode(tokens)}
        assert "".join(part["text"] for part in parts) != words.decode(tokens)
        for wrong, said in (
            ({"tokens": [99]}, "99"),
            ({"tokens": []}, "tokens has 0 steps"),
            ({}, "tokens is missing"),
            ({"tokens": [1], "text": "a"}, "unknown field 'text'"),
        ):
            refused = asked(wrong)
            assert refused.status == 400 and said in refused.json["detail"], refused.body
    refused = server.ask("POST", "/v1/models/ids/decode", {"tokens": [1]})
    assert refused.status == 400 and "ids has no dictionary" in refused.json["detail"]


def test_nothing_is_inline_and_all_that_is_named_is_there():
    page = FILES["index.html"].decode()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page))
    named = set(re.findall(r'(?:src|href)="/page/([^"]+)"', page))
    for name, body in FILES.items():
        imports = re.findall(r'from "\./([^"]+)"', body.decode()) if name.endswith(".js") else []
        named |= set(imports)
    assert named | {"index.html"} == set(FILES)


def test_fields_have_labels():
    """Each field is inside a <label>, or a <label> refers to it."""
    page = FILES["index.html"].decode()
    labelled = set(re.findall(r'<label for="([^"]+)"', page))
    inside = "".join(re.findall(r"<label[^>]*>.*?</label>", page, re.DOTALL))
    fields = re.findall(r"<(?:input|select|textarea)[^>]*>", page)
    assert len(fields) > 8
    for field in fields:
        found = re.search(r'id="([^"]+)"', field)
        assert field in inside or (found and found[1] in labelled), field


def test_they_are_in_the_wheel():
    mapping = packages_to_file_mapping(
        packages={"tsm": str(ROOT / "src" / "tsm")},
        platlib_dir=ROOT / "wheel",
        include=[],
        src_exclude=[],
        target_exclude=[],
        build_dir="build",
        mode="default",
    )
    targets = {str(target) for target in mapping.values()}
    for name in FILES:
        assert str(ROOT / "wheel" / "tsm" / "runtime" / "serving" / "page" / name) in targets


def test_timescales_are_those_of_the_model(cell, tmp_path):
    options = {"cell_options": "memory_size=4:heads=4"} if cell.name == "nru" else {}
    made = small("lstm_lm", cell=cell.name, **options)
    path = tmp_path / "model.tsm"
    package(made, path)
    (found,) = timescales(Model.load(path))
    (layer,) = made.layers
    assert found["cell"] == cell.name
    if "age" in cell.states:
        assert found["law"] == "power"
        assert np.allclose(found["p"], NumpyLayer(layer).vectors["p"], rtol=1e-6)
    elif cell.elementwise and retention(cell).program.inputs() - {"d.c", "d.h"} == {"z.f"}:
        assert found["law"] == "exponential"
        assert np.allclose(of_factor(np.array(found["f"])), bias_timescales(layer), rtol=1e-4)
    else:
        assert "law" not in found


def test_no_timescales_of_a_file_that_was_replaced(tmp_path):
    path = tmp_path / "model.tsm"
    package(small("lstm_lm"), path)
    model = Model.load(path)
    package(small("plstm_lm"), path)
    assert timescales(model) == [{"cell": "lstm"}]
    path.unlink()
    assert timescales(model) == [{"cell": "lstm"}]


def test_score_with_texts_and_next_tokens(server, model, name):
    alone, tokens = model.create_stream(), model.encode(TEXT)
    answer = server.post(f"/v1/sessions/{name}/score", text=TEXT, texts=True, top=3)
    assert answer["texts"] == list(TEXT)
    assert np.float32(answer["log_probs"]).tolist() == alone.score(tokens).tolist()
    twin = model.create_stream()
    best = np.argsort(-twin.feed(tokens, last_only=True), kind="stable")[:3]
    assert [one["token"] for one in answer["top"]] == best.tolist()
    ids = server.post(f"/v1/sessions/{name}-i/score", model="ids", tokens=[3, 1], texts=True)
    assert ids["texts"] == ["3", "1"]
    wrong = server.ask("POST", f"/v1/sessions/{name}/score", {"text": "a", "texts": 1})
    assert wrong.status == 400 and "texts = 1; accepted: true or false" in wrong.json["detail"]
