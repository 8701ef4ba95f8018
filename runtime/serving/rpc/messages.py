"""The messages of the open inference protocol (KServe v2) and of gRPC's health service, made from tables.

Names, numbers and types of the fields are those of the public protocols, so that any client of those protocols
works; no generated code is needed. A row maps a message name to its fields, each "name number type". A type is
one of protobuf's, `*type` (a list), `map` (a map from strings to InferParameter), or the name of a message.
Fields after "choice:" form a oneof: one of them is set.
"""

from __future__ import annotations

from typing import Any

TENSOR = "name 1 string, datatype 2 string, shape 3 *int64, parameters 4 map"
INFERENCE = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live 1 bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready 1 bool",
    "ModelReadyRequest": "name 1 string, version 2 string",
    "ModelReadyResponse": "ready 1 bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name 1 string, version 2 string, extensions 3 *string",
    "ModelMetadataRequest": "name 1 string, version 2 string",
    "ModelMetadataResponse.TensorMetadata": "name 1 string, datatype 2 string, shape 3 *int64",
    "ModelMetadataResponse": "name 1 string, versions 2 *string, platform 3 string,"
    " inputs 4 *ModelMetadataResponse.TensorMetadata,"
    " outputs 5 *ModelMetadataResponse.TensorMetadata",
    "InferParameter": "choice:bool_param 1 bool, choice:int64_param 2 int64,"
    " choice:string_param 3 string, choice:double_param 4 double, choice:uint64_param 5 uint64",
    "InferTensorContents": "bool_contents 1 *bool, int_contents 2 *int32, int64_contents 3 *int64,"
    " uint_contents 4 *uint32, uint64_contents 5 *uint64, fp32_contents 6 *float,"
    " fp64_contents 7 *double, bytes_contents 8 *bytes",
    "ModelInferRequest.InferInputTensor": f"{TENSOR}, contents 5 InferTensorContents",
    "ModelInferRequest.InferRequestedOutputTensor": "name 1 string, parameters 2 map",
    "ModelInferRequest": "model_name 1 string, model_version 2 string, id 3 string,"
    " parameters 4 map, inputs 5 *ModelInferRequest.InferInputTensor,"
    " outputs 6 *ModelInferRequest.InferRequestedOutputTensor, raw_input_contents 7 *bytes",
    "ModelInferResponse.InferOutputTensor": f"{TENSOR}, contents 5 InferTensorContents",
    "ModelInferResponse": "model_name 1 string, model_version 2 string, id 3 string,"
    " parameters 4 map, outputs 5 *ModelInferResponse.InferOutputTensor,"
    " raw_output_contents 6 *bytes",
}
HEALTH = {"HealthCheckRequest": "service 1 string", "HealthCheckResponse": "status 1 int32"}
PACKAGES = {"inference": INFERENCE, "grpc.health.v1": HEALTH}


class Messages:
    """Classes by name: `Messages().of("inference", "ModelInferRequest")`."""

    def __init__(self) -> None:
        from google.protobuf import descriptor_pool

        # A private one, since others may register the same names.
        self.pool = descriptor_pool.DescriptorPool()
        for package, rows in PACKAGES.items():
            self.pool.Add(_file(package, rows))

    def of(self, package: str, name: str) -> Any:
        from google.protobuf import message_factory

        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"{package}.{name}"))


def _file(package: str, rows: dict[str, str]) -> Any:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name=f"tsm/{package}.proto", package=package, syntax="proto3"
    )
    made: dict[str, Any] = {}
    for name in sorted(rows):  # nested messages come after their parent
        outer, _, inner = name.rpartition(".")
        made[name] = made[outer].nested_type.add() if outer else file.message_type.add()
        made[name].name = inner
    for name, fields in rows.items():
        for field in filter(None, fields.split(", ")):
            _add(made[name], f".{package}.", name, *field.split())
    return file


def _add(message: Any, package: str, owner: str, name: str, number: str, kind: str) -> None:
    field = message.field.add(number=int(number))
    field.label = field.LABEL_REPEATED if kind == "map" or kind[0] == "*" else field.LABEL_OPTIONAL
    choice, _, field.name = name.rpartition(":")
    if choice:
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    kind = kind.lstrip("*")
    if kind == "map":
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        _add(entry, package, "", "key", "1", "string")
        _add(entry, package, "", "value", "2", "InferParameter")
        kind = f"{owner}.ParametersEntry"
    if kind[0].isupper():
        field.type, field.type_name = field.TYPE_MESSAGE, package + kind
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
