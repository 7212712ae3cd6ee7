"""Which flags of SGLang's client there are, and which of them have another default here."""

from __future__ import annotations

from argparse import Namespace

from treadle.bench.serving_flags import completed, parser

FLAGS = """
--backend --base-url --host --port --model --served-model-name --tokenizer --header
--ready-check-timeout-sec --dataset-name --dataset-path --dataset-offset --num-prompts
--sharegpt-output-len --sharegpt-context-len --random-input-len --random-output-len
--random-range-ratio --tokenize-prompt --apply-chat-template --seed --gsp-num-groups
--gsp-prompts-per-group --gsp-system-prompt-len --gsp-question-len --gsp-output-len --gsp-num-turns
--gsp-send-routing-key --gsp-group-distribution --gsp-zipf-alpha --mooncake-workload
--mooncake-slowdown-factor --mooncake-num-rounds --use-trace-timestamps --agentic-max-turns
--request-rate --max-concurrency --warmup-requests --disable-stream --disable-ignore-eos
--temperature --top-p --extra-request-body --return-logprob --top-logprobs-num --logprob-start-len
--lora-name --flush-cache --flush-cache-timeout --cache-report --output-file --output-details
--goodput --tag --print-requests --disable-tqdm --profile --profile-by-stage --profile-num-steps
--profile-activities --profile-output-dir --profile-prefix
"""
DEFAULTS: dict[str, object] = {
    "port": 30000, "ready_check_timeout_sec": 60, "num_prompts": 1000, "random_input_len": 1024,
    "random_output_len": 1024, "random_range_ratio": 0, "seed": 42, "gsp_num_groups": 64,
    "gsp_prompts_per_group": 16, "gsp_system_prompt_len": 2048, "gsp_question_len": 128,
    "gsp_output_len": 256, "mooncake_slowdown_factor": 1, "mooncake_num_rounds": 1,
    "request_rate": float("inf"), "max_concurrency": None, "warmup_requests": 1, "temperature": 0,
    "top_p": 1, "logprob_start_len": -1, "flush_cache_timeout": 60, "goodput": [],
}  # fmt: skip
DATASETS = "random random-ids generated-shared-prefix sharegpt custom mooncake agentic-trace"


def test_every_flag_of_the_list_is_there_with_its_default():
    found = parser()
    spelled = {text for action in found._actions for text in action.option_strings}
    assert set(FLAGS.split()) <= spelled
    args = vars(found.parse_args([]))
    assert {name: args[name] for name in DEFAULTS} == DEFAULTS
    for name in DATASETS.split():
        assert found.parse_args(["--dataset-name", name]).dataset_name == name


def test_arguments_of_another_command_are_completed():
    found = completed(Namespace(seed=7, num_prompts=3, rounds=5), {"seed": 8})
    assert (found.seed, found.num_prompts, found.random_input_len) == (8, 3, 1024)
    assert not hasattr(found, "rounds")
