"""Functions that unpickle a Model or a Stream: they open the model's file again, once per process.

A pickle holds the path, the checksum and the settings of a model, and the blob of a stream; never weights.
Unpickled models are shared: the same file with the same settings gives the same Model while it is in use.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from ._core import Model, Stream
from ._errors import bad_file

_opened: WeakValueDictionary[tuple[str, str, str, str, int], Model] = WeakValueDictionary()


def open_model(path: str, checksum: str, device: str, dtype: str, threads: int) -> Model:
    """The model in the file, which must not have changed since it was pickled."""
    key = (path, checksum, device, dtype, threads)
    model = _opened.get(key)
    if model is not None and not model.closed:
        return model
    fresh = Model.load(path, device=device, dtype=dtype, threads=threads)
    if fresh.checksum != checksum:
        raise bad_file(
            f"{path} has changed since the pickle was made: its checksum is {fresh.checksum}; "
            f"accepted: {checksum}"
        )
    if model is not None:
        _opened.pop(key, None)  # it was closed
    return _opened.setdefault(key, fresh)  # another thread may have been first


def open_stream(model: Model, blob: bytes) -> Stream:
    """A stream of the model, in the state that the blob holds."""
    stream = model.create_stream()
    stream.load_state(blob)
    return stream
