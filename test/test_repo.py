"""House rules that a reviewer should not have to check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from array import array
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType

import pytest

import treadle
from treadle.srt import messages
from treadle.srt.config import ServerConfig

ROOT = Path(__file__).parent.parent
CODE = [*(ROOT / "python/treadle").glob("**/*.py"), *(ROOT / "srt").glob("**/*.py")]
CODE += (ROOT / "kernels").glob("**/*.py")
SOURCES = sorted(
    {p.resolve() for p in CODE} | set((ROOT / "test").glob("**/*.py"))
    | set((ROOT / "benchmark").glob("**/*.py"))
)  # fmt: skip
CPP = sorted([*(ROOT / "kernels/cpu").glob("*.cpp"), *(ROOT / "kernels/cpu").glob("*.h")])
PROSE = [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")]
MAX_LINES = 400
MAX_FUNCTION_LINES = 40  # docstring not counted
FORBIDDEN = (
    "seq_group", "num_cached_tokens", "device_len", "extend_len", "forward_mode", "block_table",
    "token_to_kv", "out_cache_loc", "req_pool_idx", "table_idx", "memory_pool", "tree_cache",
    "lock_ref", "cache_req", "process_batch_result",
)  # fmt: skip
# Operators whose only backend yet is the reference: nothing to bench it against.
REFERENCE_ONLY = {"compressor", "engram"}  # fmt: skip
# Packages without behaviour of their own to test, or tested through what composes them.
WITHOUT_MIRROR = {
    # DeepSeek-V4.1, through models/test_deepseek_v41_golden, which runs every layer
    "srt/layers/compressor.py", "srt/layers/hyper.py",
    "srt/layers/indexer.py", "srt/layers/latent_attention.py",
    "srt/layers/quant.py", "srt/models/deepseek_v41.py",
    "srt/latent_config.py",  # values, through test_deepseek_v41_config
    "srt/json_object.py",  # through test_hf_config
    "srt/tokenizer/conversation.py",  # a value
    "srt/tokenizer/deepseek_v41_format.py",  # through test_deepseek_v41_chat
    "srt/tokenizer/deepseek_v41_texts.py",  # data, through test_deepseek_v41_chat
    "srt/worker/engine.py", "srt/worker/dense_engine.py",  # through test_runner
    "srt/arrays.py",  # values
    "srt/messages.py", "srt/lifecycle.py", "srt/scores.py", "srt/token_masks.py",  # values
    "srt/snapshot.py",  # values, through procs/test_step_loop
    "srt/config.py",  # values
    "srt/errors.py",
    "srt/api/endpoint.py",
    "srt/api/anthropic_schema.py",  # values, through test_anthropic
    # rows, through flags/test_table
    "treadle/flags/row.py", "treadle/flags/model.py", "treadle/flags/server.py",
    "treadle/flags/engine.py", "treadle/flags/watching.py",
    "treadle/router/errors.py",  # values
    "treadle/bench/asks.py", "treadle/bench/control.py",
    "treadle/bench/agent_flags.py",  # through bench/test_agent
    "treadle/bench/dataset_flags.py", "treadle/bench/progress.py", "treadle/bench/reach.py",
    "treadle/bench/serving_table.py", "treadle/bench/spread.py",  # through bench/test_serving
    "treadle/bench/wire.py",  # through bench/test_wires
    "treadle/client/errors.py",
    # values of the language, through lang/test_interpreter and lang/test_trace
    "treadle/lang/backend.py", "treadle/lang/ir.py", "treadle/lang/recorder.py",
    "treadle/lang/run.py", "treadle/lang/asker.py",
    "srt/layers/batch.py", "srt/layers/pools.py",  # values, through worker/test_mapping
    # structure, through the parity tests of models/test_registry
    "srt/layers/attention.py", "srt/layers/mlp.py", "srt/layers/rope.py",
    "srt/models/decoder.py", "srt/models/gemma3.py", "srt/models/llama.py",
}  # fmt: skip


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_file_is_small_and_says_what_it_owns(path: Path):
    text = path.read_text()
    assert text.count("\n") <= MAX_LINES
    if path.name != "__init__.py" and not path.is_relative_to(ROOT / "test"):
        assert ast.get_docstring(ast.parse(text)), "no module docstring"


def test_cpp_files_are_small():
    for path in CPP:
        assert path.read_text().count("\n") <= MAX_LINES, path


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_are_short(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert _num_lines(node) <= MAX_FUNCTION_LINES, f"{path}:{node.lineno} {node.name}"


def _num_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    docstring = function.body[0].end_lineno if ast.get_docstring(function) else None
    skipped = 0 if docstring is None else docstring - function.body[0].lineno + 1
    return function.end_lineno - function.lineno + 1 - skipped


@pytest.mark.parametrize("folder", ["srt", "kernels"])
def test_package_init_files_are_empty(folder: str):
    for path in (ROOT / folder).glob("**/__init__.py"):
        assert path.read_text() == "", path


def test_forbidden_words_are_absent():
    here = Path(__file__).resolve()
    pattern = re.compile(r"\b(" + "|".join(FORBIDDEN) + r")\b")
    for path in (*SOURCES, *CPP, *PROSE):
        if path != here:
            found = pattern.search(path.read_text())
            assert not found, f"{path}: {found}"


def test_nobody_imports_the_linked_folders_as_top_level_names():
    pattern = re.compile(r"^\s*(from|import) (srt|kernels)\b", re.M)
    for path in SOURCES:
        assert not pattern.search(path.read_text()), path


def test_links_are_relative_and_intact():
    for name in ("srt", "kernels"):
        link = ROOT / "python/treadle" / name
        assert link.is_symlink()
        assert link.readlink() == Path(f"../../{name}")
        assert (link / "__init__.py").exists()


def test_importing_treadle_imports_no_torch():
    code = "import sys, treadle; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "module",
    ["treadle.srt.procs.launcher", "treadle.srt.procs.scheduler", "treadle.srt.procs.tokenizer",
     "treadle.launch_server", "treadle.flags.table"],
)  # fmt: skip
def test_only_workers_import_torch(module: str):
    code = f"import sys, {module}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_a_list():
    """Those of the language are resolved when they are used; lang/test_names looks at them."""
    own = {name for name, value in vars(treadle).items() if not isinstance(value, ModuleType)}
    hidden = {name for name in own if name.startswith("_")} - {"__version__"}
    helpers = {"annotations", "Any", "TYPE_CHECKING", "import_module"}
    assert own - hidden - helpers == {"__version__"} <= set(treadle.__all__)


def test_version_agrees_with_pyproject_and_changelog():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == treadle.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## Unreleased", changelog, re.M)
    assert re.search(rf"^## {re.escape(treadle.__version__)}\b", changelog, re.M)


def test_config_has_at_most_eighty_fields():
    sections = [f.type for f in fields(ServerConfig)]
    assert len(sections) == 6
    total = sum(len(fields(getattr(ServerConfig(), f.name))) for f in fields(ServerConfig))
    assert total <= 80


def test_every_message_is_a_frozen_dataclass_with_one_tag():
    assert len(set(messages.TAGS.values())) == len(messages.TAGS)
    for cls in messages.TAGS.values():
        assert is_dataclass(cls)
        assert cls.__dataclass_params__.frozen
        assert "__slots__" in vars(cls)


def test_int_arrays_are_32_bit():
    assert array("i").itemsize == 4


def test_every_operator_family_is_a_quadruple():
    """Reference, backend, test and bench share a stem; the tile is a part of two references."""
    ops = (ROOT / "kernels/ops.py").read_text()
    for path in (ROOT / "kernels/reference").glob("*.py"):
        stem = path.stem
        if stem in ("__init__", "attention_tile"):
            continue
        assert re.search(rf"\b{stem}\b", ops), f"{stem} is not in ops.py"
        assert (ROOT / f"test/kernels/test_{stem}.py").exists(), stem
        if stem in REFERENCE_ONLY:
            continue
        assert (ROOT / f"benchmark/kernels/bench_{stem}.py").exists(), stem
        has_backend = any((ROOT / f"kernels/{x}/{stem}.py").exists() for x in ("cpu", "triton"))
        assert has_backend or stem == "gguf_quant", f"{stem} has no backend"


def test_exceptions_to_the_mirror_rule_exist():
    for name in WITHOUT_MIRROR:
        assert (ROOT / name).exists() or (ROOT / "python" / name).exists(), name


def test_every_module_has_a_mirrored_test():
    missing = []
    for folder in ("srt", "kernels/reference", "python/treadle"):
        for path in (ROOT / folder).glob("**/*.py"):
            inside = path.relative_to(ROOT / ("python" if folder.startswith("python") else "."))
            if path.name == "__init__.py" or "srt/kernels" in str(path):
                continue
            if inside.is_relative_to("treadle/lang/examples"):  # all in e2e/test_lang
                continue
            if not _has_test(inside):
                missing.append(str(inside))
    assert not missing


def _has_test(inside: Path) -> bool:
    if str(inside) in WITHOUT_MIRROR:
        return True
    if (
        inside.parts[0] == "treadle"
        and len(inside.parts) > 1
        and inside.parts[1] in ("srt", "kernels")
    ):
        return True
    parent = Path("kernels") if inside.parts[0] == "kernels" else inside.parent
    return (ROOT / "test" / parent / f"test_{inside.stem}.py").exists()
