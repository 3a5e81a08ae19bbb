"""Calls as models write them, through the whole server: mended, cut, demanded, and at the end of open reasoning."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from asking import DIALECTS, Answered, ask, function
from conftest import Server

Saying = Callable[..., Server]

FUNCTIONS = [
    function("edit", path={"type": "string"}, lines={"type": "array"}),
    function("find", re={"type": "string"}),
]
CALLED = {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}
CUT = {"chat": "length", "responses": "max_output_tokens", "messages": "max_tokens"}
ENDED = {"chat": "stop", "responses": "stop", "messages": "end_turn"}
STOPPED = {"chat": "stop", "messages": "stop_sequence"}
LATE = {"chat": "abort", "responses": "deadline", "messages": "pause_turn"}


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the answer is a stream."""
    return request.param


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """The dialect of the question."""
    return request.param


def meant(answered: Answered) -> list[tuple[str, object]]:
    """Return the calls with their arguments as values. They must be JSON."""
    assert answered.status == 200, answered.body
    return [(name, json.loads(arguments)) for name, arguments in answered.calls]


# By the name of a parser: what a model writes, and the arguments that it means.
MENDED = {
    "hermes": [
        ('<tool_call>{"name": "edit", "arguments": {"path": "C:\\Users\\d"}}</tool_call>', {"path": "C:\\Users\\d"}),
        ('<tool_call>{"name": "edit", "arguments": {"path": "\\u12 \\users",}}</tool_call>', {"path": "\\u12 \\users"}),
        ('<tool_call>{"name": "edit", "arguments": {"lines": [1, 2,], "path": None}}</tool_call>', {"lines": [1, 2], "path": None}),
        ('<tool_call>{"name": "edit", "arguments": "{\\"path\\": \\"\\d\\"}"}</tool_call>', {"path": "\\d"}),
        ('<tool_call>\n{"name": "edit", "arguments": {"path": "\\."}\n</tool_call>', {"path": "\\."}),
    ],
    "mistral": [
        ('[TOOL_CALLS]edit[ARGS]{"path": "C:\\Users"}', {"path": "C:\\Users"}),
        ('[TOOL_CALLS][{"name": "edit", "arguments": {"path": "\\w",}},]', {"path": "\\w"}),
    ],
    "llama3_json": [
        ('{"name": "edit", "parameters": {"path": "C:\\Users", "lines": [True,]}}', {"path": "C:\\Users", "lines": [True]}),
        ('{"name": "edit", "parameters": {"path": "a\\\nb"}}', {"path": "a\\\nb"}),
    ],
    "qwen3_coder": [
        (
            '<tool_call>\n<function=edit>\n<parameter=lines>\n["C:\\Users", "\\d",]\n</parameter>\n</function>\n</tool_call>',
            {"lines": ["C:\\Users", "\\d"]},
        ),
        ("<function=edit><parameter=lines>['a', r'\\b']</parameter></function>", {"lines": ["a", "\\b"]}),
        ("<function=edit><parameter=path>C:\\Users</parameter>", {"path": "C:\\Users"}),
    ],
    "deepseek_v3": [
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>edit\n```json\n"
            '{"path": "\\w",}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
            {"path": "\\w"},
        ),
    ],
    "deepseek_v31": [
        (
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>edit<｜tool▁sep｜>{"path": None}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
            {"path": None},
        ),
        ("<｜tool▁call▁begin｜>edit<｜tool▁sep｜><｜tool▁call▁end｜>", {}),
    ],
    "kimi_k2": [
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.edit:0<|tool_call_argument_begin|>"
            '{"path": "C:\\Users"}<|tool_call_end|><|tool_calls_section_end|>',
            {"path": "C:\\Users"},
        ),
    ],
    "pythonic": [
        ("[edit(path='C:\\Users' r'\\d', lines=[1, 2,])]", {"path": "C:\\Users\\d", "lines": [1, 2]}),
        ('[edit(path=("a"\n  "b"),),]', {"path": ["ab"]}),
        ("[edit(path='\\x4 \\U0001')]", {"path": "\\x4 \\U0001"}),
    ],
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("parser", MENDED)
def test_mistakes_are_mended_wherever_the_text_is_cut(saying: Saying, parser: str, dialect: str, stream: bool, seed: int):
    texts = {str(number): text for number, (text, _) in enumerate(MENDED[parser])}
    server = saying(texts, flags=("--tool-call-parser", parser), seed=seed)
    for number, (_, arguments) in enumerate(MENDED[parser]):
        answered = ask(server, dialect, f"say {number}", FUNCTIONS, stream)
        assert meant(answered) == [("edit", arguments)], answered.body
        assert (answered.content, answered.end) == ("", CALLED[dialect]), answered.body


BROKEN = {
    "hermes": '<tool_call>{"name": "edit", "arguments": {"path": oops}}</tool_call>',
    "mistral": '[TOOL_CALLS]edit[ARGS]{"path" 1}',
    "llama3_json": '{"name": "edit", "parameters": {"path": \'a\'}}',
    "pythonic": "[edit(path=oops)]",
}


@pytest.mark.parametrize("parser", BROKEN)
def test_what_cannot_be_mended_is_content_or_is_not_called_complete(saying: Saying, parser: str, dialect: str, stream: bool):
    answered = ask(saying(BROKEN[parser], flags=("--tool-call-parser", parser)), dialect, "go", FUNCTIONS, stream)
    if stream:
        assert answered.end == ENDED[dialect], answered.body
    else:
        assert (answered.content, answered.calls) == (BROKEN[parser], []), answered.body
        assert answered.end == ("completed" if dialect == "responses" else ENDED[dialect])


TWO = 'Sure.\n<tool_call>\n{"name": "edit", "arguments": {"path": "C:\\d"}}\n</tool_call>\n' + (
    '<tool_call>\n{"name": "find", "arguments": {"re": "\\u00e9"}}\n</tool_call>'
)
BOTH = [("edit", {"path": "C:\\d"}), ("find", {"re": "\u00e9"})]


def begins(arguments: str, whole: object) -> bool:
    """Whether a text is the begin of arguments in JSON, up to its escapes."""
    text = json.dumps(whole)
    return text.startswith(arguments) or json.dumps(whole, ensure_ascii=False).startswith(arguments)


@pytest.mark.parametrize("seed", range(2))
def test_an_answer_that_is_cut_anywhere_says_so_and_shows_no_markup(saying: Saying, dialect: str, stream: bool, seed: int):
    server = saying(TWO, seed=seed)
    ended = 0
    for most in range(1, 60):
        answered = ask(server, dialect, "go", FUNCTIONS, stream, most=most)
        assert answered.status == 200, answered.body
        if answered.end == CALLED[dialect]:
            assert meant(answered) == BOTH, answered.body
            assert answered.content == "Sure."
            ended += 1
            continue
        assert answered.end == CUT[dialect], answered.body
        # At most the begin of a marker, which may be text, and in a message in one piece a call that has no input.
        content = answered.content
        is_cut_call = dialect == "messages" and not stream and content.startswith(("Sure.edit({", "Sure.find({"))
        assert is_cut_call or "Sure.\n<tool".startswith(content), answered.body
        for (name, arguments), (known, whole) in zip(answered.calls, BOTH, strict=False):
            assert name == known
            assert begins(arguments, whole), answered.body
        if dialect == "messages" and not stream:
            assert all(json.loads(arguments) for _, arguments in answered.calls), "no input is empty"
    assert ended > 0, "the longest answers are whole"


def test_a_stop_text_in_arguments_is_the_reason(saying: Saying, stream: bool):
    server = saying(TWO)
    for dialect in STOPPED:
        fields = {"stop": ['"re":']} if dialect == "chat" else {"stop_sequences": ['"re":']}
        answered = ask(server, dialect, "go", FUNCTIONS, stream, **fields)
        assert answered.end == STOPPED[dialect], answered.body
        has_text = dialect == "messages" and not stream
        assert [name for name, _ in answered.calls] == (["edit"] if has_text else ["edit", "find"]), answered.body
        assert answered.content == ("Sure.find({" if has_text else "Sure.")
        fields = {key: ["name"] for key in fields}
        answered = ask(server, dialect, "go", FUNCTIONS, stream, **fields)
        assert (answered.end, answered.content, answered.calls) == (STOPPED[dialect], "Sure.", []), answered.body


def test_a_deadline_in_arguments_is_the_reason(saying: Saying, dialect: str, stream: bool):
    server = saying('<tool_call>{"name": "find", "arguments": {"re": "', is_endless=True)
    answered = ask(server, dialect, "go", FUNCTIONS, stream, most=16000, deadline_ms=50)
    assert answered.status == 200, answered.body
    assert answered.end == LATE[dialect], answered.body[-500:]
    assert "<tool" not in answered.content


CALL = '<tool_call>\n{"name": "edit", "arguments": {"path": "q1"}}\n</tool_call>'


@pytest.mark.parametrize("opens_in_prompt", [False, True])
def test_calls_at_the_end_of_open_reasoning_are_calls(saying: Saying, dialect: str, stream: bool, opens_in_prompt: bool):
    texts = {
        "one": f"I ponder.\n{CALL}",
        "two": f"I ponder.\n{CALL}\n{CALL}\n",
        "lenient": "I ponder.\n" + CALL.removesuffix("\n</tool_call>"),
        "closed": f"I ponder.\n{CALL}\n</think>\n\nDone.",
        "inside": f"I ponder.\n{CALL}\nor not.",
        "unknown": f"I ponder.\n{CALL.replace('edit', 'unknown')}",
    }
    front = "" if opens_in_prompt else "<think>\n"
    server = saying(
        {name: front + text for name, text in texts.items()},
        prompt_end="<think>\n" if opens_in_prompt else "",
        flags=("--reasoning-parser", "qwen3"),
    )
    for name, n_calls in {"one": 1, "two": 2, "lenient": 1}.items():
        answered = ask(server, dialect, f"say {name}", FUNCTIONS, stream)
        assert meant(answered) == [("edit", {"path": "q1"})] * n_calls, answered.body
        assert (answered.reasoning, answered.content, answered.end) == ("I ponder.", "", CALLED[dialect])
    for name in ("closed", "inside", "unknown"):
        answered = ask(server, dialect, f"say {name}", FUNCTIONS, stream)
        assert answered.calls == []
        assert answered.reasoning == texts[name].partition("\n</think>")[0]
        assert answered.content == ("Done." if name == "closed" else "")
    without = ask(server, dialect, "say one", [], stream)
    assert (without.reasoning, without.calls) == (texts["one"], [])


def test_demanded_calls_come_without_content_wherever_they_are_cut(saying: Saying, dialect: str, stream: bool):
    call = '<tool_call>\n{"name": "find", "arguments": {"re": "\\\\d"}}\n</tool_call>'
    server = saying(call)
    choice = {"type": "any"} if dialect == "messages" else "required"
    ended = 0
    for most in range(1, 40):
        answered = ask(server, dialect, "go", FUNCTIONS, stream, most=most, tool_choice=choice)
        assert answered.status == 200, answered.body
        if dialect == "messages" and not stream:
            assert not answered.content or answered.content.startswith("find({"), answered.body
        else:
            assert answered.content == "", answered.body
        ended += answered.end == CALLED[dialect] and meant(answered) == [("find", {"re": "\\d"})]
    assert ended > 0
