"""LLM: prompts in, outputs out, as vLLM's names say."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import pytest
from baton import (
    LLM,
    BatonError,
    InvalidRequestError,
    NotFoundError,
    SamplingParams,
    UnsupportedError,
)

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def texts(llm: LLM, *prompts: object, params: SamplingParams = GREEDY, **more: object) -> list[str]:
    """The first answer to each prompt."""
    return [output.outputs[0].text for output in llm.generate(list(prompts), params, **more)]


def test_outputs_come_in_the_order_of_the_prompts() -> None:
    """One batch, and each prompt alone, give the same."""
    prompts = [f"Item number {i} costs" for i in range(20)]
    with LLM("demo", batch_invariant=True) as llm:  # the model is not sure of the words behind such a prompt
        together = llm.generate(prompts, GREEDY)
        assert [output.prompt for output in together] == prompts
        assert all(output.finished and output.outputs[0].finished() for output in together)
        assert [output.outputs[0].text for output in together] == [texts(llm, prompt)[0] for prompt in prompts]
        assert llm.generate([], GREEDY) == []


def test_text_and_ids_are_the_same_prompt(llm: LLM) -> None:
    """Ids skip the tokenizer."""
    ids = llm.encode("Hello there")
    assert llm.decode(ids) == "Hello there"
    (by_ids,) = llm.generate({"prompt_token_ids": ids}, GREEDY)
    (by_text,) = llm.generate("Hello there", GREEDY)
    assert by_ids.prompt is None
    assert by_text.prompt_token_ids == by_ids.prompt_token_ids == ids
    assert by_text.outputs[0].token_ids == by_ids.outputs[0].token_ids
    text = llm.decode(by_text.outputs[0].token_ids)
    assert by_text.outputs[0].text.strip() == text.strip()


def test_logprobs_are_those_of_the_tokens(llm: LLM) -> None:
    """Each token has its own, and the most likely ones."""
    (output,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=5, logprobs=3, prompt_logprobs=1))
    answer = output.outputs[0]
    assert len(answer.logprobs) == len(answer.token_ids)
    for token, entries in zip(answer.token_ids, answer.logprobs, strict=True):
        assert len(entries) == 3
        assert entries[token].rank == 1, "the most likely token was chosen"
        assert all(entry.logprob <= 0 for entry in entries.values())
    total = sum(entries[token].logprob for token, entries in zip(answer.token_ids, answer.logprobs, strict=True))
    assert math.isclose(answer.cumulative_logprob, total, rel_tol=1e-6)
    assert output.prompt_logprobs[0] is None
    assert all(token in entries for token, entries in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True))
    assert len(output.prompt_logprobs) == len(output.prompt_token_ids)
    (plain,) = llm.generate("Hello", GREEDY)
    assert plain.prompt_logprobs is None
    assert plain.outputs[0].logprobs is None
    assert plain.outputs[0].cumulative_logprob is None


def test_samples_and_seeds(llm: LLM) -> None:
    """A seed fixes every one of n answers."""
    params = SamplingParams(n=4, temperature=1, seed=7, max_tokens=10)
    (first,) = llm.generate("Once", params)
    (again,) = llm.generate("Once", params)
    assert len(first.outputs) == 4
    assert [answer.token_ids for answer in first.outputs] == [answer.token_ids for answer in again.outputs]
    assert len({tuple(answer.token_ids) for answer in first.outputs}) > 1


def test_ends(llm: LLM) -> None:
    """A stop string, a stop token, the length and the model's end say so."""
    (whole,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=6))
    answer = whole.outputs[0]
    assert (answer.finish_reason, answer.stop_reason, len(answer.token_ids)) == ("length", None, 6)
    stop = answer.text[3:6]
    (cut,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=6, stop=stop))
    assert (cut.outputs[0].finish_reason, cut.outputs[0].stop_reason) == ("stop", stop)
    assert cut.outputs[0].text == answer.text[: answer.text.index(stop)]
    (kept,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=6, stop=[stop], include_stop_str_in_output=True))
    assert kept.outputs[0].text == cut.outputs[0].text + stop
    token = answer.token_ids[2]
    (at_token,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=6, stop_token_ids=[token]))
    assert at_token.outputs[0].stop_reason == token
    assert at_token.outputs[0].token_ids == answer.token_ids[:3]
    with_token = SamplingParams(temperature=0, max_tokens=6, stop_token_ids=[token], include_stop_str_in_output=True)
    assert len(texts(llm, "Hello", params=with_token)[0]) > len(at_token.outputs[0].text)
    (raw,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=6, detokenize=False))
    assert raw.outputs[0].text == ""
    assert raw.outputs[0].token_ids == answer.token_ids


def test_lists_of_tokens_are_obeyed(llm: LLM) -> None:
    """Allowed ids, biases and bad words change what is chosen."""
    (allowed,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=4, allowed_token_ids=[100, 101]))
    assert set(allowed.outputs[0].token_ids) <= {100, 101}
    (biased,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=3, logit_bias={123: 100.0}, ignore_eos=True))
    assert biased.outputs[0].token_ids == [123] * 3
    (plain,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
    word = re.findall(r" ([A-Za-z]{3,})", plain.outputs[0].text)[0]
    (without,) = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, bad_words=[word]))
    assert f" {word}" not in without.outputs[0].text


def test_chat_uses_the_template(llm: LLM) -> None:
    """One conversation, several, parts of text, and the template's own rules."""
    user = {"role": "user", "content": "What does the lamp cost?"}
    (one,) = llm.chat([user], GREEDY)
    two = llm.chat([[user], [user]], GREEDY)
    assert [output.outputs[0].text for output in two] == [one.outputs[0].text] * 2
    (parts,) = llm.chat([{"role": "user", "content": [{"type": "text", "text": user["content"]}]}], GREEDY)
    assert parts.prompt_token_ids == one.prompt_token_ids
    with pytest.raises(InvalidRequestError, match="image_url"):
        llm.chat([{"role": "user", "content": [{"type": "image_url"}]}], GREEDY)
    (own,) = llm.chat([user], GREEDY, chat_template="{{ messages[0].content }}!")
    assert llm.decode(own.prompt_token_ids) == user["content"] + "!"


def test_evicted_prompts_come_back_from_host_memory() -> None:
    """A host tier keeps what a small cache evicts, and changes no answer."""
    prompts = [f"Catalogue {i}: " + "the lamp, the chair and the desk. " * 12 for i in range(8)]
    cached, answers = [], []
    sizes = {"kv_cache_memory_bytes": 1 << 20, "kv_cache_dtype": "bfloat16", "max_num_seqs": 1, "max_model_len": 256}
    for size in (0, 0.05):
        with LLM("demo", **sizes, kv_offloading_size=size) as small:
            texts(small, *prompts)
            outputs = small.generate(prompts, GREEDY)
            cached.append(sum(output.num_cached_tokens for output in outputs))
            answers.append([output.outputs[0].text for output in outputs])
    assert cached[1] > cached[0]
    assert answers[1] == answers[0]
    with pytest.raises(InvalidRequestError, match="kv_offloading_size"):
        LLM("demo", kv_offloading_size=-1)


def test_a_registered_prefix_is_shared(llm: LLM) -> None:
    """Its blocks are computed once, and answers equal those of the whole prompt."""
    rules = "Answer in one short sentence. " * 12
    info = llm.register_prefix("rules", rules)
    assert info.n_pinned_tokens > 0
    assert [prefix.name for prefix in llm.prefixes()] == ["rules"]
    behind = llm.generate(["Hello", "Bye"], GREEDY, prefix="rules")
    assert all(output.num_cached_tokens >= info.n_pinned_tokens for output in behind)
    ids = [llm.encode(rules) + llm.encode(text, add_special_tokens=False) for text in ("Hello", "Bye")]
    assert [output.outputs[0].text for output in behind] == texts(llm, *({"prompt_token_ids": prompt} for prompt in ids))
    read, saved = llm.kv_bytes()
    assert read > 0
    assert saved >= 0
    with pytest.raises(InvalidRequestError, match="rules"):
        llm.register_prefix("rules", rules)
    llm.remove_prefix("rules")
    with pytest.raises(InvalidRequestError, match="no prefix 'rules'"):
        llm.generate("Hello", GREEDY, prefix="rules")
    with pytest.raises(NotFoundError):
        llm.remove_prefix("rules")


@pytest.mark.parametrize(
    ("params", "param"),
    [
        (SamplingParams(temperature=-1), "temperature"),
        (SamplingParams(top_p=0), "top_p"),
        (SamplingParams(max_tokens=0), "max_tokens"),
        (SamplingParams(logprobs=99), "logprobs"),
        (SamplingParams(stop="x", detokenize=False), "stop"),
        (SamplingParams(bad_words=["a", " "]), "bad_words"),
    ],
)
def test_wrong_values_are_named(llm: LLM, params: SamplingParams, param: str) -> None:
    """An error says which argument is wrong, and the model continues."""
    with pytest.raises(InvalidRequestError, match=param):
        llm.generate("Hello", params)
    assert texts(llm, "Hello")


def test_wrong_prompts_are_named(llm: LLM) -> None:
    """Neither an empty prompt nor one of a strange form is taken."""
    for prompt in ("", {"prompt_token_ids": []}, {}, {"multi_modal_data": 1}, 5.0):
        with pytest.raises((InvalidRequestError, UnsupportedError, TypeError)):
            llm.generate([prompt], GREEDY)
    with pytest.raises(InvalidRequestError, match="2 sampling_params for 1 prompts"):
        llm.generate("Hello", [GREEDY, GREEDY])
    # A prompt that is refused after others leaves none of them running.
    with pytest.raises(InvalidRequestError):
        llm.generate(["Hello", ""], SamplingParams(temperature=0, max_tokens=4000))
    assert texts(llm, "Hello")


def test_models_that_are_not_there_are_named() -> None:
    """A folder that does not exist, and a model that was closed."""
    with pytest.raises(BatonError, match="/no/such/folder"):
        LLM("/no/such/folder")
    closed = LLM("demo")
    closed.close()
    with pytest.raises(BatonError, match="closed"):
        closed.generate("Hello")


def test_arms_agree() -> None:
    """Paged attention and speculation give the same tokens as the default."""
    prompt = "The lamp costs 5. The lamp costs 5. The lamp costs"
    with LLM("demo") as relay, LLM("demo", attention="paged") as paged, LLM("demo", speculative_config={}) as drafts:
        assert texts(relay, prompt) == texts(paged, prompt) == texts(drafts, prompt)


def test_the_command_runs() -> None:
    """`python -m baton` is the program of the wheel."""
    done = subprocess.run([sys.executable, "-m", "baton", "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert "aton" in done.stdout


def test_the_command_starts_the_benchmarks() -> None:
    """`baton bench` finds baton-bench in the wheel."""
    words = [sys.executable, "-m", "baton", "bench", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "throughput" in done.stdout
