"""Routes that control a server instead of asking it for text: they want an admin key, and a router
sends them to all of its replicas.
"""

from __future__ import annotations

CONTROL_PATHS = (
    "/flush_cache",
    "/reset_prefix_cache",
    "/start_profile",
    "/stop_profile",
    "/pause_generation",
    "/continue_generation",
    "/update_weights_from_disk",
    "/release_memory_occupation",
    "/resume_memory_occupation",
    "/load_lora_adapter",
    "/unload_lora_adapter",
)
