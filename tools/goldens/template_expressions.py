"""Small templates for every part of the language, and real ones, with what Jinja2 makes of them.

expressions.json: {context, cases: [{template, expected or error}]}. real_templates.json: {contexts, cases: [{template, context, digest or
error}]}: the templates themselves are data that is not committed, so only the FNV-1a digest of each text is.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import SandboxedEnvironment

CONTEXT = {
    "n": 7, "f": 2.5, "neg": -7, "t": True, "no": None, "s": "Hello World", "u": "Grüße, Ωmega 👋 ß", "e": "",
    "sp": "  padded \n", "lines": "a\nb\n\nc\n", "html": "<b a='1'>\"&\"</b>",
    "l": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"], "mixed": [1, "a", None, 2.5, True, [1], {"k": 1}], "empty": [],
    "d": {"b": 1, "a": 2, "items": "shadow", "C": [1, 2]}, "nested": {"x": {"y": [{"z": "deep"}]}},
    "users": [{"name": "Bo", "age": 3, "tags": ["x"]}, {"name": "al", "age": 1, "tags": []}, {"name": "Cy", "age": 3}],
    "big": 12345678901234, "tiny": 0.00001, "huge": 1e16, "third": 1 / 3,
}

EXPRESSIONS = r"""
1 + 2 * 3 ** 2 - 4
-2 ** 2
2 ** -1
7 // 2, -7 // 2, 7 // -2, 7 % 3, -7 % 3, 7 % -3
7 / 2, 4 / 2, 7.5 // 2, -7.5 % 2
1 < 2 < 3, 1 < 3 < 2, 3 > 2 >= 2, 1 == 1.0, 1 == True, "a" == 'a', [1] == [1.0], (1,) == [1]
"a" < "b", "B" < "a", [1, 2] < [1, 3], (1,) < (1, 0)
not t, not not e, t and 0, 0 or "x", none or no, no or none or 5
1 if t else 2, 1 if e else 2, (1 if e) is undefined, 1 if e else 2 if t else 3
s ~ 1 ~ no ~ t ~ 2.0, "a" "b" 'c'
"a" * 3, [1, 2] * 2, 2 * (1,), "x" * 0, "x" * -1
[1] + [2], (1,) + (2,), "a" + "b"
n in l, 3 in l, "ell" in s, "zz" not in s, "a" in d, "zz" in d, no in mixed
s[0], s[-1], s[1:4], s[::-1], s[::2], s[-3:], s[:-3], s[5:2], s[100:], s[-100:3], s[4:1:-1]
u[0], u[2], u[-1], u[2:5], u[::-1], u | length
l[0], l[-1], l[1:], l[::-1], l[5] is undefined, l[:100], l[-2:], l[2:0:-1]
d.a, d["a"], d["items"], d.zz is undefined, d["zz"] is undefined, d.C[0], d.C.0, nested.x.y[0].z, nested["x"]["y"][0]["z"]
d.items() | list, d.keys() | list, d.values() | list, d | items | list, d | length, d | list
d.get("a"), d.get("zz"), d.get("zz", 1), d.get("items")
[1, 2.0, "x", 'it''s', none, true, (1,), (), {}, {"a": [1]}, {1: 2, "b": none}]
"it's", ["it's", 'say "hi"', 'both \' and "', "back\\slash", "new\nline\ttab", "é", "\x00\x7f"]
1.0, 1e3, 1.5e300, big, tiny, huge, third, 1e-5, 123456789.0, 0.1 + 0.2, 1e22, 1e15, -0.0, 100 / 3
0x1F, 0b101, 0o17, 1_000_000, 1_0.5
true, True, false, False, none, None
"\u00e9\x41\n|\t|\\|\'|\"|\101|\d"
s is string, n is string, n is number, f is number, t is number, t is boolean, n is integer, t is integer, f is float, f is integer
d is mapping, l is mapping, l is sequence, s is sequence, d is sequence, n is sequence, l is iterable, n is iterable, s is iterable, zz is iterable
n is odd, n is even, 9 is divisibleby 3, 9 is divisibleby(2), n is not odd
no is none, zz is none, zz is defined, zz is not defined, zz is undefined, s is defined, no is not none
"abc" is lower, "ABC" is upper, "Abc" is lower, "123" is lower, "a1" is lower
1 is eq 1, 1 is ne 2, 1 is lt 2, 2 is gt 1, 1 is le 1, 1 is ge 2, 1 is in [1, 2], 3 is not in [1], "a" is equalto "a", t is true, t is false, 1 is true
range is callable, s is callable
s | upper, s | lower, u | upper, u | lower, "hELLO wORLD" | title, "hELLO wORLD" | capitalize, "foo-bar (baz) [q]" | title, "it's 3d" | title
"hELLO it's 3d".title(), s.upper(), s.lower(), "éa".capitalize(), "ß".upper()
sp | trim, "[" ~ sp.strip() ~ "]", "[" ~ sp.lstrip() ~ "]", "[" ~ sp.rstrip() ~ "]", "xxaxx".strip("x"), "xyaxy".lstrip("yx"), "abc" | trim("ac"), "é é".strip("é")
"a,b,,c".split(","), "a b  c ".split(), " a b  c ".split(" "), "a,b,c".split(",", 1), "a b c d".split(none, 2), "a b  c ".split(none, 1), "a--b--c".split("--"), "".split(), "".split(",")
"abcabc".replace("b", "X"), "abcabc".replace("b", "X", 1), "abc".replace("", "-"), s | replace("l", "L"), s | replace("l", "L", 2)
"abc".startswith("a"), "abc".startswith(("x", "a")), "abc".endswith("bc"), "abc".startswith("b", 1), "abc".find("c"), "abc".find("z"), "abc".index("b"), "aXbX".count("X"), "éab".find("b")
",".join(["a", "b"]), "".join(words), "-".join("abc"), ", ".join(d)
l | sort, l | sort(reverse=true), words | sort, words | sort(case_sensitive=true), users | sort(attribute="age") | map(attribute="name") | list, users | sort(attribute="age,name") | map(attribute="name") | list
l | first, l | last, s | first, s | last, empty | first is undefined, l | reverse | list, s | reverse, d | first
words | unique | list, [1, 1.0, true, "1", 2] | unique | list, words | unique(case_sensitive=true) | list, users | unique(attribute="age") | map(attribute="name") | list
l | join, l | join("-"), users | join(",", attribute="name"), s | join("."), empty | join(","), mixed | join("|")
l | map("string") | list, words | map("upper") | join(" "), users | map(attribute="tags", default="-") | list, users | map(attribute="name") | map("lower") | list, words | map("replace", "p", "P") | list
[0, 1, "", "a", none, 2] | select | list, l | select("odd") | list, l | reject("odd") | list, l | select("gt", 1) | list, users | selectattr("tags") | map(attribute="name") | list, users | rejectattr("age", "eq", 3) | map(attribute="name") | list, users | selectattr("tags", "defined") | list | length, l | select("in", [1, 2]) | list, mixed | select("string") | list
no | select("odd") | list, zz | map("upper") | list, zz | list, zz | length, zz | join, zz | upper, zz | trim, zz | string, zz | default("x"), e | default("x"), e | default("x", true), no | d("x"), no | d("x", true), false | default("x", boolean=true)
d | dictsort, d | dictsort(true), {"b": 2, "a": 3} | dictsort(by="value"), {"b": 2, "a": 3} | dictsort(reverse=true)
"3" | int, "x" | int, "x" | int(5), "3.7" | int, 3.7 | int, -3.7 | int, "0x1F" | int(0, 16), "101" | int(base=2), no | int, " 42 " | int, "1_000" | int, "1e3" | int, t | int
"3" | float, "x" | float, "x" | float(1.5), 3 | float, "1e3" | float, " 2.5 " | float, no | float
-3 | abs, -3.5 | abs
lines | indent, lines | indent(2, true), lines | indent(2, blank=true), "a\nb" | indent("> "), "a" | indent(3, first=true), "" | indent
html | e, html | escape, html | safe, (html | e) | e, "<" ~ (html | safe), ("<" | safe) + "<", "<" + (">" | safe), ["<" | safe], ("<a>" | safe).upper() + "<", ("<a>" | safe)[0] + "<", ("<" | safe) * 2 + "&"
d | tojson, l | tojson(indent=2), {"a": {}, "b": [], "c": {"x": [1]}} | tojson(indent=1), u | tojson, u | tojson(ensure_ascii=true), "\n\t\"\\/\x01\x7f" | tojson, [1.0, 1e20, 1e-7, true, none] | tojson, {1: 2, "b": (1, 2)} | tojson, d | tojson(sort_keys=true) if false else "ok", {"b": 1, "a": 2} | tojson(sort_keys=true), l | tojson(separators=(",", ":")), {"a": [1, 2]} | tojson(indent="--"), html | tojson
dict(a=1, b=2), dict({"a": 1}, b=2), dict([("a", 1)]), namespace(a=1).a, range(3) | list, range(1, 10, 3) | list, range(5, 0, -2) | list, range(3), range(1, 4)[1], range(0), 2 in range(3), range(3) | length, range(10)[2:4] | list
(), (1,), (1, 2), [], {}, [1,], {"a": 1,}
l | length, d | count, s | length, "é" | length, (1, 2) | length
zz, no, t, f, n, [zz], "" ~ zz ~ "x"
- n, + n, --n, -n | abs, -(n), not n == 7, not (n == 8)
"a" in "abc" and "b" not in "xyz", 1 + 1 == 2 and 2 * 2 != 5, 5 - 3 - 1, 2 ** 3 ** 2, 10 / 2 / 5, 1 ~ 2 ~ 3, 1 ~ 2 * 3
l is sequence and l is not string and l is not mapping, d.a is defined and d.a is number, (n > 5) is true, n is number and n > 5
[x, y] if false else "skipped", t is boolean or zz.foo, false and zz.foo
d.a if d is mapping else none, (l | first) + 1, (s | upper)[0], s.split()[1], s.split(" ") | last, {"a": {"b": 1}}.a.b, [[1, 2], [3]][0][1], "abc"[1], (1, 2)[0]
(words | select("string") | list)[0], words | map("length") | list, words | map("first") | join, words | list | length, (words | map("upper")) is sequence, true if words | select("number") else false
"a" if e, e if e else "x" ~ "y", "Ab" == "ab" | capitalize, 1 in [1] == true
loop is defined, self is defined and false, caller is defined, "x".upper is callable
"x" | indent(width=2, first=True), s | replace("o", "0") | upper | reverse, [3, 1] | sort | first, "1,2" | replace(",", ";")
'tab\there', "😀"[0]
"a-b_c d".title(), "x".join(["1"]), "Straße" | upper, "ǆ" | title, "ÀÉ" | lower, "i̇" | upper
""".strip("\n").split("\n")

TEMPLATES = [
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}|{% endfor %}",
    "{% for x in empty %}a{% else %}empty{% endfor %}", "{% for x in zz %}a{% else %}empty{% endfor %}", "{% for x in l if x > 5 %}a{% else %}none{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}", "{% for c in 'abc' %}{{ c }}-{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for x in l %}{% for y in l %}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% for i in l %}{{ q }}{% set q = i %}{{ q }}{% endfor %}{{ q }}",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set x = 1, 2 %}{{ x }}", "{% set (a, b) = [3, 4] %}{{ a + b }}",
    "{% set ns = namespace(c=0, l=[]) %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}{{ ns.zz }}{{ ns['c'] }}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}{{ x | length }}", "{% set x | upper | trim %} ab {% endset %}[{{ x }}]", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aca{% endfilter %}",
    "{% macro m(a, b=2, c=a) %}{{ a }},{{ b }},{{ c }}{% endmacro %}{{ m(1) }};{{ m(1, 3) }};{{ m(1, c=5) }};{{ m() }};{{ m(b=1, a=0) }}",
    "{% macro m(x) %}{{ caller() }}{{ x }}{% endmacro %}{% call m(1) %}body{{ n }}{% endcall %}",
    "{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) each(l) %}{{ i }}:{{ x }} {% endcall %}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro outer() %}{% macro inner() %}i{{ n }}{% endmacro %}o{{ inner() }}{% endmacro %}{{ outer() }}",
    "{% set g = 1 %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ m() }}", "{% macro m() %}{% set n = 9 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}", "{% macro m() %} x {% endmacro %}{{ m() | trim | length }}{{ m().strip() }}{{ m }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% set n = 3 %}{{ n }}{% endwith %}{{ a }}{{ n }}", "{% raw %}{{ x }}{% if %}{% endraw %}", "a{# c {{ x }} #}b", "{% if zz %}a{% elif n == 7 %}b{% else %}c{% endif %}",
    "{% if t -%}  a  {%- endif %}  b", "  {%- if t %} a {% endif -%}  b", "{{- s -}}  x", "x  {{- s }}", "a\n  {% if t %}\n  b\n  {% endif %}\nc", "a\n  {%+ if t %}\n  b\n  {%+ endif +%}\nc", "a  {# c #}\nb\n  {# d #}\n  e",
    "{% if t +%}\na{% endif %}", "{%- raw -%}  x  {%- endraw -%}  y", "  {% raw %}\n x\n  {% endraw %}\ny", "line\n", "line\n\n", "a\r\nb\rc", "\n{% if t %}\n\nx\n{% endif %}\n", "{{ '{{' }}{{ '}}' }}{{ {'a': {'b': 1}}['a'] }}",
    "{%- for m in users -%}\n  {{- m.name + '\\n' -}}\n{%- endfor -%}", "{%if t%}a{%endif%}", "{{s}}", "{{ s\n | \n upper }}", "{% set x = [\n 1,\n 2 ] %}{{ x }}",
    "{% set g = l | select('odd') %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% endfor %}{{ 'yes' if empty | select else 'no' }}", "{{ users | selectattr('name') | first }}",
    "{{ 'a\\\nb' }}", "{{ none | select('odd') | list }}{{ none | map('upper') | list }}", "{% for x in none %}{% endfor %}",
    "{{ zz.x }}", "{{ zz() }}", "{{ zz + 1 }}", "{{ no.x }}{{ no['x'] }}|", "{{ no.x.y }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [] + 1 }}", "{{ n() }}", "{{ l | join(1, 2, 3) }}", "{{ 1 | length }}", "{{ (l | map('upper')) | length }}",
    "{{ raise_exception('told you') }}", "{% if t %}{{ 1 / 0 }}{% endif %}", "{{ 1 // 0 }}", "{{ 'a' < 1 }}", "{{ none < 1 }}", "{% set n.x = 1 %}", "{{ {[]: 1} }}", "{{ s.zz() }}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}",
    "{% for x in 5 %}{% endfor %}", "{{ l | sort(attribute='x') }}", "{{ mixed | sort }}", "{{ 'x' in 5 }}", "{{ 1 in 'x' }}", "{{ zz | tojson }}", "{{ range(1000000) }}", "{{ l[1:2:0] }}", "{{ s.index('q') }}", "{{ 'a'.split('') }}", "{{ '%d' % 'a' }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=1) }}", "{{ s | zz }}", "{{ s is zz }}", "{% if false %}{{ s | zz }}{% endif %}ok", "{% if t %}{{ s | zz }}{% endif %}",
    "{% endif %}", "{% if %}{% endif %}", "{% for x in %}{% endfor %}", "{{ }}", "{{ a b }}", "{{ 'abc }}", "{{ (1 }}", "{% if t %}", "{# open", "{% raw %}x", "{{ x", "{% set %}", "{% set 1 = 2 %}", "{{ 1 + }}", "{{ | upper }}", "{% elif %}", "{% for x in l %}{% else %}{% else %}{% endfor %}", "{% break %}", "{{ x is y is z }}", "{{ f(a=1, 2) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ a[ }}", "{{ a. }}", "{{ ) }}", "{{ ] }}", "{% call x %}{% endcall %}", "{% zz %}",
]

CALL = {
    "id": "call_123456",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 3, "f": 1.5, "x": None, "l": [1, "a"], "b": True}},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Gets weather\nfor a city",
        "parameters": {
            "type": "object",
            "required": ["city"],
            "properties": {
                "city": {"type": "string", "description": "City", "enum": ["Köln", "Paris"]},
                "days": {"type": "integer", "default": 1},
                "opts": {"type": "object", "properties": {"u": {"type": "array", "items": {"type": "string"}}}},
                "z": {"type": ["string", "null"]},
            },
        },
    },
}
VARIABLES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "tools": [TOOL],
    "add_generation_prompt": True,
    "enable_thinking": True,
    "documents": [{"title": "t", "text": "x"}],
}
REAL_CONTEXTS = {
    "tool call": VARIABLES
    | {
        "messages": [
            {"role": "system", "content": "Sei höflich. 'q' \"d\" <b>&"},
            {"role": "user", "content": "Hallo 👋\n  "},
            {"role": "assistant", "content": "<think>hm</think>Ja?", "reasoning_content": "Grund"},
            {"role": "user", "content": "wetter"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_123456", "name": "get_weather", "content": '{"t": 21}'},
            {"role": "assistant", "content": "21 Grad"},
            {"role": "user", "content": "danke"},
        ],
    },
    "tool call with text": VARIABLES
    | {
        "messages": [
            {"role": "user", "content": "wetter"},
            {"role": "assistant", "content": "Ich sehe nach.", "tool_calls": [CALL | {"id": "abcdefghi"}]},
            {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": "21"},
        ],
    },
    "content in parts": VARIABLES
    | {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
            {"role": "user", "content": "d"},
        ],
        "tools": None,
        "add_generation_prompt": False,
        "enable_thinking": False,
    },
}
NOW = 1721995200  # 2024-07-26, at noon in UTC


def environment():
    """Jinja2 as Transformers sets it up, except that lists and dicts may be changed and that there is from_json."""
    env = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.fromtimestamp(NOW).strftime(form)
    return env


def render(template, context):
    """The text, or what the error of Jinja2 says: that is a result too."""
    try:
        return {"expected": environment().from_string(template).render(**json.loads(json.dumps(context)))}
    except Exception as error:
        return {"error": type(error).__name__ + ": " + str(error)}


def fnv1a(text):
    """The 64-bit FNV-1a digest of the text in UTF-8, in hex."""
    digest = 0xCBF29CE484222325
    for byte in text.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return f"{digest:016x}"


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    print(f"{path}: {len(value['cases'])} cases")


def write_expressions(goldens: Path) -> None:
    """Writes chat_templates/expressions.json."""
    templates = [f"{{{{ ({expression}) }}}}" for expression in EXPRESSIONS] + TEMPLATES
    cases = [{"template": template} | render(template, CONTEXT) for template in templates]
    write_json(goldens / "chat_templates/expressions.json", {"context": CONTEXT, "cases": cases})


def write_real_templates(goldens: Path, data: Path) -> None:
    """Writes chat_templates/real_templates.json from the folder chat-templates of the test data."""
    contexts = dict(REAL_CONTEXTS)
    for path in sorted((data / "contexts").glob("*.json")):
        contexts[path.stem] = {"tools": None} | json.loads(path.read_text())
    cases = []
    for path in sorted((data / "templates").glob("*.jinja")):
        for name, context in contexts.items():
            case = render(path.read_text(), context)
            if "expected" in case:
                case = {"digest": fnv1a(case["expected"])}
            cases.append({"template": path.name, "context": name} | case)
    write_json(goldens / "chat_templates/real_templates.json", {"now": NOW, "contexts": contexts, "cases": cases})
