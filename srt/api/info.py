"""Routes that describe: models, model and server facts, version, metrics.

Field names are those that clients and dashboards of other servers look for. Secrets are never
shown. The scheduler's numbers are asked for at every call.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ..config import SECRETS
from ..errors import NotFound, TreadleError
from ..metric_names import GB, KNOWN, accept_length, derived_gauges
from .bodies import JsonResponse
from .later import not_supported
from .service import WEIGHT_VERSION, Service

STATS_TIMEOUT_S = 5.0
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class InfoRoutes:
    def __init__(self, service: Service, launch_command: str) -> None:
        self._service = service
        self._launch_command = launch_command
        self._started_at = time.time()

    async def root(self, request: Request) -> Response:
        return PlainTextResponse(f"treadle {self._service.version}\n")

    async def version(self, request: Request) -> Response:
        return JsonResponse({"version": self._service.version})

    async def models(self, request: Request) -> Response:
        """Load generators take an answer for the sign that the server serves. Raises what forbids
        serving."""
        self._service.frontend.check_serving()
        return JsonResponse({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self._service.model.served_name:
            raise NotFound(
                f"the model {name!r} does not exist", param="model", code="model_not_found"
            )
        self._service.frontend.check_serving()
        return JsonResponse(self._card())

    async def model_info(self, request: Request) -> Response:
        model, config = self._service.model, self._service.config
        formats = self._service.formats
        return JsonResponse(
            {
                "model_path": model.path,
                "served_model_name": model.served_name,
                "tokenizer_path": model.tokenizer_path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": WEIGHT_VERSION,
                "load_format": config.model.load_format,
                "reasoning_parser": formats.reasoning.name if formats.reasoning else None,
                "tool_call_parser": formats.dialect.name if formats.has_tool_parser else None,
                "disaggregation_mode": "null",
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": model.model_type,
                "architectures": [model.architecture],
            }
        )

    async def server_info(self, request: Request) -> Response:
        counters, gauges = await self._stats()
        return JsonResponse({**self._flags(), **self._state(counters, gauges)})

    async def loads(self, request: Request) -> Response:
        """What routers poll. There is one rank, so `dp_rank` other than 0 has nothing."""
        wanted = request.query_params.get("dp_rank", "0")
        if request.query_params.get("format", "json") != "json":
            raise not_supported("format", "only json; /metrics is Prometheus text")
        counters, gauges = await self._stats()
        loads = [self._load(counters, gauges)] if wanted == "0" else []
        return JsonResponse(
            {"timestamp": time.time(), "version": self._service.version, "loads": loads}
        )

    def _load(self, counters: Mapping[str, float], gauges: Mapping[str, float]) -> object:
        known = derived_gauges(counters, gauges, self._service.facts())
        running, most = gauges.get("running", 0.0), self._service.config.sched.max_running
        used = int(known.get(KNOWN + "num_used_tokens", 0))
        return {
            "dp_rank": 0,
            "num_running_reqs": int(running),
            "num_waiting_reqs": int(gauges.get("waiting", 0)),
            "num_uncached_tokens": int(gauges.get("uncached_prompt_tokens", 0)),
            "num_used_tokens": used,
            "num_total_tokens": used,
            "max_total_num_tokens": int(known.get(KNOWN + "max_total_num_tokens", 0)),
            "token_usage": known.get(KNOWN + "token_usage", 0.0),
            "gen_throughput": gauges.get("gen_throughput", 0.0),
            "cache_hit_rate": known.get(KNOWN + "cache_hit_rate", 0.0),
            "utilization": running / most if most > 0 else 0.0,
            "max_running_requests": most,
        }

    async def metrics(self, request: Request) -> Response:
        counters, gauges = await self._stats()
        text = self._service.metrics.render(counters, gauges, self._service.facts())
        return Response(text, media_type=METRICS_TYPE)

    async def _stats(self) -> tuple[dict[str, float], dict[str, float]]:
        """Empty when the scheduler does not answer: the metrics of this process still count."""
        frontend = self._service.frontend
        try:
            stats = await asyncio.wait_for(frontend.stats(), STATS_TIMEOUT_S)
        except (TreadleError, TimeoutError):
            return {}, {}
        return stats.counters, {**stats.gauges, "ended_unconfirmed": frontend.num_ended}

    def _card(self) -> dict[str, object]:
        model = self._service.model
        return {
            "id": model.served_name,
            "object": "model",
            "created": model.created,
            "owned_by": "sglang",
            "root": model.path,
            "parent": None,
            "max_model_len": self._service.limits.context_len,
        }

    def _flags(self) -> dict[str, object]:
        sections = dataclasses.asdict(self._service.config)
        flags = {name: value for section in sections.values() for name, value in section.items()}
        flags.update({name: "***" for name in SECRETS if flags.get(name)})
        model = self._service.model
        return {
            **flags,
            "model_path": model.path,
            "served_model_name": model.served_name,
            "tokenizer_path": model.tokenizer_path,
        }

    def _state(
        self, counters: Mapping[str, float], gauges: Mapping[str, float]
    ) -> dict[str, object]:
        config, capacity = self._service.config, self._service.frontend.capacity
        total = 0 if capacity is None else (capacity.num_pages - 1) * config.cache.page_size
        internal = {
            "last_gen_throughput": gauges.get("gen_throughput", 0.0),
            "memory_usage": {
                "weight": capacity.weight_bytes / GB if capacity else 0,
                "kvcache": capacity.kv_bytes / GB if capacity else 0,
                "token_capacity": total,
            },
            "effective_max_running_requests_per_dp": config.sched.max_running,
            "avg_spec_accept_length": accept_length(counters),
            "startup_time": self._started_at,
            "world_size": config.parallel.tp_size,
        }
        return {
            "scheduler_info": {
                "max_total_num_tokens": total,
                "max_req_input_len": self._service.limits.context_len - 1,
            },
            "internal_states": [internal],
            "version": self._service.version,
            "startup_time": self._started_at,
            "launch_command": self._launch_command,
            "kv_events": None,
        }
