"""A tsm model in NVIDIA Triton's Python backend: one Stream per sequence; a batch of them is fed together.

`tsm-export triton` copies this file beside model.tsm. It needs tsm (without torch) and numpy in the Python that
Triton runs.

    START   the sequence begins: a new stream, even if its number was used before
    END     the stream is dropped after this request
    x       [1,T] tokens or [1,T,I] values; any T, also within one batch
    dt      [1,T], if the model takes it; default: 1
    logits  [1,T,V], or [1,C] of a classifier, after the chunk

A request that cannot be served gets its own error, and its stream does not change.
"""

import json
import time
from collections import OrderedDict
from pathlib import Path

import triton_python_backend_utils as pb_utils

GRACE = 1.1
"""Streams are dropped slightly later than Triton drops their sequences."""


class TritonPythonModel:
    def initialize(self, args):
        from tsm.runtime import Model

        config = json.loads(args["model_config"])
        given = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
        self.model = Model.load(
            Path(__file__).with_name("model.tsm"),
            dtype=given.get("dtype", "float32"),
            threads=int(given.get("threads", "1")),
        )
        self.last_only = self.model.family == "classifier"
        idle = int(config["sequence_batching"]["max_sequence_idle_microseconds"])
        self.idle_seconds = idle * 1e-6 * GRACE
        # Number of a sequence -> (stream, when it was last used), oldest first.
        self.streams = OrderedDict()

    def execute(self, requests):
        self._drop_idle()
        responses = [None] * len(requests)
        waiting = {}  # number of a sequence -> its index in `requests`
        for place, request in enumerate(requests):
            number = int(value_of(request, "CORRID").item())
            # Triton never sends two requests of a sequence at once; if it did, they would run in order.
            if number in waiting:
                self._feed(requests, waiting, responses)
                waiting = {}
            if value_of(request, "START").item():
                self.streams[number] = (self.model.create_stream(), time.monotonic())
            if number in self.streams:
                waiting[number] = place
            else:
                responses[place] = failure(
                    f"sequence {number} has no stream: its first request must carry START"
                )
        self._feed(requests, waiting, responses)
        return responses

    def finalize(self):
        self.streams.clear()

    def _feed(self, requests, waiting, responses):
        streams = [self.streams[number][0] for number in waiting]
        chunks = [value_of(requests[place], "x") for place in waiting.values()]
        times = [value_of(requests[place], "dt") for place in waiting.values()]
        for place, found in zip(
            waiting.values(), self._logits(streams, chunks, times), strict=True
        ):
            responses[place] = found
        for number, place in waiting.items():
            if value_of(requests[place], "END").item():
                del self.streams[number]
            else:
                self.streams[number] = (self.streams[number][0], time.monotonic())
                self.streams.move_to_end(number)

    def _logits(self, streams, chunks, times):
        """One response per request; a bad request does not affect the others."""
        try:
            for chunk in chunks:
                if len(chunk) != 1:
                    raise ValueError(
                        f"x has {len(chunk)} rows; accepted: one, a chunk of its sequence"
                    )
            together = self.model.feed_many(
                streams,
                [chunk[0] for chunk in chunks],
                [None if dt is None else dt[0] for dt in times],
                last_only=self.last_only,
            )
        except ValueError as error:  # nothing was fed
            if len(streams) == 1:
                return [failure(str(error))]
            alone = zip(streams, chunks, times, strict=True)
            return [self._logits([s], [x], [dt])[0] for s, x, dt in alone]
        return [
            pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("logits", logits[None])])
            for logits in together
        ]

    def _drop_idle(self):
        limit = time.monotonic() - self.idle_seconds
        while self.streams and next(iter(self.streams.values()))[1] < limit:
            self.streams.popitem(last=False)


def value_of(request, name):
    """The input as an array; None if it was omitted."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def failure(message):
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(message))
