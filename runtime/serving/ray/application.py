"""The application that Ray Serve runs: every replica is a complete service and can answer any request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from ..app import App, refusal
from ..server import Options, Replica
from ..streams.models import Source
from ..transport.access import is_loopback, read_tokens
from ..transport.http import Receive, Request, Scope, Send
from ..transport.limits import Keeping, Limits
from ..transport.problems import Problem

NAME = "Streams"  # name of the deployment; a YAML file may add settings to it
ROUTER = "tsm.runtime.serving.ray.router.SessionRouter"
HEALTH = 2.0  # seconds between Ray's health checks
SHARED = ("redis", "rediss", "unix")
ACCEPTED = "redis://HOST:PORT/DB"
WAIT = 0.2  # seconds between Ray's checks that a stopping replica has answered everything
T = TypeVar("T")


def application(
    models: str | Sequence[str],
    store: str,
    replicas: int = 2,
    *,
    cpus: float = 1.0,
    grace: float = 10.0,
    limits: Mapping[str, Any] | None = None,
    keeping: Mapping[str, Any] | None = None,
    deployment: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """What `serve.run` takes. Model and token files must have the same paths on every machine.

    `limits`, `keeping` and the other options are those of `tsm-serve` (Limits, Keeping, Options); `deployment`
    holds settings of Ray, such as {"autoscaling_config": {"min_replicas": 2, "max_replicas": 8}}.
    """
    serve, router_config = packages()
    kind = str(store).partition(":")[0]  # the rest may have a password
    if not isinstance(store, str) or kind not in SHARED:
        raise ValueError(f"store {kind!r:.80} is not shared by machines; accepted: {ACCEPTED}")
    names = [models] if isinstance(models, str) else models
    found = [Source.parse(name) for name in names]
    if not found:
        raise ValueError("models is empty; accepted: FILE.tsm, or NAME=FILE.tsm, one or more")
    given: dict[str, Any] = {"log": "events", **options}
    given |= {"store": store, "grace": grace}
    given["sources"] = [Source(one.name, str(Path(one.path).absolute())) for one in found]
    given["limits"] = bounds = _made(Limits, limits or {})
    given["keeping"] = _made(Keeping, keeping or {})
    if (token_file := options.get("token_file")) is not None:
        # Any Host is accepted, since tokens protect the server.
        given |= {"token_file": _tokens(token_file), "host": "0.0.0.0"}
    told = _made(Options, given)

    def app() -> Any:
        return service(told)

    settings: dict[str, Any] = {
        "name": NAME,
        "num_replicas": replicas,
        "max_ongoing_requests": bounds.connections,
        "graceful_shutdown_timeout_s": grace,
        "graceful_shutdown_wait_loop_s": WAIT,
        "health_check_period_s": HEALTH,
        "ray_actor_options": {"num_cpus": cpus},
        "request_router_config": router_config(request_router_class=ROUTER),
        **(deployment or {}),
    }
    if "autoscaling_config" in settings:
        settings.pop("num_replicas")
    return serve.deployment(**settings)(serve.ingress(app)()).bind()


def build(arguments: Mapping[str, Any]) -> Any:
    """For `import_path: tsm.runtime.serving.ray:build` in a YAML file; `args` are those of `application`."""
    missing = [name for name in ("models", "store") if name not in arguments]
    if missing:
        raise ValueError(f"args has no {missing[0]}; accepted: models, store, replicas, ...")
    return application(**arguments)


def packages() -> tuple[Any, Any]:
    """The module ray.serve, and its class for router settings."""
    try:
        from ray import serve
        from ray.serve.config import RequestRouterConfig
    except ImportError as error:
        raise ModuleNotFoundError(
            "ray is not installed; run: pip install 'timescale-models[ray]'", name="ray"
        ) from error
    return serve, RequestRouterConfig


def service(options: Options) -> Any:
    """The ASGI application of one replica."""
    replica = Replica(options)
    return replica.app if options.token_file else Local(replica.app, options.limits)


class Local:
    """Without tokens, only local clients are served, as in tsm-serve; this is needed because Ray's proxy may
    accept others."""

    def __init__(self, app: App, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = (scope.get("client") or ("nobody",))[0]
        if scope["type"] == "lifespan" or is_loopback(client):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            problem = Problem(403, f"client {client:.80}; accepted: loopback, or a token_file")
            await Request(scope, receive, send, self.limits).answer(refusal(problem, "none"))


def _tokens(path: Any) -> Path:
    """The absolute path of the token file; if the file exists on this machine, it is checked now."""
    if not isinstance(path, str | Path) or not Path(path).name:
        raise ValueError(f"token_file = {path!r:.80}; accepted: the path of a file")
    if Path(path).exists():
        read_tokens(Path(path))
    return Path(path).absolute()


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise ValueError(f"{name} is not a setting; accepted: {', '.join(known)}")
    return kind(**values)
