"""OpenVINO with the line protocol of serve.mjs, run by the Python of `make consumers-env`."""

import base64
import json
import sys

import numpy as np
import openvino

# Use the floating-point type of the file: on some processors the default is bfloat16.
CONFIG = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
core = openvino.Core()


def opened(path):
    model = core.compile_model(core.read_model(path), "CPU", CONFIG)
    return model.create_infer_request(), {"inputs": names(model.inputs)}


def names(ports):
    """A port may have several names: OpenVINO removes an Identity operator and keeps the names on both sides of
    it."""
    return [sorted(port.names) for port in ports]


def run(request, feeds):
    arrays = {
        name: np.frombuffer(base64.b64decode(value["data"]), value["type"]).reshape(value["shape"])
        for name, value in feeds.items()
    }
    found = {}
    for port, value in request.infer(arrays).items():
        data = base64.b64encode(np.ascontiguousarray(value)).decode()
        one = {"type": str(value.dtype), "shape": value.shape, "data": data}
        found |= dict.fromkeys(port.names, one)
    return {"outputs": found}


request = None
for line in sys.stdin:
    asked = json.loads(line)
    try:
        if "open" in asked:
            request, answer = opened(asked["open"])
        else:
            answer = run(request, asked["feeds"])
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
