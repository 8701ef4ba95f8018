"""KServe v2 over gRPC (`--grpc-port`). Needs the extra [grpc]."""
