"""Chat templates: `baton render` compared live with jinja2, set up as Transformers sets it up."""

from __future__ import annotations

import copy
import datetime
import json
import os
import pathlib
import subprocess

import jinja2
import jinja2.ext
import jinja2.sandbox
import pytest
from conftest import BINARY

DATA = pathlib.Path(os.environ.get("BATON_TEST_DATA", "/nowhere")) / "chat-templates"
MARK = "CONTINUE_FINAL_MESSAGE_TAG "


class Generation(jinja2.ext.Extension):
    """The statement {% generation %}, which only marks the texts of the assistant."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller):
        return caller()


def environment() -> jinja2.Environment:
    """Return the environment in which Transformers runs chat templates."""

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return made


def reference(source: str, line: dict) -> str:
    """Return what apply_chat_template makes of a line of `baton render`; raises what it raises."""
    messages = copy.deepcopy(line["messages"])
    continues = line.get("continue_final_message", False)
    if continues:
        content = messages[-1]["content"]
        if isinstance(content, list):
            next(part for part in reversed(content) if "text" in part)["text"] += MARK
        else:
            messages[-1]["content"] = content + MARK
    variables = {
        "messages": messages,
        "tools": line.get("tools"),
        "documents": line.get("documents"),
        "add_generation_prompt": line.get("add_generation_prompt", not continues),
    } | line.get("chat_template_kwargs", {})
    text = environment().from_string(source).render(**variables)
    if continues:
        at = text.rindex(MARK.strip())
        text = text[:at] if text[at:].startswith(MARK) else text[:at].rstrip()
    return text


def tool(name: str, **properties: dict) -> dict:
    """Return a function as the description of a tool."""
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": f"Say {name}: ü <b>&'\"", "parameters": parameters}}


TOOLS = [
    tool("weather", city={"type": "string", "description": "a city"}, unit={"type": "string", "enum": ["c", "f"]}),
    tool("add", a={"type": "number"}, b={"type": ["number", "null"], "default": 1.5}),
]
DOCUMENTS = [
    {"title": "Lamps", "text": "A lamp costs $5.", "doc_id": "1"},
    {"title": "Mugs", "text": "A mug costs ½ €.", "doc_id": "2"},
]
SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "What does a lamp cost? ü 😀\n  two lines "}
ANSWER = {"role": "assistant", "content": "  It costs $5.  "}
REASONED = {"role": "assistant", "content": "<think>\nso\n</think>\n\nIt costs $5."}
REASONED_APART = {"role": "assistant", "content": "It costs $5.", "reasoning_content": "so"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "What"}, {"type": "text", "text": "is it?"}]}


def call(arguments) -> dict:
    """Return an assistant's message that calls the first tool."""
    function = {"name": "weather", "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": function}]}


RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": '{"degrees": 12.5}'}


def own_lines() -> list[dict]:
    """Return conversations with tools, documents, reasoning variables and continued messages."""
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    lines = []

    def add(messages, variables=None, **fields):
        lines.append({"messages": messages, "chat_template_kwargs": tokens | (variables or {})} | fields)

    for messages in ([QUESTION], [SYSTEM, QUESTION], [SYSTEM, QUESTION, ANSWER, QUESTION], [QUESTION, REASONED, QUESTION]):
        for prompts in (True, False):
            add(messages, add_generation_prompt=prompts)
        for variables in ({"enable_thinking": True}, {"enable_thinking": False}, {"thinking": True}, {"reasoning_effort": "high"}):
            add(messages, variables)
    for arguments in ({"city": "Köln", "unit": "c"}, '{"city": "Köln"}'):
        add([SYSTEM, QUESTION, call(arguments), RESULT], tools=TOOLS)
        add([QUESTION, call(arguments), RESULT, ANSWER, QUESTION], tools=TOOLS, add_generation_prompt=False)
    add([QUESTION], tools=TOOLS)
    add([QUESTION], tools=[])
    add([SYSTEM, QUESTION], tools=TOOLS, documents=DOCUMENTS)
    add([QUESTION], documents=DOCUMENTS)
    add([QUESTION, REASONED_APART, QUESTION])
    add([PARTS])
    for last in (ANSWER, REASONED, {"role": "assistant", "content": ""}):
        add([QUESTION, last], continue_final_message=True)
    return lines


def lines_of_data() -> list[dict]:
    """Return the contexts of the shared data as lines."""
    lines = []
    for file in sorted((DATA / "contexts").glob("*.json")):
        context = json.loads(file.read_text())
        fields = {name: context.pop(name) for name in ("messages", "tools", "add_generation_prompt") if name in context}
        lines.append(fields | {"chat_template_kwargs": context})
    return lines


def render(file: pathlib.Path, lines: list[dict]) -> subprocess.CompletedProcess:
    """Run `baton render` over `lines` with the template of `file`."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    command = [BINARY, "render", "demo", "--chat-template", file, "--threads", "1"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=100, check=False)


def compare(file: pathlib.Path, lines: list[dict]) -> tuple[int, int, int]:
    """Compare all lines; return the numbers of equal texts, of errors on both sides, and of lines that only Baton renders.

    The last are those whose template changes a list or a dict, or uses the filter from_json: jinja2 refuses both.
    """
    source = file.read_text()
    right, texts, wrong, n_more = [], [], [], 0
    for line in lines:
        try:
            texts.append(reference(source, line))
            right.append(line)
        except (jinja2.exceptions.TemplateError, TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            if isinstance(error, jinja2.exceptions.SecurityError) or "No filter named 'from_json'" in str(error):
                n_more += 1
            else:
                wrong.append(line)
    done = render(file, right)
    assert done.returncode == 0, f"{file.name}: {done.stderr}"
    got = [json.loads(line)["prompt"] for line in done.stdout.splitlines()]
    assert got == texts, file.name
    for line in wrong:
        done = render(file, [line])
        assert done.returncode == 1, f"{file.name}: {json.dumps(line)} gives {done.stdout}"
    return len(right), len(wrong), n_more


def test_every_template_of_the_data_renders_as_jinja2_does():
    files = sorted((DATA / "templates").glob("*.jinja"))
    if not files:
        pytest.skip("BATON_TEST_DATA is not set, or has no chat-templates: no real template is compared")
    lines = own_lines() + lines_of_data()
    counts = [compare(file, lines) for file in files]
    n_texts, n_errors, n_more = (sum(column) for column in zip(*counts, strict=True))
    print(f"{len(files)} templates: {n_texts} texts equal, {n_errors} errors on both sides, {n_more} that only Baton renders")
    assert n_texts > len(files) * len(lines) / 2


def test_templates_of_our_own_render_as_jinja2_does(tmp_path: pathlib.Path):
    file = tmp_path / "chat.jinja"
    file.write_text(
        "{{ bos_token }}{%- if tools is not none %}\n{{ tools | tojson(indent=2) }}\n{% endif %}\n"
        "{%- for d in documents or [] %}{{ loop.index }}. {{ d.title | upper }}: {{ d['text'] }}\n{% endfor %}\n"
        "{% for m in messages %}\n    [{{ m.role }}]\n"
        "  {%- if m.content is string %}{{ m.content }}{% else %}{{ m.content | map(attribute='text') | join('|') }}{% endif %}\n"
        "  {% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}\n"
        "{% endfor %}{% if add_generation_prompt %}[assistant]{% if enable_thinking is defined and not enable_thinking %}\n"
        "<think></think>{% endif %}{{ reasoning_effort | default('none') }}{% endif %}{{ strftime_now('%Y-%m-%d') }}\n"
    )
    assert compare(file, own_lines()) == (len(own_lines()), 0, 0)
