"""tsm-serve's service on Ray Serve: Ray places, restarts and scales the replicas, Redis holds the states.

    from ray import serve
    from tsm.runtime.serving.ray import application

    serve.run(application(["/models/text8.tsm"], store="redis://redis:6379/0", replicas=2))

`serve deploy` takes `build` by name, with the same arguments in a YAML file (deploy/ray.yaml).
"""

from .application import application, build

__all__ = ["application", "build"]
