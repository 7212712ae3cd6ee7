"""The tools of agent task cases as Python functions, and what a whole task ends in.

Records form chains: those that a case tells of are as it says, the rest is made from the key, so
every chain goes on for ever and the same way. Whole tasks are those of which the case fixes the
end: arithmetic, values to be looked up or stored, links and records to be followed.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from benchmark.quality.agent_cases import AgentCase
from benchmark.serving.client import Json

import treadle as tr
from treadle.lang.examples.react import calculator

KINDS = ("calc", "lookup", "hop")
WORDS = ("amber", "birch", "cedar", "dune", "ember", "fern", "grove", "heron")
_RECORDS = re.compile(r"Start at record (\S+) and follow (\d+) records")


@dataclass(slots=True)
class Workshop:
    """The tools of one run of a case, with what they hold."""

    records: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, case: AgentCase) -> Workshop:
        """With the records that its conversation tells of."""
        shop, asked = cls(), {}
        for message in case.body["messages"]:
            for call in message.get("tool_calls") or ():
                arguments = json.loads(call["function"]["arguments"])
                if call["function"]["name"] == "get_record":
                    asked[call["id"]] = arguments["key"]
                elif call["function"]["name"] == "save_record":
                    shop.records[arguments["key"]] = arguments["value"]
            if message["role"] == "tool" and message["tool_call_id"] in asked:
                shop.records[asked[message["tool_call_id"]]] = message["content"]
        return shop

    def run(self, name: str, arguments: Json) -> str:
        """Raises ValueError for a tool that these tasks do not need."""
        if name == "calculator":
            return calculator(str(arguments["expression"]))
        if name in ("add", "multiply"):
            a, b = int(arguments["a"]), int(arguments["b"])
            return str(a + b if name == "add" else a * b)
        if name == "get_record":
            return self.record(str(arguments["key"]))
        if name == "save_record":
            self.records[str(arguments["key"])] = str(arguments["value"])
            return "stored"
        raise ValueError(f"{name} is not needed here")

    def record(self, key: str) -> str:
        if key not in self.records:
            digest = hashlib.sha256(key.encode()).digest()
            self.records[key] = f"{WORDS[digest[0] % len(WORDS)]}-{digest[1]}"
        return self.records[key]

    def tools(self, case: AgentCase) -> tr.Tools:
        """As the case describes them."""
        return tr.Tools(self._tool(each["function"]) for each in case.body["tools"])

    def _tool(self, function: Json) -> tr.Tool:
        name = function["name"]
        parameters = dict(function["parameters"])
        return tr.Tool(
            name, function["description"], parameters, lambda **given: self.run(name, given)
        )


def task_messages(case: AgentCase) -> list[Json]:
    """Up to the last message of the user: the task from its beginning."""
    messages = list(case.body["messages"])
    while messages[-1]["role"] != "user":
        messages.pop()
    return messages


def is_solved(case: AgentCase, shop: Workshop, answer: str) -> bool:
    """Whether the final answer, or what was stored, is right."""
    question = task_messages(case)[-1]["content"]
    if match := _RECORDS.search(question):
        key = match[1]
        for _ in range(int(match[2])):
            key = shop.record(key)
        return answer.strip() == key
    expect = case.expect
    if expect["type"] == "text":
        return answer.strip() == expect["equals"].strip()
    if expect["name"] == "save_record":
        return shop.records.get(expect["arguments"]["key"]) == expect["arguments"]["value"]
    result = shop.run(expect["name"], expect["arguments"])
    return result in _numbers(answer)


def _numbers(text: str) -> list[Any]:
    return [number.rstrip(".") for number in re.findall(r"-?\d[\d.]*", text)]
