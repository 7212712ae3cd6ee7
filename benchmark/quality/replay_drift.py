"""What bounded replay changes: next-token distributions after a prefix hit against a cold run.

    python -m benchmark.quality.replay_drift --model FILE.gguf [--quantization q8_0]
        [--parts engine,served] [--hits 2048] [--slopes 0,32,64] [--new-tokens 32] [--out NAME]
    python -m benchmark.quality.replay_drift --parts curves --corpora FOLDER [--documents 30]

Run from the root of the repository; `--model` also takes demo:gemma3-270m. Three measurements:

curves  public-domain documents (`corpora.py`): drift against depth, slope, length of the hit,
        distance from it and stacked turns, as tables and plots (`curves.py`). It can be stopped
        and started again.
engine  the server's worker in this process, teacher-forced along the text, whole distributions:
        the table of record (`engine.py`)
served  a server over HTTP, greedy, the 20 most likely ids of each row: a lower bound of the KL
        that passes through scheduler, tree and API (`served.py`)

Packed weights are rounded alike cold and after a hit; `--against-float32` measures that rounding
beside the drift (engine part, one cold run more a text). Slope 511 (the window less one) replays
all that is read: its KL must be 0.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmark.environment import RESULTS, Environment, describe_file, write_result
from benchmark.quality import corpora, served
from benchmark.quality.curve_plots import draw
from benchmark.quality.curve_run import Job, run
from benchmark.quality.curve_run import summarise as summarise_curves
from benchmark.quality.curve_run import table as curve_table
from benchmark.quality.curves import Plan
from benchmark.quality.drift import Drift, nll, row_kl, summarise, table
from benchmark.quality.engine import Engine
from benchmark.quality.texts import Text, load_texts
from benchmark.serving.servers import Server, stop_servers_on_term, treadle_spec
from torch import Tensor

from treadle.srt.checkpoint import resolve_path
from treadle.srt.tokenizer.encode import Tokenizer

PACKAGES = ("torch", "numpy")
PARTS = ("engine", "served", "curves")


def main() -> None:
    args = _arguments()
    stop_servers_on_term()
    environment = Environment.read(PACKAGES)
    path = resolve_path(args.model)
    parts = [part for part in args.parts if part != "curves"]
    num_tokens = max(args.hits) + max(args.new_tokens, served.PROMPT_TAIL)
    texts = _encoded(path, num_tokens)[: args.texts] if parts else []
    began = time.monotonic()
    result: dict[str, object] = {
        "environment": environment,
        "model": describe_file(path),
        "quantization": args.quantization,
        "threads": args.threads,
        "notes": args.note,
    }
    measures = {"engine": _engine, "served": _served}
    for part in parts:
        drifts = measures[part](path, texts, args)
        summaries = summarise(drifts)
        print(table(f"{part}, {args.quantization}, {args.new_tokens} rows a text", summaries))
        print()
        result[part] = {"summary": summaries, "texts": drifts}
    if "curves" in args.parts:
        result["curves"] = _curves(path, args, environment)
    result["seconds"] = round(time.monotonic() - began)
    if args.out:
        print(f"written: {write_result(args.out, result).name}", file=sys.stderr)


def _curves(path: Path, args: argparse.Namespace, environment: Environment) -> object:
    """Also draws them, when a result is to be written."""
    if args.corpora is None:
        sys.exit(f"--corpora: a folder is needed ({corpora.__name__})")
    job = Job(
        path=path,
        corpora=args.corpora,
        documents=args.documents,
        quantization=args.quantization,
        threads=args.threads,
        name=args.out or "unnamed",
        commit=environment.commit,
    )
    measured = run(job)
    summaries = summarise_curves(measured)
    print(curve_table(summaries))
    if args.out:
        draw(summaries, RESULTS / f"{args.out}.png")
    return {"plan": Plan(), "summary": summaries, "documents": measured}


def _engine(
    path: Path, texts: Sequence[tuple[Text, list[int]]], args: argparse.Namespace
) -> list[Drift]:
    engine = Engine.load(path, args.quantization, args.threads)
    float32 = Engine.load(path, "none", args.threads) if args.against_float32 else None
    drifts = []
    for hit in args.hits:
        for text, ids in texts:
            tokens = ids[: hit + args.new_tokens]
            drifts += _engine_text((engine, float32), text, tokens, hit, args.slopes)
            _report(drifts[-len(args.slopes) :])
    return drifts


def _engine_text(
    engines: tuple[Engine, Engine | None],
    text: Text,
    tokens: list[int],
    hit: int,
    slopes: Sequence[int],
) -> list[Drift]:
    """The last row has no next token in `tokens`, so losses leave it out."""
    engine, float32 = engines
    cold, warm = engine.compare(tokens, hit, slopes)
    truth = float32.cold(tokens, hit) if float32 else None
    following = tokens[hit + 1 :]
    loss = nll(cold[:-1], following) if following else 0.0
    drifts = []
    for slope, after in zip(slopes, warm, strict=True):
        kls = row_kl(cold, after.logits)
        rounding = None if truth is None else (_mean_kl(truth, cold), _mean_kl(truth, after.logits))
        drifts.append(
            Drift(
                text=text.name,
                kind=text.kind,
                hit=hit,
                slope=slope,
                num_rows=len(kls),
                mean_kl=sum(kls) / len(kls),
                worst_kl=max(kls),
                top1=float((cold.argmax(1) == after.logits.argmax(1)).double().mean()),
                dnll=nll(after.logits[:-1], following) - loss if following else None,
                max_diff=float((cold - after.logits).abs().max()),
                lowest_rows=after.lowest_rows,
                mean_rows=after.mean_rows,
                rounding_kl=rounding,
            )
        )
    return drifts


def _mean_kl(exact: Tensor, other: Tensor) -> float:
    values = row_kl(exact, other)
    return sum(values) / len(values)


def _served(
    path: Path, texts: Sequence[tuple[Text, list[int]]], args: argparse.Namespace
) -> list[Drift]:
    # A warm window would be taken instead of the replay that is to be measured.
    flags = ("--quantization", args.quantization, "--max-warm-windows", "0")
    drifts = []
    with Server(treadle_spec(args.treadle_cmd, path, args.threads, flags)) as server:
        server.wait_until_ready()
        for hit in args.hits:
            for text, ids in texts:
                prompt = ids[: hit + served.PROMPT_TAIL]
                drifts += served.measure(server, text, prompt, args.slopes, args.new_tokens)
                _report(drifts[-len(args.slopes) :])
    return drifts


def _encoded(path: Path, num_tokens: int) -> list[tuple[Text, list[int]]]:
    """Texts with their first ids; those that are too short are left out."""
    tokenizer = Tokenizer.load(path)
    pairs = [(text, tokenizer.encode(text.content, add_special=True)) for text in load_texts()]
    return [(text, ids[:num_tokens]) for text, ids in pairs if len(ids) >= num_tokens]


def _report(drifts: Sequence[Drift]) -> None:
    for drift in drifts:
        print(
            f"hit {drift.hit} slope {drift.slope}: KL {drift.mean_kl:.2e} top-1 {drift.top1:.3f}"
            f" max diff {drift.max_diff:.3g} rows {drift.num_rows} | {drift.text[:60]}",
            file=sys.stderr,
        )


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _parts(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: there are {', '.join(PARTS)}")
    return names


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--corpora", type=Path, help="folder with archives of packages, for the curves")
    add("--documents", type=int, default=30, help="of the curves")
    add("--model", default="demo:gemma3-270m", help="a model with window layers")
    add("--quantization", choices=("none", "q8_0"), default="q8_0", help="of weights in memory")
    add("--parts", type=_parts, default=["engine", "served"], help="of engine, served, curves")
    add("--against-float32", action="store_true", help="also the rounding of packed weights")
    add("--hits", type=_numbers, default=[2048], help="lengths of the hit, multiples of a page")
    add("--slopes", type=_numbers, default=[0, 32, 64])
    add("--new-tokens", type=int, default=32, help="rows compared after the hit")
    add("--texts", type=int, default=16, help="at most")
    add("--threads", type=int, default=2)
    add("--treadle-cmd", default=f"{sys.executable} -m treadle.launch_server")
    add("--note", action="append", default=[], help="kept in the result; may be repeated")
    add("--out", default="", help="name of the file in benchmark/results, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
