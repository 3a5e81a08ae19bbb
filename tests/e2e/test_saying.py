"""The checkpoint that says a text: each text, cut anywhere, comes out of the server as it is."""

from __future__ import annotations

import json

import pytest
from asking import DIALECTS, ask, post

TEXTS = {
    "empty": "",
    "letters": "aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "characters": "ü 😀 \u4e2d\u6587 e\u0301 \t\n\n  end ",
    "markup": '<tool_call>{"name": "\\u00e9"}</tool_call><|end',
    "long": "".join(f"line {i} says {i * i}.\n" for i in range(300)),
}


@pytest.mark.parametrize("seed", range(3))
def test_every_text_comes_out_as_it_is(saying, seed: int):
    server = saying(TEXTS, seed=seed)
    for name, text in TEXTS.items():
        for dialect in DIALECTS:
            for stream in (False, True):
                answered = ask(server, dialect, f"say {name}", [], stream, most=4000)
                assert answered.content == text, answered.body
        status, body = post(server, "/v1/completions", {"prompt": f"<|say {name}|>", "max_tokens": 4000})
        assert status == 200, body
        assert json.loads(body)["choices"][0]["text"] == text


def test_a_model_of_one_text_says_it_behind_any_prompt(saying):
    server = saying("It is so.")
    for prompt in ("", "What?", "\u4e2d", "say it"):
        assert ask(server, "chat", prompt or "\n", [], stream=False).content == "It is so."
        status, body = post(server, "/v1/completions", {"prompt": prompt + "!", "max_tokens": 40, "temperature": 1})
        assert (status, json.loads(body)["choices"][0]["text"]) == (200, "It is so.")


def test_the_last_message_that_names_a_text_counts(saying):
    server = saying({"first": "1", "second": "2"})
    messages = [{"role": "user", "content": "say second"}, {"role": "assistant", "content": "2"}]
    result = {"role": "tool", "tool_call_id": "a", "content": "say first"}
    for last, text in (({"role": "user", "content": "go on"}, "2"), (result, "1")):
        status, body = post(server, "/v1/chat/completions", {"messages": [*messages, last]})
        assert status == 200, body
        assert json.loads(body)["choices"][0]["message"]["content"] == text


def test_an_endless_text_ends_where_it_is_cut(saying):
    server = saying("so", is_endless=True)
    answered = ask(server, "chat", "Well?", [], stream=True, most=20)
    assert answered.content.rstrip(".") == "so"
    assert answered.end == "length"


def test_special_tokens_are_said_as_tokens_and_once(saying):
    server = saying("a[TOOL_CALLS]b", special=("[TOOL_CALLS]",))
    body = {"prompt": "x", "max_tokens": 9, "skip_special_tokens": False, "return_token_ids": True}
    choice = json.loads(post(server, "/v1/completions", body)[1])["choices"][0]
    assert (choice["text"], len(choice["token_ids"])) == ("a[TOOL_CALLS]b", 4)
    with pytest.raises(ValueError, match="once only"):
        saying("[X][X]", special=("[X]",))
