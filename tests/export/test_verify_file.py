"""tsm-export verify finds every flipped bit of a file, and every tensor that differs from the model."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import torch

from small_models import small
from tsm.export import verify_file
from tsm.export.cli import main
from tsm.export.common.checksum import seal
from tsm.export.common.exported import open_exported
from tsm.export.common.formats import MODULES, Options, Stored, get_format
from tsm.export.common.seal import SUMS
from tsm.export.common.tsm_header import with_metadata
from tsm.export.entry import as_source
from tsm.export.verify.tensors import check_stored

FLIPS, FLIPS_NIGHTLY = 40, 200
RECORD = {"passed": True, "tsm_version": "0", "dtype": "float32", "checks": 1}
DTYPES = {
    "tsm": ("float32", "bfloat16", "int8"),
    "onnx": ("float32", "float16", "int8"),
    "torchscript": ("float32", "bfloat16", "float16"),
    "triton": ("float32", "int8"),
}


def write(model, path: Path, format: str, dtype: str = "float32") -> Path:
    """The file as `export` writes it, without the verification."""
    made = get_format(format)
    options = Options(made.FORMS[0] if made.FORMS else None, None, dtype)
    made.write(as_source(model), path, options, lambda what: None)
    made.seal(path, RECORD)
    return path


@pytest.fixture(scope="module", params=MODULES)
def exported(request, tmp_path_factory):
    """(format, path) of every format."""
    path = tmp_path_factory.mktemp("exported") / "model"
    return request.param, write(small("plstm_lm"), path, request.param)


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


def flip(path: Path, rng: random.Random) -> tuple[Path, int]:
    """Flips one random bit; all bits of all files are equally likely."""
    files = files_of(path)
    at = rng.randrange(8 * sum(file.stat().st_size for file in files))
    for file in files:
        bits = 8 * file.stat().st_size
        if at < bits:
            data = bytearray(file.read_bytes())
            data[at // 8] ^= 1 << at % 8
            file.write_bytes(data)
            return file, at
        at -= bits
    raise AssertionError("no such bit")


def attack(exported, tmp_path, capsys, flips: int) -> None:
    format, path = exported
    rng = random.Random(format)
    missed = []
    for number in range(flips):
        copy = tmp_path / f"{number}"
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, copy)
        where = flip(copy, rng)
        if main(["verify", str(copy)]) != 1:
            missed.append(where)
        assert "Traceback" not in capsys.readouterr().err
    assert not missed, f"{len(missed)} of {flips} flipped bits were not found: {missed[:5]}"


def test_every_flipped_bit_is_found(exported, tmp_path, capsys):
    attack(exported, tmp_path, capsys, FLIPS)


@pytest.mark.nightly
def test_a_thousand_flipped_bits(exported, tmp_path, capsys):
    """200 flipped bits in each of the five formats."""
    attack(exported, tmp_path, capsys, FLIPS_NIGHTLY)


HEAD = b'{"__metadata__":{"checksum":"00000000"'


@pytest.mark.parametrize(
    ("length", "header", "said"),
    [
        (None, HEAD + b"}}", "KeyError('tsm')"),
        (None, HEAD + b',"tsm":"[]"}}', "TypeError"),
        (None, HEAD + b',"tsm":"{}"}}', "KeyError('layers')"),
        (None, HEAD + b',"tsm":"' + b"[" * 10**5 + b'"}}', "RecursionError"),
        (None, HEAD + b"}", "the header is not JSON"),
        (None, HEAD + b',"x":' + b"[" * 10**6, "the header is not JSON"),
        (2**40, HEAD + b"}}", "the header's length is 1,099,511,627,776; accepted: up to"),
        (2**63, HEAD + b"}}", "the header's length is 9,223,372,036,854,775,808; accepted: up to"),
    ],
)
def test_a_hostile_header_with_the_right_checksum(tmp_path, capsys, length, header, said):
    data = bytearray((length or len(header)).to_bytes(8, "little") + header)
    seal(data)
    path = tmp_path / "model.tsm"
    path.write_bytes(data)
    assert main(["verify", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.startswith(f"tsm-export: error: {path}: the header")


@pytest.mark.parametrize(
    ("metadata", "code", "said"),
    [
        ({"proof": "[" * 10**5}, 2, "the proof is not JSON"),
        ({"proof": "{"}, 2, "the proof is not JSON"),
        ({"proof": [1]}, 2, "metadata"),
        ({"proof": f'{{"criterion":{{"found":{10**400},"limit":1}}}}'}, 1, ""),
    ],
)
def test_hostile_metadata_with_the_right_checksum(tmp_path, capsys, metadata, code, said):
    path = write(small("plstm_lm"), tmp_path / "model.tsm", "tsm")
    path.write_bytes(with_metadata(path.read_bytes(), metadata))
    assert main(["verify", str(path)]) == code
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_cut_short_and_made_longer(exported, tmp_path, capsys):
    format, path = exported
    for number, change in enumerate((lambda d: d[:-1], lambda d: d + b"\0", lambda d: b"")):
        copy = tmp_path / f"{number}"
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, copy)
        file = files_of(copy)[-1]
        file.write_bytes(change(file.read_bytes()))
        assert main(["verify", str(copy)]) == 1, (format, number)


def test_a_whole_file_passes(exported, capsys):
    _, path = exported
    assert main(["verify", str(path)]) == 0, capsys.readouterr()
    out = capsys.readouterr().out
    assert "every byte: " in out and "in chunks as in one piece" in out and "checks passed" in out


@pytest.mark.parametrize("format, dtype", [(f, d) for f, all_ in DTYPES.items() for d in all_])
def test_one_weight_that_is_not_the_models(format, dtype, tmp_path):
    """One row of the embedding, which no other check reads, is off by the smallest step of its type."""
    model = small("plstm_lm")
    path, made = write(model, tmp_path / "model", format, dtype), get_format(format)
    options = open_exported(path)[0].options()
    right = check_stored("right", made.stored(as_source(model), path, options), dtype)
    assert right.passed, right.line()
    shift = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7, "int8": 1.1 / 127}[
        dtype
    ]
    with torch.no_grad():
        row = model.embed.weight[7]
        row[2] = (1 - shift) * row.abs().max() if dtype == "int8" else row[2] * (1 + shift)
    wrong = check_stored("wrong", made.stored(as_source(model), path, options), dtype)
    assert not wrong.passed and "embedding" in wrong.line()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.int8, torch.bool])
def test_a_tensor_of_another_type_is_not_the_models(kind):
    weight = torch.ones(2, 3)  # exactly representable in all of these types
    found = check_stored("other", [Stored("weight", weight.to(kind), weight)], "float32")
    assert not found.passed and str(kind) in found.line()
    half = check_stored("half", [Stored("weight", weight.half(), weight)], "float16")
    assert half.passed, half.line()


@pytest.mark.parametrize("format", [f for f in MODULES if f != "pt2"])
def test_another_model_is_not_this_one(format, tmp_path):
    path = write(small("lstm_lm"), tmp_path / "model", format)
    other = small("lstm_lm")
    with torch.no_grad():
        other.decoder.bias[1] += 1e-6
    report = verify_file(path, other, steps=0)
    assert [check.what for check in report.checks if not check.passed] == ["every tensor"]


def test_one_of_tritons_models_may_be_deleted(tmp_path):
    path = write(small("lstm_lm"), tmp_path / "models", "triton")
    (path / "foreign").mkdir()
    shutil.rmtree(path / "lstm_lm_onnx")
    assert verify_file(path).passed
    (path / "lstm_lm_runtime" / SUMS).unlink()
    assert not verify_file(path).passed


def test_bad_input(tmp_path, capsys):
    (tmp_path / "text").write_text("no model")
    for args, code, part in (
        (["verify", tmp_path / "none"], 2, "does not exist"),
        (["verify", tmp_path], 2, "without a model of tsm"),
        (["verify", tmp_path / "text"], 1, "checks failed"),
        (["verify", tmp_path / "text", "--data"], 2, "--data needs --path"),
        (["verify"], 2, "FILE"),
    ):
        assert main([str(arg) for arg in args]) == code
        err = capsys.readouterr().err
        assert part in err and err.count("\n") == 1, err
