/// Limits that stop endless templates: memory, output, work, iterations and depth. Each error names its limit.
#include <pthread.h>

#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/limits/stack_space.h"
#include "jinja/interpreter.h"
#include "jinja/native.h"
#include "jinja/parser.h"
#include "text/template/chat_template.h"

namespace baton::jinja {
namespace {

Result<std::string> render(const std::string& source, const Limits& limits = {}) {
  BATON_TRY(const Body body, parse(source, {}));
  Arena arena(limits, read_template_json);
  return Interpreter(arena).run(body, arena.scope(global_scope(arena, 0)));
}

/// The steps that a template takes.
std::int64_t work_of(const std::string& source) {
  const auto body = parse(source, {});
  EXPECT_TRUE(body.has_value()) << source;
  Arena arena({}, read_template_json);
  const auto text = Interpreter(arena).run(*body, arena.scope(global_scope(arena, 0)));
  EXPECT_TRUE(text.has_value()) << source << ": " << text.error().message;
  return arena.work();
}

void expect_over(std::string_view limit, const std::string& source, const Limits& limits = {}) {
  const auto text = render(source, limits);
  ASSERT_FALSE(text.has_value()) << source << " gave " << text->size() << " bytes";
  EXPECT_EQ(text.error().code, ErrorCode::too_large) << text.error().message;
  EXPECT_NE(text.error().message.find(limit), std::string::npos) << text.error().message;
  EXPECT_TRUE(text.error().message.starts_with("chat template line ")) << text.error().message;
}

TEST(JinjaLimits, bound_output) {
  expect_over("1000 bytes of output", "{% for i in range(200) %}0123456789{% endfor %}", {.output_bytes = 1000});
  EXPECT_EQ(render("{% for i in range(100) %}0123456789{% endfor %}", {.output_bytes = 1000})->size(), 1000U);
}

TEST(JinjaLimits, bound_memory) {
  expect_over("bytes of memory", "{{ 'a' * 10 ** 12 }}");
  expect_over("bytes of memory", "{{ [1] * 10 ** 12 }}");
  expect_over("bytes of memory",
              "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}");
  expect_over("bytes of memory", "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}");
}

TEST(JinjaLimits, bound_loops_and_work) {
  const std::string nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
  expect_over("1000000 loop iterations", nested);
  expect_over("5000 steps of work", nested, {.work = 5000});
}

/// Whatever passes over a long value counts steps in proportion, so that a few operations cannot take all day.
TEST(JinjaLimits, every_operation_counts_what_it_passes_over) {
  const std::string text = "{% set t = 'ab ' * 30000 %}{% set u = 'ab ' * 30000 %}{% set d = {t: 1} %}";
  const std::int64_t text_work = work_of(text);
  for (const char* operation : {"'x' in t",
                                "t in u",
                                "t.find('x')",
                                "t.count('x')",
                                "t.count('')",
                                "t.split('x')",
                                "t.split()",
                                "t.startswith(u)",
                                "t.endswith(u)",
                                "t.replace('x', 'y')",
                                "t.replace('', 'y')",
                                "t.join(['', ''])",
                                "t.upper()",
                                "t.lower()",
                                "t.title()",
                                "t.capitalize()",
                                "t.strip('ba ')",
                                "'x'.strip(t)",
                                "t.lstrip('ab ')",
                                "t.rstrip('ab ')",
                                "t | upper",
                                "t | lower",
                                "t | title",
                                "t | capitalize",
                                "t | trim('ab ')",
                                "'x' | trim(t)",
                                "t | replace('x', 'y')",
                                "t | replace('', 'y')",
                                "t | length",
                                "t | int",
                                "t | float",
                                "t | indent",
                                "t | tojson",
                                "t | escape",
                                "t | reverse",
                                "t | list",
                                "t | first",
                                "t | last",
                                "t | join",
                                "t[7]",
                                "t[7:8]",
                                "t[::7]",
                                "t == u",
                                "t < u",
                                "t ~ u",
                                "t + u",
                                "d[u]",
                                "d.get(u)",
                                "u in d",
                                "{t: 1}",
                                "[t] | string",
                                "[t, t] | sort",
                                "[t] | unique",
                                "[t] | join",
                                "t is upper",
                                "t is lower",
                                "t is eq(u)",
                                "[1] | map(attribute=t) | list",
                                "('[' ~ t ~ ']')[:1] ~ ('\"' ~ t ~ '\"') | from_json"})
    EXPECT_GE(work_of(text + "{% set _ = " + operation + " %}") - text_work, 90'000 / 64) << operation;

  const std::string lists =
      "{% set l = range(3000) | list %}{% set m = range(3000) | list %}{% set d = {} %}{% set e = {} %}"
      "{% for i in l %}{% set _ = d.update({i: i}) %}{% set _ = e.update({i: i}) %}{% endfor %}";
  const std::int64_t lists_work = work_of(lists);
  for (const char* operation : {"-1 in l",
                                "l | sort",
                                "l | unique",
                                "l | join",
                                "l | map('string')",
                                "l | select",
                                "l | list",
                                "l | reject('odd')",
                                "l | reverse",
                                "l | last",
                                "l + m",
                                "l * 2",
                                "l[1:]",
                                "l[::2]",
                                "l == m",
                                "l < m",
                                "l | tojson",
                                "l | string",
                                "d.items()",
                                "d.keys()",
                                "d.values()",
                                "d | items",
                                "d | dictsort",
                                "d.update(e)",
                                "dict(d)",
                                "d | tojson",
                                "d == e",
                                "d | list",
                                "d.pop(7)"})
    EXPECT_GE(work_of(lists + "{% set _ = " + operation + " %}") - lists_work, 3'000 / 16) << operation;
}

TEST(JinjaLimits, count_the_memory_of_what_grows) {
  const Limits limits{.memory_bytes = 4 << 20};
  const auto in_loop = [](const std::string& step) {
    return "{% set l = [] %}{% set n = range(5000) | list %}{% set d = {} %}{% for i in n %}{% set _ = d.update({i: i}) %}"
           "{% endfor %}{% for a in range(2000) %}" +
           step + "{% endfor %}";
  };
  expect_over("bytes of memory", in_loop("{% set _ = dict(d) %}"), limits);
  expect_over("bytes of memory", in_loop("{% for x in n %}{% break %}{% endfor %}"), limits);
  expect_over("bytes of memory", in_loop("{% for b in range(200) %}{% set _ = l.append(b) %}{% endfor %}"),
              {.memory_bytes = 64 << 20, .work = 500'000'000});
  expect_over("bytes of memory", "{% set _ = ('a ' * 100000).split() %}", limits);
  expect_over("bytes of memory", "{% set _ = ('\n' * 200000) | indent %}", limits);
  expect_over("bytes of memory", "{% set _ = ('\\x01' * 2000000) | tojson %}", limits);
  expect_over("bytes of memory", "{% set _ = [('\\x01' * 2000000)] | string %}", limits);
  expect_over("bytes of memory", "{% set _ = ('&' * 2000000) | escape %}", limits);
  expect_over("bytes of memory", "{% set _ = ('[' ~ '0,' * 100000 ~ '0]') | from_json %}", limits);
}

TEST(JinjaLimits, a_rendering_without_a_waiting_client_ends) {
  const auto body = parse("{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}", {});
  int n_asked = 0;
  Arena arena({}, read_template_json, [&] { return ++n_asked > 3; });
  const auto text = Interpreter(arena).run(*body, arena.scope(global_scope(arena, 0)));
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, ErrorCode::unavailable) << text.error().message;
  EXPECT_EQ(n_asked, 4);
  EXPECT_LE(arena.work(), 4 * WorkBudget::kStepsBetweenChecks);
}

TEST(JinjaLimits, a_name_costs_the_scopes_that_are_searched) {
  // Each call's macro has the scope of the one before it as its parent.
  expect_over("steps of work",
              "{% set ns = namespace(f=none) %}{% macro first() %}{% macro g() %}{% macro h() %}{{ ns.f() if false }}"
              "{% endmacro %}{% set ns.f = h %}{% endmacro %}{% set ns.f = g %}{% endmacro %}{{ first() }}"
              "{% for i in range(9999) %}{% set c = ns.f %}{{ c() }}{{ nothing }}{% endfor %}",
              {.work = 100'000});
}

TEST(JinjaLimits, keys_of_any_kind_are_found_fast) {
  constexpr int kKeys = 200'000;
  std::vector<List> tuples(kKeys);
  for (int kind = 0; kind < 3; ++kind) {
    Dict dict;
    const auto key = [&](int i) {
      if (kind == 0) return Value::integer(i);
      if (kind == 1) return Value::floating(i + 0.5);
      List& tuple = tuples[static_cast<std::size_t>(i)];
      tuple.flavor = List::Flavor::tuple;
      tuple.items = {Value::string("k"), Value::integer(i)};
      return Value::list(&tuple);
    };
    const std::clock_t begin = std::clock();
    for (int i = 0; i < kKeys; ++i) EXPECT_TRUE(dict.set(key(i), Value::integer(i)));
    for (int i = 0; i < kKeys; ++i) ASSERT_EQ(dict.find(key(i))->as_int(), i);
    EXPECT_EQ(dict.find(Value::integer(-1)), nullptr);
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10) << "keys of kind " << kind;
  }
}

TEST(JinjaLimits, keys_compare_like_pythons) {
  std::string source = "{% set d = {} %}";
  for (int i = 0; i < 20; ++i) source += "{% set _ = d.update({'k" + std::to_string(i) + "': 0}) %}";
  source +=
      "{% set _ = d.update({1: 'one', 2.5: 'half', none: 'none', (1, 'a'): 'tuple', 9007199254740993: 'odd'}) %}"
      "{{ d[1.0] }} {{ d[true] }} {{ d[2.5] }} {{ d[none] }} {{ d[(1.0, 'a')] }} {{ 9007199254740992.0 in d }} "
      "{{ d[9007199254740993] }} {{ (1, 'b') in d }} {{ '1' in d }} {{ d.pop(1) }} {{ d[2.5] }} {{ 1 in d }}";
  EXPECT_EQ(render(source).value(), "one one half none tuple False odd False False one half False");
}

TEST(JinjaLimits, bound_recursion) { expect_over("levels of nesting", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"); }

TEST(JinjaLimits, stop_at_values_that_contain_themselves) {
  expect_over("levels of nesting", "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}");
  expect_over("levels of nesting", "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}");
  expect_over("levels of nesting",
              "{% set a = [] %}{% set b = [] %}{% set _ = a.append(b) %}{% set _ = b.append(a) %}{{ a == b }}");
  EXPECT_EQ(render("{% set l = [] %}{% set _ = l.append(l) %}{{ l == l }}").value(), "True");
}

TEST(JinjaLimits, bound_the_nesting_of_the_template_itself) {
  const auto nested = [](int levels) {
    return "{{ " + std::string(static_cast<std::size_t>(levels), '(') + "1" +
           std::string(static_cast<std::size_t>(levels), ')') + " }}";
  };
  EXPECT_EQ(render(nested(50)).value(), "1");
  for (const int levels : {200, 100'000}) {
    const auto text = render(nested(levels));
    ASSERT_FALSE(text.has_value());
    EXPECT_EQ(text.error().message, "chat template line 1: expressions and blocks are nested deeper than 100 levels");
  }
  std::string minus = "{{ ";
  for (int i = 0; i < 100'000; ++i) minus += "- ";
  EXPECT_FALSE(render(minus + "1 }}").has_value());
  std::string filters = "{{ 'a'";
  for (int i = 0; i < 100'000; ++i) filters += "|trim";
  EXPECT_FALSE(render(filters + " }}").has_value());
}

/// Runs on a thread with so much stack.
void on_stack(std::size_t n_bytes, const std::function<void()>& body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, n_bytes), 0);
  pthread_t thread;
  const auto run = [](void* given) -> void* {
    (*static_cast<const std::function<void()>*>(given))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&body)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

/// With the stack of every size that a thread may get (ulimit -s), nesting ends in a text or an error, not in a crash.
TEST(JinjaLimits, nesting_ends_before_the_stack_does) {
  const auto repeated = [](const std::string& text, int n) {
    std::string result;
    for (int i = 0; i < n; ++i) result += text;
    return result;
  };
  std::vector<std::string> sources = {
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}{% if x %}{% for a in [x] %}{{ (m([[x]][0][0]) | trim)[0:9] ~ '' }}{% endfor %}{% endif %}{% endmacro %}"
      "{{ m(1) }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
      "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(290) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}{{ ns.l | tojson }}",
      "{% set a = [] %}{% set b = [] %}{% set _ = a.append(b) %}{% set _ = b.append(a) %}{{ a == b }}",
      "{% set a = [] %}{% set b = [] %}{% set _ = a.append(b) %}{% set _ = b.append(a) %}{{ a < b }}",
      "{{ ('[' * 500 ~ ']' * 500) | from_json }}",
  };
  for (const int n : {20, 90, 1400, 20'000}) {
    sources.push_back("{{ " + repeated("(", n) + "1" + repeated(")", n) + " }}");
    sources.push_back("{{ " + repeated("[", n) + "1" + repeated("]", n) + " }}");
    sources.push_back("{{ " + repeated("{1: ", n) + "1" + repeated("}", n) + " }}");
    sources.push_back("{{ " + repeated("not ", n) + "1 }}");
    sources.push_back("{{ 'a'" + repeated("|trim", n) + " }}");
    sources.push_back("{{ a" + repeated("[0].b", n / 2) + " is undefined }}");
    sources.push_back("{{ 'a'" + repeated(" if 1", n) + " }}");
    sources.push_back(repeated("{% if 1 %}", n) + "a" + repeated("{% endif %}", n));
    sources.push_back(repeated("{% for i in [1] %}", n) + "a" + repeated("{% endfor %}", n));
    sources.push_back(repeated("{% filter trim %}", n) + "a" + repeated("{% endfilter %}", n));
  }
  for (const std::size_t n_kib : {128, 192, 256, 512, 1024, 8192}) {
    int n_rendered = 0;
    for (const std::string& source : sources)
      on_stack(n_kib << 10, [&] {
        const auto text = render(source);
        EXPECT_TRUE(text.has_value() || !text.error().message.empty());
        n_rendered += text.has_value() ? 1 : 0;
      });
    EXPECT_GE(n_rendered, n_kib >= 8192 ? 15 : 0) << n_kib;
  }
  on_stack(std::size_t{128} << 10, [&] {
#if defined(__SANITIZE_THREAD__)
    const std::size_t n_bytes = StackSpace().n_bytes();  // the thread sanitizer makes small stacks larger
    EXPECT_GT(n_bytes, 131072U);
#else
    constexpr std::size_t n_bytes = 131072;
#endif
    const auto text = render("{{ " + repeated("[", 90) + "1" + repeated("]", 90) + " }}");
    ASSERT_FALSE(text.has_value());
    EXPECT_NE(text.error().message.find("stack of " + std::to_string(n_bytes) + " bytes"), std::string::npos)
        << text.error().message;
  });
}

TEST(JinjaLimits, allow_long_sums_and_many_branches) {
  std::string sum = "{{ 0", branches = "{% if false %}";
  for (int i = 0; i < 5000; ++i) {
    sum += " + 1";
    branches += "{% elif false %}";
  }
  EXPECT_EQ(render(sum + " }}").value(), "5000");
  EXPECT_EQ(render(branches + "{% else %}x{% endif %}").value(), "x");
}

TEST(JinjaLimits, building_a_text_piece_by_piece_takes_linear_memory) {
  // 20,000 pieces of 100 bytes are 2 MB; copying at each step would take 20 GB.
  const std::string source =
      "{% set ns = namespace(s='') %}{% for i in range(20000) %}{% set ns.s = ns.s + ('x' ~ 'y' * 98) + '\\n' %}{% endfor %}{{ "
      "ns.s | length }}";
  const auto text = render(source, {.memory_bytes = std::size_t{40} << 20});
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(*text, "2000000");
}

TEST(JinjaLimits, a_text_extended_twice_keeps_both_results) {
  const std::string source =
      "{% set a = 'x' * 1024 + 'y' %}{% set b = a + '1' %}{% set c = a + '2' %}{% set d = b + '3' %}"
      "{{ a[-2:] }} {{ b[-2:] }} {{ c[-2:] }} {{ d[-3:] }} {{ d | length }}";
  EXPECT_EQ(render(source).value(), "xy y1 y2 y13 1027");
}

TEST(JinjaLimits, integers_that_do_not_fit_are_errors) {
  for (const char* source : {"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 64 }}", "{{ -9223372036854775807 - 2 }}",
                             "{{ (-9223372036854775807 - 1) // -1 }}", "{{ -(-9223372036854775807 - 1) }}",
                             "{{ (-9223372036854775807 - 1) | abs }}", "{{ 9223372036854775807 * 2 }}"}) {
    const auto text = render(source);
    ASSERT_FALSE(text.has_value()) << source << " gave " << *text;
    EXPECT_TRUE(text.error().message.ends_with("an integer result does not fit 64 bits")) << text.error().message;
  }
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }} {{ 2 ** 62 }}").value(), "0 4611686018427387904");
  EXPECT_FALSE(render("{{ 9223372036854775808 }}").has_value());
}

TEST(JinjaLimits, dicts_of_any_size_keep_order_through_changes) {
  const std::string source =
      "{% set d = {} %}{% for i in range(40) %}{% set _ = d.update({'k' ~ i: i}) %}{% endfor %}"
      "{% for i in range(0, 40, 3) %}{% set _ = d.pop('k' ~ i) %}{% endfor %}{% if 'k0' not in d %}{% set _ = d.update({'k0': "
      "'new'}) %}{% endif %}"
      "{{ d | length }} {{ d.k1 }} {{ d.k3 is undefined }} {{ d.k38 }} {{ d.keys() | list | first }} {{ d.keys() | list | last "
      "}}";
  EXPECT_EQ(render(source).value(), "27 1 True 38 k1 k0");
}

}  // namespace
}  // namespace baton::jinja
