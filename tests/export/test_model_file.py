"""The model file: what is written, what is refused; damage raises TsmError and nothing else."""

from __future__ import annotations

import hashlib
import json
import re
import resource
import struct
import zlib

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load as load_tensors

from tsm.export import export
from tsm.export.common import checksum
from tsm.export.tsm.package import FORMAT, fingerprint, package, quantize
from tsm.plugin import build_model
from tsm.plugin.cells import get_cell
from tsm.plugin.cells.tape.program import program_hash, program_text
from tsm.plugin.data.vocab import DICT
from tsm.runtime import Model, TsmError

TEXT = b"a 3\nb 2\nc 1\n"


def small(arch="plstm_lm", **settings):
    torch.manual_seed(2)
    sizes = dict(vocab_size=5, decoder_embed_dim=4, decoder_hidden_size=6)
    return build_model(arch, **{**sizes, **settings}).eval()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "model.tsm"
    package(small(), path, assets={DICT: TEXT}, tokenizer="char")
    return path


def parts(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["tsm"]), data[8 + length :]


def test_another_reader_of_safetensors_reads_it(file):
    with safe_open(file, "pt") as tensors:
        config = json.loads(tensors.metadata()["tsm"])
        assert bytes(tensors.get_tensor("text.dict").numpy()) == TEXT
    assert config["format"] == FORMAT == 2 and config["text"] == {"tokenizer": "char"}
    model = Model.load(file)
    assert model.config == config
    assert model.asset("text.dict") == TEXT and model.asset("text.sentencepiece") is None


def test_tensors_are_those_of_the_model(file):
    model, tensors = small(), load_tensors(file.read_bytes())
    layer = model.layers[0]
    assert torch.equal(tensors["embedding"], model.embed.weight)
    assert torch.equal(tensors["layers.0.weight_x"], layer.weight_x)
    assert torch.equal(tensors["layers.0.vectors.p"], torch.sigmoid(layer.p_raw))
    assert torch.equal(tensors["output.bias"], model.decoder.bias)


def test_fingerprint(file, tmp_path):
    _, config, _ = parts(file)
    tensors = load_tensors(file.read_bytes())
    assert config["fingerprint"] == fingerprint(config, tensors)
    # Computed exactly as described in FORMAT.md.
    own = {k: v for k, v in config.items() if k != "fingerprint"}
    digest = hashlib.sha256(json.dumps(own, separators=(",", ":")).encode())
    for name in sorted(tensors):
        kind = {torch.float32: "F32", torch.uint8: "U8"}[tensors[name].dtype]
        shape = ",".join(str(n) for n in tensors[name].shape)
        digest.update(f"\n{name}\n{kind}\n{shape}\n".encode() + tensors[name].numpy().tobytes())
    assert config["fingerprint"] == digest.hexdigest()[:16]
    prints = {config["fingerprint"]}
    for dtype in ("bfloat16", "int8"):
        prints.add(package(small(), tmp_path / "m.tsm", dtype).fingerprint)
    changed = small()
    with torch.no_grad():
        changed.decoder.bias[0] += 1e-3
    prints.add(package(changed, tmp_path / "m.tsm").fingerprint)
    assert len(prints) == 4


def sealed(data: bytes) -> bytes:
    """Corrects the checksum, if the file has one, so that other checks must find the damage."""
    changed = bytearray(data)
    if checksum.stated(changed) is not None:
        checksum.seal(changed)
    return bytes(changed)


def test_checksum(file, tmp_path):
    """The checksum is the one in FORMAT.md: zlib's CRC-32 of the whole file, with zeros in place of its own
    digits."""
    good, path = file.read_bytes(), tmp_path / "flipped.tsm"
    digits = re.match(rb'.{8}{"__metadata__":{"checksum":"([0-9a-f]{8})"', good, re.DOTALL)[1]
    assert good.count(digits) == 1
    assert int(digits, 16) == zlib.crc32(good.replace(digits, b"00000000"))
    checksum.check(good, "model.tsm")
    for at in range(0, len(good), 7):
        flipped = good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :]
        path.write_bytes(flipped)
        with pytest.raises(TsmError, match=r"flipped\.tsm: ") as caught:
            Model.load(path)
        assert caught.value.kind == "bad file"
        with pytest.raises(ValueError, match=r"m\.tsm: it (is damaged|does not begin)"):
            checksum.check(flipped, "m.tsm")


def test_writing_twice_gives_the_same_bytes(tmp_path):
    package(small(), tmp_path / "a.tsm")
    package(small(), tmp_path / "b.tsm")
    assert (tmp_path / "a.tsm").read_bytes() == (tmp_path / "b.tsm").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tsm", "b.tsm"]


def test_program_hash_is_fnv_1a_of_the_text(elementwise_cell):
    value = 0xCBF29CE484222325
    for byte in program_text(elementwise_cell).encode():
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    assert program_hash(elementwise_cell) == value


def test_hash_in_the_format_page():
    page = re.search(r"hashed:\n\n((?:    .*\n)+)", _page()).group(1)
    text = "".join(f"{line[4:]}\n" for line in page.splitlines())
    assert text == program_text(get_cell("lstm"))
    assert f"{program_hash(get_cell('lstm')):016x}" in _page()


def _page() -> str:
    from pathlib import Path

    import tsm.export

    return (Path(tsm.export.__file__).parent / "FORMAT.md").read_text()


def test_quantize():
    torch.manual_seed(0)
    w = torch.randn(20, 30)
    w[3] = 0
    q, scale = quantize(w)
    assert q.dtype == torch.int8 and int(q.abs().max()) == 127
    assert (q.float() * scale[:, None] - w).abs().amax(1).le(scale / 2 * 1.0001).all()
    assert scale[3] == 0 and (q[3] == 0).all()


@pytest.mark.parametrize(
    "call, part",
    [
        (lambda p: package(small(), p, "float16"), "dtype = 'float16'"),
        (lambda p: package(torch.nn.Linear(2, 2), p), "Linear"),
        (lambda p: package(small(), p, assets={"x": b""}), "assets has 'x'"),
        (lambda p: package(small(), p, tokenizer="bytes"), "tokenizer = 'bytes'"),
        (lambda p: package(small(), p, assets={DICT: TEXT}), "without tokenizer"),
        (
            lambda p: package(small(vocab_size=2), p, assets={DICT: TEXT}, tokenizer="word"),
            "3 symbols",
        ),
        (lambda p: export(small(), p, format="onx"), "format = 'onx'"),
        (lambda p: export(small(), p, recurrence="scan"), "recurrence = 'scan'"),
    ],
)
def test_what_cannot_be_written(call, part, tmp_path):
    with pytest.raises(ValueError, match=re.escape(part)):
        call(tmp_path / "m.tsm")
    assert not list(tmp_path.iterdir())


def test_weights_that_are_not_finite(tmp_path):
    model = small()
    with torch.no_grad():
        model.layers[0].weight_h[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"layers\.0\.weight_h"):
        package(model, tmp_path / "m.tsm")


def use(path) -> None:
    """Load and, if that succeeds, feed."""
    model = Model.load(path)
    stream = model.create_stream()
    x = np.zeros((2, model.input_size), np.float32) if not model.takes_tokens else np.zeros(2, int)
    stream.feed(x, last_only=True)


changes = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "number"]),
        st.floats(0, 1),
        st.binary(min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=4,
)
NUMBERS = [
    b"0",
    b"-1",
    b"65536",
    b"9223372036854775807",
    b"18446744073709551616",
    b"1e308",
    b'"x"',
    b"null",
]


def damaged(data: bytes, operations) -> bytes:
    for kind, where, payload in operations:
        at = int(where * (len(data) - 1)) if data else 0
        if kind == "flip":
            data = data[:at] + payload + data[at + len(payload) :]
        elif kind == "cut":
            data = data[:at]
        elif kind == "insert":
            data = data[:at] + payload + data[at:]
        else:  # another number in the header
            found = list(re.finditer(rb"\d+", data[8:4000]))
            if found:
                spot = found[int(where * (len(found) - 1))]
                new = NUMBERS[payload[0] % len(NUMBERS)]
                data = data[: 8 + spot.start()] + new + data[8 + spot.end() :]
    return data


@pytest.mark.parametrize("arch", ["plstm_lm", "nru_lm"])
def test_damaged_files_are_refused_or_run(arch, tmp_path):
    path = tmp_path / "bad.tsm"
    package(small(arch), path, "int8")
    good = path.read_bytes()
    use(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @settings(
        max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(changes)
    def check(operations):
        path.write_bytes(sealed(damaged(good, operations)))
        try:
            use(path)
        except TsmError as error:
            assert error.kind in ("bad file", "bad state")
            assert str(error)

    check()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000, f"{grown} KiB for files of {len(good)} bytes"


def test_every_file_that_is_cut_short_is_refused(file, tmp_path):
    good, path = file.read_bytes(), tmp_path / "cut.tsm"
    for size in {*range(0, 64), *range(64, len(good), 37), len(good) - 1}:
        path.write_bytes(good[:size])
        with pytest.raises(TsmError) as caught:
            Model.load(path)
        assert caught.value.kind == "bad file" and "cut.tsm" in str(caught.value)


def test_damaged_states_are_refused(file):
    model = Model.load(file)
    stream = model.create_stream()
    stream.generate(9, seed=3)
    blob, other = stream.save_state(), model.create_stream()
    before = other.save_state()

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(changes)
    def check(operations):
        bad = damaged(blob, operations)
        if bad == blob:
            return
        with pytest.raises(TsmError):
            other.load_state(bad)
        assert other.save_state() == before

    check()


def test_a_state_with_a_right_checksum_is_still_looked_at(file):
    """Magic, version, fingerprint, position, time and every float, each wrong but with a correct CRC."""
    model = Model.load(file)
    stream = model.create_stream()
    blob = stream.save_state()
    for at, value in [
        (0, b"x"),
        (8, struct.pack("<I", 2)),
        (12, struct.pack("<I", 1)),
        (16, b"\1" * 8),
        (24, struct.pack("<q", -1)),
        (24, struct.pack("<q", 2**62 + 1)),
        (32, struct.pack("<d", float("nan"))),
        (32, struct.pack("<d", -1.0)),
        (40, struct.pack("<f", float("inf"))),
        (len(blob) - 8, struct.pack("<f", float("nan"))),
    ]:
        bad = bytearray(blob)
        bad[at : at + len(value)] = value
        bad[-4:] = struct.pack("<I", zlib.crc32(bytes(bad[:-4])))
        with pytest.raises(TsmError) as caught:
            stream.load_state(bytes(bad))
        assert caught.value.kind == "bad state"
