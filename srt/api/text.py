"""/tokenize and /detokenize, in the superset spelling of both server families."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from starlette.requests import Request

from ..errors import BadRequest
from .bodies import JsonResponse
from .chat_messages import read_messages
from .reading import decode, read_body
from .schema import DetokenizeRequest, TokenizeRequest
from .service import Service
from .tool_use import read_tools


class TextRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def tokenize(self, request: Request) -> JsonResponse:
        """`prompt` (or `text`), one or many, or `messages`. No length limit but the body's."""
        data = await read_body(request, self._service.config.net.max_body_bytes)
        body = decode(data, TokenizeRequest)
        prompt = body.text if body.prompt is None else body.prompt
        if (prompt is None) == (body.messages is None):
            raise BadRequest("exactly one of prompt and messages must be given", param="prompt")
        if prompt is None:
            return await self._tokens(await self._chat_ids(body))
        add_special = body.add_special_tokens is not False
        encode = self._service.prompts.encode
        if isinstance(prompt, str):
            return await self._tokens(await encode(prompt, add_special=add_special))
        rows = [await encode(text, add_special=add_special) for text in prompt]
        return JsonResponse(
            {
                "tokens": rows,
                "count": [len(row) for row in rows],
                "max_model_len": self._service.limits.context_len,
                "token_strs": await asyncio.to_thread(lambda: [self._texts(row) for row in rows]),
            }
        )

    async def detokenize(self, request: Request) -> JsonResponse:
        data = await read_body(request, self._service.config.net.max_body_bytes)
        body = decode(data, DetokenizeRequest)
        tokens = body.tokens
        if tokens is None:
            raise BadRequest("tokens must be given", param="tokens")
        skip = body.skip_special_tokens is not False
        if all(isinstance(token, int) for token in tokens):
            text = await self._decode(cast(list[int], tokens), "tokens", skip_special=skip)
            return JsonResponse({"text": text, "prompt": text})
        texts = []
        for i, row in enumerate(tokens):
            if not isinstance(row, list):
                raise BadRequest("tokens mixes ids with lists of ids", param=f"tokens[{i}]")
            texts.append(await self._decode(row, f"tokens[{i}]", skip_special=skip))
        return JsonResponse({"text": texts, "prompt": texts})

    async def _chat_ids(self, body: TokenizeRequest) -> list[int]:
        tools = read_tools(body.tools, None, is_parallel=None)
        conversation = read_messages(
            body.messages,
            continue_final=body.continue_final_message,
            add_prompt=body.add_generation_prompt,
            extra=body.chat_template_kwargs,
            tools=tools.for_template(),
        )
        return await self._service.prompts.encode_chat(conversation)

    async def _decode(self, ids: list[int], param: str, *, skip_special: bool) -> str:
        size = self._service.limits.vocab_size
        bad = next((token for token in ids if not 0 <= token < size), None)
        if bad is not None:
            raise BadRequest(
                f"{param} holds token id {bad}, which is outside the vocabulary [0, {size})",
                param=param,
            )
        decode_ids = self._service.tokenizer.decode
        return await asyncio.to_thread(decode_ids, ids, skip_special=skip_special)

    async def _tokens(self, ids: list[int]) -> JsonResponse:
        return JsonResponse(
            {
                "tokens": ids,
                "count": len(ids),
                "max_model_len": self._service.limits.context_len,
                "token_strs": await asyncio.to_thread(self._texts, ids),
            }
        )

    def _texts(self, ids: Sequence[int]) -> list[str]:
        return [self._service.tokenizer.token_text(token) for token in ids]
