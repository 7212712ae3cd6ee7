"""What every route works with, made once per process, and what the model is called outside."""

from __future__ import annotations

from dataclasses import dataclass

from ..config import ServerConfig
from ..errors import NotFound
from ..metric_names import EngineFacts
from ..metrics import HttpMetrics, RequestMetrics
from ..tokenizer.encode import Tokenizer
from ..tokenizer.frontend import Frontend
from ..tokenizer.limits import Limits
from ..tokenizer.prompts import Prompts
from .grammar import GrammarDesk
from .output_formats import OutputFormats
from .sampling import SamplingReader

WEIGHT_VERSION = "default"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    served_name: str
    path: str
    tokenizer_path: str
    architecture: str
    model_type: str
    window: int  # positions a window layer sees; 0 without such layers
    created: int  # Unix time, seconds


@dataclass(frozen=True, slots=True)
class Service:
    frontend: Frontend
    prompts: Prompts
    tokenizer: Tokenizer
    limits: Limits
    sampling: SamplingReader
    grammars: GrammarDesk
    formats: OutputFormats
    model: ModelInfo
    config: ServerConfig
    metrics: RequestMetrics
    http_metrics: HttpMetrics
    version: str

    def facts(self) -> EngineFacts:
        """Byte counts are 0 until the engine is ready."""
        capacity = self.frontend.capacity
        return EngineFacts(
            page_size=self.config.cache.page_size,
            window=self.model.window,
            context_len=self.limits.context_len,
            weight_bytes=capacity.weight_bytes if capacity else 0,
            kv_bytes=capacity.kv_bytes if capacity else 0,
        )

    def check_model(self, name: str | None) -> str:
        """The name that responses carry: the served one. Raises NotFound with strict names."""
        served = self.model.served_name
        if name and name != served and self.config.net.strict_model_name:
            raise NotFound(
                f"the model {name!r} does not exist; this server has {served!r}",
                param="model",
                code="model_not_found",
            )
        return served
