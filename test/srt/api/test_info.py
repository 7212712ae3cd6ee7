"""Descriptions of model and server, and the metrics page."""

from __future__ import annotations

from test.serving import Bench, FakeEngine, hold, serving
from treadle.srt.config import ApiSection, NetSection
from treadle.srt.messages import Stats


async def test_models_say_what_gateways_look_for(bench: Bench):
    (card,) = (await bench.client.get("/v1/models")).json()["data"]
    assert card["id"] == "tiny"
    assert card["owned_by"] == "sglang"
    assert card["max_model_len"] == 200
    assert (await bench.client.get("/v1/models/tiny")).json() == card
    missing = await bench.client.get("/v1/models/other/one")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


async def test_model_info_has_the_fields_of_bench_clients(bench: Bench):
    info = (await bench.client.get("/get_model_info")).json()
    assert info["model_path"] == info["tokenizer_path"] == "/models/tiny"
    assert info["is_generation"] is True
    assert info["architectures"] == ["TinyForCausalLM"]


async def test_server_info_has_the_last_throughput(bench: Bench):
    bench.engine.stats = Stats(0, {}, {"gen_throughput": 12.5})
    info = (await bench.client.get("/get_server_info")).json()
    assert info["internal_states"][0]["last_gen_throughput"] == 12.5


async def test_server_info_is_flat_and_hides_the_key():
    api = ApiSection(admin_api_key="secret too")
    async with serving(net=NetSection(api_key="secret"), api=api) as bench:
        headers = {"x-api-key": "secret"}
        response = await bench.client.get("/server_info", headers=headers)
        assert "secret" not in response.text
        info = response.json()
        assert info["page_size"] == 16
        assert info["scheduler_info"] == {"max_total_num_tokens": 160, "max_req_input_len": 199}
        assert info["internal_states"][0]["last_gen_throughput"] == 0
        assert info["internal_states"][0]["avg_spec_accept_length"] == 1.0
        assert info["version"] == "1.2.3"


async def test_metrics_have_the_schedulers_numbers_of_now(bench: Bench):
    bench.engine.stats = Stats(0, {"fresh_rows": 5}, {"running": 2, "pages{state=free}": 3})
    text = (await bench.client.get("/metrics")).text
    labels = 'engine_type="unified",model_name="tiny",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    assert f"sglang:num_running_reqs{{{labels}}} 2.0" in text
    assert f"sglang:max_total_num_tokens{{{labels}}} 48.0" in text
    assert f"treadle:fresh_rows_total{{{labels}}} 5.0" in text
    assert f"treadle:ended_unconfirmed{{{labels}}} 0.0" in text


async def test_metrics_answer_when_the_engine_does_not():
    async with serving(FakeEngine(script=hold), is_ready=False) as bench:
        response = await bench.client.get("/metrics")
        assert response.status_code == 200
        assert "sglang:num_aborted_requests_total" in response.text
        assert "sglang:token_usage" not in response.text


async def test_counters_equal_the_sum_of_usage(bench: Bench):
    bench.engine.cached, bench.engine.replayed = 7, 2
    totals = {"prompt_tokens": 0, "completion_tokens": 0, "cached": 0, "replayed": 0}
    for body in ({"prompt": "a"}, {"prompt": ["a", "bc"], "n": 2}, {"prompt": "a", "stop": "ll"}):
        usage = (await bench.post("/v1/completions", body)).json()["usage"]
        totals["prompt_tokens"] += usage["prompt_tokens"]
        totals["completion_tokens"] += usage["completion_tokens"]
        totals["cached"] += usage["prompt_tokens_details"]["cached_tokens"]
        totals["replayed"] += usage["prompt_tokens_details"]["replayed_tokens"]
    text = (await bench.client.get("/metrics")).text
    labels = 'engine_type="unified",is_streaming="False",model_name="tiny"'
    assert f"sglang:prompt_tokens_total{{{labels}}} {totals['prompt_tokens']}.0" in text
    assert f"sglang:generation_tokens_total{{{labels}}} {totals['completion_tokens']}.0" in text
    assert (
        'sglang:cached_tokens_total{cache_source="device",engine_type="unified",model_name="tiny"} '
        f"{totals['cached']}.0"
    ) in text
    assert (
        'treadle:swa_replayed_tokens_total{engine_type="unified",model_name="tiny",part="encoder"} '
        f"{totals['replayed']}.0"
    ) in text


async def test_loads_tell_routers_what_runs(bench: Bench):
    gauges = {"running": 3.0, "waiting": 2.0, "pages{state=private}": 2.0, "pages{state=free}": 6.0}
    bench.engine.stats = Stats(0, {}, gauges)
    body = (await bench.client.get("/v1/loads?include=all")).json()
    (load,) = body["loads"]
    assert (load["num_running_reqs"], load["num_waiting_reqs"], load["dp_rank"]) == (3, 2, 0)
    assert (load["num_used_tokens"], load["max_total_num_tokens"]) == (32, 128)
    assert load["token_usage"] == 0.25
    assert (await bench.client.get("/v1/loads?dp_rank=1")).json()["loads"] == []
    assert (await bench.client.get("/v1/loads?format=prometheus")).status_code == 501
