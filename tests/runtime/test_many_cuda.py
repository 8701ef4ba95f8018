"""Calls on many streams on a GPU: errors per chunk, generation with settings per stream, cancellation."""

from __future__ import annotations

import numpy as np
import pytest

from tolerances import assert_close
from tsm.export.contract.streams import StreamedModel
from tsm.plugin.cells import get_cell
from tsm.runtime import Cancel, Model, TsmError

pytestmark = pytest.mark.gpu
LENGTHS = (1, 700, 3, 0, 40, 40, 129, 2)


@pytest.fixture
def both(tmp_path):
    """The same model on the GPU and on the CPU."""
    made = StreamedModel(get_cell("plstm"), "lm tokens", tmp_path)
    return Model.load(made.path, device="cuda"), Model.load(made.path)


def chunks() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.integers(0, 13, length) for length in LENGTHS]


def test_ragged_chunks_with_log_probs_and_last_only(both):
    wanted = [i % 2 == 0 for i in range(len(LENGTHS))]
    found = []
    for model in both:
        streams = [model.create_stream() for _ in LENGTHS]
        found.append(model.feed_many(streams, chunks(), last_only=wanted))
        assert [stream.position for stream in streams] == list(LENGTHS)
    for gpu, cpu in zip(*found, strict=True):
        assert_close(gpu, cpu, "stream", "float32", "logits")


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_one_bad_chunk_refuses_itself_alone(both, dtype):
    model = both[0]
    streams = [model.create_stream() for _ in LENGTHS]
    for stream in streams:
        stream.feed([1, 2, 3])
    before = streams[4].save_state()
    given = [chunk.astype(dtype) for chunk in chunks()]
    given[4][7] = 13
    with pytest.raises(TsmError) as caught:
        model.feed_many(streams, given)
    assert caught.value.chunk == 4 and {stream.position for stream in streams} == {3}
    found = model.feed_many(streams, given, errors="return")
    assert [isinstance(one, TsmError) for one in found] == [i == 4 for i in range(len(LENGTHS))]
    assert streams[4].save_state() == before
    rest = [3 + length for length in LENGTHS]
    rest[4] = 3
    assert [stream.position for stream in streams] == rest


def test_generation_has_its_own_settings(both):
    """Greedy tokens equal those of the CPU; every stream advances by its own n."""
    counts = [5, 0, 40, 17]
    found = []
    for model in both:
        streams = [model.create_stream() for _ in counts]
        for i, stream in enumerate(streams):
            stream.feed([i + 1])
        tokens = model.generate_many(streams, counts, temperature=[1e-6] * 4, seed=[1, 2, 3, 4])
        assert [stream.position for stream in streams] == [n + 1 for n in counts]
        found.append([list(one) for one in tokens])
    assert found[0] == found[1]


def test_a_cancelled_call_leaves_every_stream_as_it_was(both):
    model = both[0]
    streams = [model.create_stream() for _ in LENGTHS]
    before = [stream.save_state() for stream in streams]
    cancel = Cancel()
    cancel.set()
    with pytest.raises(TsmError, match="cancel"):
        model.feed_many(streams, chunks(), cancel=cancel)
    assert [stream.save_state() for stream in streams] == before
    cancel.clear()
    model.feed_many(streams, chunks(), cancel=cancel)
    assert [stream.position for stream in streams] == list(LENGTHS)
