"""One-feature Jinja templates: (name, template, context). A context of None stands for CONTEXT."""

from __future__ import annotations

CONTEXT = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "messages": [
        {"role": "system", "content": "  Be brief.  "},
        {"role": "user", "content": "Hello\nthere"},
        {"role": "assistant", "content": "Hi!"},
        {"role": "user", "content": "Grüße, 世界 😀 <b>&\"'"},
    ],
    "numbers": [3, 1, 2, 5, 4],
    "words": ["pear", "Apple", "fig", "apple"],
    "price": {"b": 1, "a": [1, 2.5, None, True], "c": {"x": "é"}},
    "flag": True,
    "off": False,
    "nothing": None,
    "empty": [],
    "text": "  The quick brown fox  ",
}

FEATURES: tuple[tuple[str, str], ...] = (
    ("plain text", "no markup at all, { and } and % and # alone\n"),
    ("empty template", ""),
    ("variable", "[{{ bos_token }}]{{eos_token}}"),
    ("undefined prints nothing", "[{{ unknown }}]"),
    ("undefined is false", "{% if unknown %}a{% else %}b{% endif %}"),
    ("attribute of undefined fails", "{{ unknown.field }}"),
    ("missing key is undefined", "[{{ price.zzz }}][{{ price['zzz'] }}]{{ price.zzz is defined }}"),
    ("attribute and subscript", "{{ messages[1].role }} {{ messages[1]['role'] }} {{ price.c.x }}"),
    ("negative subscript", "{{ numbers[-1] }} {{ messages[-1]['role'] }} {{ bos_token[0] }}{{ bos_token[-1] }}"),
    ("subscript by expression", "{% set i = 1 %}{{ words[i + 1] }}{{ messages[i]['ro' + 'le'] }}"),
    (
        "if elif else",
        "{% for n in numbers %}{% if n > 4 %}big{% elif n == 3 %}three{% else %}{{ n }}{% endif %},{% endfor %}",
    ),
    ("nested if", "{% if flag %}{% if off %}x{% else %}{% if nothing is none %}y{% endif %}{% endif %}{% endif %}"),
    (
        "truth of values",
        "{% for v in [0, 1, '', 'a', [], [0], {}, {'a': 0}, none, 0.0, true] %}{{ 1 if v else 0 }}{% endfor %}",
    ),
    ("for", "{% for word in words %}<{{ word }}>{% endfor %}"),
    (
        "for else",
        "{% for x in empty %}x{% else %}none{% endfor %}{% for x in words %}{{ x }}{% else %}none{% endfor %}",
    ),
    (
        "loop variables",
        "{% for w in words %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.length }}"
        "{% if loop.first %} first{% endif %}{% if loop.last %} last{% endif %};{% endfor %}",
    ),
    (
        "loop previtem nextitem",
        "{% for w in words %}{% if loop.previtem is defined %}{{ loop.previtem }}<{% endif %}{{ w }}"
        "{% if loop.nextitem is defined %}>{{ loop.nextitem }}{% endif %} {% endfor %}",
    ),
    ("for with condition", "{% for m in messages if m.role == 'user' %}{{ loop.index }}:{{ m.content }};{% endfor %}"),
    ("for over string", "{% for c in 'añ世' %}{{ c }}.{% endfor %}"),
    ("for over dictionary", "{% for k in price %}{{ k }} {% endfor %}"),
    ("for over items", "{% for k, v in price.items() %}{{ k }}={{ v }};{% endfor %}"),
    (
        "for over items filter",
        "{% for k, v in price | items %}{{ k }};{% endfor %}{% for k, v in price | dictsort %}{{ k }}{% endfor %}",
    ),
    ("keys and values", "{{ price.keys() | list }} {{ price.values() | list | length }}"),
    (
        "nested loops",
        "{% for a in [1, 2] %}{% for b in ['x', 'y'] %}{{ a }}{{ b }}{{ loop.index }} {% endfor %}{{ loop.index }};{% endfor %}",
    ),
    (
        "break and continue",
        "{% for n in range(10) %}{% if n == 2 %}{% continue %}{% endif %}{% if n == 5 %}{% break %}{% endif %}{{ n }}{% endfor %}",
    ),
    ("unpacking", "{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}{% set x, y = 'p', 'q' %}{{ y }}{{ x }}"),
    ("range", "{{ range(4) | list }}{{ range(1, 4) | list }}{{ range(9, 0, -3) | list }}"),
    ("set", "{% set a = 1 %}{% set b = a + 1 %}{{ b }}{% set a = 'again' %}{{ a }}"),
    ("set block", "{% set a %}x{{ 1 + 1 }}y{% endset %}[{{ a }}]{% set b | upper %}abc{% endset %}{{ b }}"),
    (
        "set in a loop stays inside",
        "{% set n = 0 %}{% for x in [1, 2] %}{% set n = n + x %}{{ n }} {% endfor %}{{ n }}",
    ),
    ("set in an if goes out", "{% if flag %}{% set n = 5 %}{% endif %}{{ n }}"),
    (
        "namespace",
        "{% set ns = namespace(n=0, last='') %}{% for x in numbers %}{% set ns.n = ns.n + x %}{% set ns.last = x %}{% endfor %}{{ ns.n }} {{ ns.last }}",
    ),
    ("whitespace control", "a  \n {%- if flag %}  b  {% endif -%}  \n c {{- ' d ' -}}  e {#- gone -#} f"),
    ("trim blocks", "{% if flag %}\nline\n{% endif %}\nafter {{ 1 }}\nend\n"),
    ("lstrip blocks", "x\n    {% if flag %}\n  y\n    {% endif %}\n  {{ 1 }}\n  {# note #}\nz"),
    ("plus keeps whitespace", "a\n    {%+ if flag %}b{% endif +%}\nc"),
    ("comment", "a{# {{ not.run }} {% if %} #}b{#\nlines\n#}c"),
    ("raw", "{% raw %}{{ x }}{% if %}{# #}{% endraw %}|{%- raw -%}  y  {%- endraw -%}|"),
    ("literal braces", "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}"),
    ("string escapes", "{{ 'a\\n\\tb\\\\ \\'q\\' \\x41 \\u00e9' }}{{ \"it's\" }}"),
    ("adjacent strings", "{{ 'a' 'b' \"c\" }}"),
    ("tilde joins", "{{ 'a' ~ 1 ~ none ~ true ~ 2.0 ~ undefined_name ~ [1, 'b'] }}"),
    ("plus joins strings and lists", "{{ 'a' + 'b' }}{{ [1] + [2, 3] }}"),
    ("string plus number fails", "{{ 'a' + 1 }}"),
    (
        "arithmetic",
        "{{ 7 + 2 }} {{ 7 - 9 }} {{ 7 * 2 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ -2 ** 2 }}",
    ),
    (
        "precedence",
        "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 2 * 3 ~ 4 }} {{ 10 - 4 - 3 }} {{ not true == false }} {{ 1 + 1 == 2 and 2 < 3 }}",
    ),
    (
        "floats",
        "{{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e3 }} {{ 2.50 }} {{ 1e20 }} {{ 1e-7 }} {{ 10 / 4 }} {{ 3.0 // 2 }} {{ 1_000 }}",
    ),
    (
        "comparison",
        "{{ 1 < 2 }} {{ 2 <= 2 }} {{ 'a' < 'b' }} {{ 1 != 1.0 }} {{ [1, 2] == [1, 2] }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == '1' }}",
    ),
    (
        "and or not",
        "{{ flag and off }} {{ off or 'x' }} {{ '' or 0 }} {{ 'a' and 'b' }} {{ not off }} {{ not flag or flag and not off }}",
    ),
    ("in", "{{ 'a' in 'cat' }} {{ 'b' in price }} {{ 3 in numbers }} {{ 9 not in numbers }} {{ not 'x' in words }}"),
    (
        "inline if",
        "{{ 'a' if flag else 'b' }}{{ 'c' if off else 'd' }}[{{ 'e' if off }}]{{ 'x' if off else 'y' if off else 'z' }}",
    ),
    (
        "printing of values",
        "{{ true }} {{ false }} {{ none }} {{ [1, 'a', none, true, 1.5] }} {{ {'k': 'v', 'n': [1]} }} {{ (1, 'b') }} {{ [\"it's\"] }}",
    ),
    (
        "tests of definition",
        "{{ flag is defined }} {{ zzz is defined }} {{ zzz is not defined }} {{ zzz is undefined }} {{ nothing is none }} {{ flag is not none }} {{ nothing is defined }}",
    ),
    (
        "tests of type",
        "{% for v in ['s', 1, 1.5, true, none, [1], {'a': 1}, (1, 2)] %}{{ v is string }},{{ v is number }},{{ v is integer }},"
        "{{ v is float }},{{ v is boolean }},{{ v is mapping }},{{ v is iterable }},{{ v is sequence }};{% endfor %}",
    ),
    (
        "tests of value",
        "{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ true is true }} {{ 1 is true }} {{ off is false }} {{ 1 is eq 1 }} {{ 2 is gt(1) }} {{ 'a' is in ['a'] }} {{ 'A' is upper }} {{ 'a' is lower }}",
    ),
    ("callable test", "{{ range is callable }} {{ flag is callable }} {{ raise_exception is defined }}"),
    ("trim filters", "[{{ text | trim }}][{{ 'xxaxx' | trim('x') }}][{{ messages[0].content | trim }}]"),
    (
        "case filters",
        "{{ 'aBc dEf' | upper }}{{ 'aBc' | lower }}{{ 'aBc dEf-gh' | title }}{{ 'aBc dEf' | capitalize }}",
    ),
    ("join", "{{ words | join(', ') }} {{ numbers | join }} {{ messages | join('|', attribute='role') }}"),
    ("length", "{{ words | length }} {{ 'añ世😀' | length }} {{ price | count }} {{ empty | length }}"),
    (
        "default",
        "{{ zzz | default('d') }}{{ nothing | default('d') }}{{ nothing | default('d', true) }}{{ '' | d('e', boolean=true) }}{{ flag | default(1) }}",
    ),
    ("replace", "{{ 'banana' | replace('a', 'o') }} {{ 'banana' | replace('a', 'o', 2) }}"),
    ("first last", "{{ numbers | first }}{{ numbers | last }}{{ words | first }}[{{ empty | first }}]"),
    (
        "reverse and sort",
        "{{ numbers | reverse | list }} {{ numbers | sort }} {{ numbers | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ 'abc' | reverse }}",
    ),
    ("sort by attribute", "{% for m in messages | sort(attribute='role') %}{{ m.role }} {% endfor %}"),
    ("unique", "{{ [1, 2, 1, 3, 2] | unique | list }} {{ words | unique | list }}"),
    (
        "number filters",
        "{{ -3 | abs }} {{ 3.7 | int }} {{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(-1) }} {{ 3 | float }}",
    ),
    ("string filter", "{{ 12 | string + 'a' }}{{ none | string }}{{ [1] | string }}"),
    ("list filter", "{{ 'abc' | list }} {{ price | list }}"),
    (
        "select and reject",
        "{{ numbers | select('odd') | list }} {{ numbers | reject('odd') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ numbers | select('gt', 2) | list }}",
    ),
    (
        "selectattr and rejectattr",
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | join(',') }}"
        " {{ [{'a': 1}, {'a': 0}, {}] | selectattr('a') | list }} {{ [{'a': 1}, {}] | selectattr('a', 'defined') | list }}",
    ),
    (
        "map",
        "{{ messages | map(attribute='role') | list }} {{ words | map('upper') | join(' ') }} {{ [{'a': 1}, {}] | map(attribute='a', default='-') | list }}",
    ),
    (
        "tojson",
        "{{ price | tojson }} {{ messages[3].content | tojson }} {{ [1, 2.0, true, none, 'a/b\\n'] | tojson }} {{ {} | tojson }}{{ [] | tojson }}",
    ),
    ("tojson indent", "{{ price | tojson(indent=2) }}\n{{ [] | tojson(indent=4) }}{{ [{}] | tojson(indent=4) }}"),
    (
        "indent",
        "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, blank=true) }}",
    ),
    ("escape and safe", "{{ '<a>' }} {{ '<a>' | safe }} {{ '<a>&\"\\'' | escape }} {{ '<b>' | e }}"),
    (
        "filter chains and arguments",
        "{{ text | trim | upper | replace(' ', '_') | length }} {{ (text | trim)[:3] }} {{ text.strip() | length + 1 }}",
    ),
    ("filter block", "{% filter upper | trim %}  abc {{ bos_token }} {% endfilter %}"),
    (
        "slices",
        "{{ numbers[1:] }}{{ numbers[:2] }}{{ numbers[1:3] }}{{ numbers[::-1] }}{{ numbers[::2] }}{{ 'abcdef'[2:4] }}{{ messages[1:] | length }}{{ numbers[-2:] }}{{ numbers[9:] }}",
    ),
    (
        "string methods",
        "{{ text.strip() }}|{{ '..a..'.strip('.') }}|{{ '  a '.lstrip() }}|{{ ' a  '.rstrip() }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a-b-c'.split('-', 1)[1] }}"
        "|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith('bc') }}|{{ 'aXb'.upper() }}|{{ 'aXb'.lower() }}|{{ 'a b'.title() }}|{{ 'aba'.replace('a', 'c') }}|{{ 'abcb'.find('b') }}|{{ 'abab'.count('a') }}|{{ ','.join(['x', 'y']) }}|{{ 'aB'.capitalize() }}",
    ),
    ("list methods", "{% set l = [1] %}{% set _ = l.append(2) %}{{ l }}"),
    (
        "dictionary methods",
        "{{ price.get('b') }}{{ price.get('z') }}{{ price.get('z', 'd') }}{{ 'a' in price.keys() }}{% set _ = price.update({'n': 1}) %}{{ price.n }}",
    ),
    (
        "literals",
        "{{ {'a': 1, 'b': {'c': [1, 2]}}.b.c[1] }}{{ [[1, 2], [3]][0][1] }}{{ dict(a=1, b='x').b }}{{ (1, 2)[1] }}{{ [] }}{{ {} }}",
    ),
    ("python spellings of constants", "{{ True }}{{ False }}{{ None }}{{ true }}{{ none is none }}"),
    (
        "macro",
        "{% macro tag(name, close=false, sep='/') %}<{{ sep if close }}{{ name }}>{% endmacro %}{{ tag('b') }}x{{ tag('b', true) }}{{ tag(name='i', sep='!', close=true) }}",
    ),
    (
        "macro whitespace and recursion",
        "{%- macro count(n) -%}{{ n }}{%- if n > 0 -%},{{ count(n - 1) }}{%- endif -%}{%- endmacro -%}\n{{ count(3) }}",
    ),
    ("call block", "{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('a') %}inner{% endcall %}"),
    ("with", "{% with a = 1, b = 'x' %}{{ a }}{{ b }}{% endwith %}[{{ a }}]"),
    ("string repetition", "{{ 'ab' * 3 }}"),
    (
        "raise_exception",
        "before{% if messages | length > 1 %}{{ raise_exception('roles must alternate: ' + messages[0].role) }}{% endif %}",
    ),
    (
        "strftime_now",
        "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %%') }}{{ strftime_now is defined }}",
    ),
    (
        "generation block",
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}",
    ),
    ("line endings", "a\r\n{% if flag %}\r\nb\r\n{% endif %}\r\nc"),
    ("one final newline is dropped", "a{{ 1 }}\n"),
    ("two final newlines", "a\n\n"),
    ("unicode", "{{ messages[3].content }} ü世😀 {{ 'é' | upper }}{{ 'ÀÉ' | lower }}{{ 'straße'.upper() }}"),
    ("syntax error: no endif", "{% if flag %}a"),
    ("syntax error: unknown tag", "{% frobnicate %}"),
    ("syntax error: open expression", "{{ 1 + }}"),
    ("unknown filter fails", "{{ 1 | frobnicate }}"),
    ("unknown method fails", "{{ 'a'.frobnicate() }}"),
    ("division by zero fails", "{{ 1 / 0 }}"),
)
