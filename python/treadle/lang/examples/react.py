"""ReAct with tools: the model thinks, calls, reads the result, and answers."""

from __future__ import annotations

import ast
import operator

import treadle as tr
from treadle.lang.examples.command import show

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression."""
    return f"{evaluate(ast.parse(expression, mode='eval').body):g}"


def evaluate(node: ast.expr) -> float:
    """Of numbers and the four operators only: a model's text is not to be trusted."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -evaluate(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return float(OPERATORS[type(node.op)](evaluate(node.left), evaluate(node.right)))
    raise ValueError("only numbers, + - * / and brackets are allowed")


@tr.function
def react(s: tr.State, question: str) -> str:
    s += tr.system("You are a helpful assistant.")
    s += tr.user(question)
    s += tr.agent("answer", tools=[calculator], max_turns=4)
    return str(s["answer"])


def main() -> str:
    state = react.run("Please compute 12 * 34.", temperature=0)
    return str(state["answer"])


if __name__ == "__main__":
    show(main)
