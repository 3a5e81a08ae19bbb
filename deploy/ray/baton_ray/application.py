"""The application that `serve run` and `serve deploy` build: `baton_ray.application:build`."""

from __future__ import annotations

import shutil
from typing import Any

import pydantic
from ray import serve
from ray.serve import Application

from baton_ray.ingress import BatonIngress
from baton_ray.replica import BatonReplica

ROUTERS = {
    "prefix": "baton_ray.prefix_router:PrefixAffinityRouter",
    "ray-prefix": "ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router:PrefixCacheAffinityRouter",
    "round-robin": "ray.serve.experimental.round_robin_router:RoundRobinRouter",
    "load": "ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter",
}
FLAGS_OF_THE_REPLICA = {"host", "port", "uds", "tensor-parallel-size"}


class Settings(pydantic.BaseModel):
    """`args` of the application in serve.yaml. An unknown name is refused."""

    model_config = pydantic.ConfigDict(extra="forbid")

    model: str = "demo"
    binary: str = "baton"
    flags: dict[str, Any] = {}
    tensor_parallel_size: int = pydantic.Field(1, ge=1)
    gpus: bool = False
    cpus_per_replica: float = pydantic.Field(1, gt=0)
    router: str = "prefix"
    router_settings: dict[str, Any] = {}
    max_ongoing_requests: int = pydantic.Field(256, ge=1)
    autoscaling: dict[str, Any] = {"min_replicas": 1, "max_replicas": 1}
    start_timeout_s: float = pydantic.Field(600, gt=0)
    drain_timeout_s: float = pydantic.Field(60, gt=0)
    health_check_period_s: float = pydantic.Field(5, gt=0)
    max_body_bytes: int = pydantic.Field(32 * 1024 * 1024, gt=0)

    @pydantic.field_validator("router")
    @classmethod
    def _is_a_router(cls, name: str) -> str:
        if name not in ROUTERS:
            raise ValueError(f"router is {name!r}; there are {', '.join(ROUTERS)}")
        return name

    @pydantic.field_validator("flags")
    @classmethod
    def _is_free(cls, flags: dict[str, Any]) -> dict[str, Any]:
        taken = FLAGS_OF_THE_REPLICA & {name.lstrip("-").replace("_", "-") for name in flags}
        if taken:
            raise ValueError(f"{', '.join(sorted(taken))}: set by the replica, not by `flags`")
        return flags


def command_line(settings: Settings) -> list[str]:
    """The command of a replica. A flag's value may be true (the flag alone), a list (repeated) or a value."""
    command = [shutil.which(settings.binary) or settings.binary, "serve", settings.model]
    command += ["--host", "127.0.0.1", "--port", "0"]
    if settings.tensor_parallel_size > 1:
        command += ["--tensor-parallel-size", str(settings.tensor_parallel_size)]
    if settings.gpus and "device" not in settings.flags:
        command += ["--device", "cuda"]
    for name, value in settings.flags.items():
        flag = "--" + name.lstrip("-").replace("_", "-")
        for item in value if isinstance(value, list) else [value]:
            command += [flag] if item is True else [flag, str(item)]
    return command


def build(args: dict[str, Any]) -> Application:
    """The ingress over the replicas. Raises ValueError when `args` are no Settings."""
    settings = Settings(**args)
    replicas = serve.deployment(BatonReplica).options(
        name="BatonReplica",
        max_ongoing_requests=settings.max_ongoing_requests,
        autoscaling_config=settings.autoscaling,
        request_router_config={
            "request_router_class": ROUTERS[settings.router],
            "request_router_kwargs": settings.router_settings,
        },
        health_check_period_s=settings.health_check_period_s,
        graceful_shutdown_timeout_s=settings.drain_timeout_s,
        ray_actor_options={
            "num_cpus": settings.cpus_per_replica,
            "num_gpus": settings.tensor_parallel_size if settings.gpus else 0,
        },
    )
    ingress = serve.deployment(BatonIngress).options(
        name="BatonIngress", max_ongoing_requests=100_000, ray_actor_options={"num_cpus": 0.1}
    )
    return ingress.bind(replicas.bind(command_line(settings), settings.start_timeout_s), settings.max_body_bytes)
