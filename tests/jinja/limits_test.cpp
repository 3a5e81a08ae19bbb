/// Limits that stop endless templates: memory, output, work, iterations and depth. Each error names its limit.
#include <string>

#include <gtest/gtest.h>

#include "jinja/interpreter.h"
#include "jinja/native.h"
#include "jinja/parser.h"
#include "text/template_values.h"

namespace baton::jinja {
namespace {

Result<std::string> render(const std::string& source, const Limits& limits = {}) {
  BATON_TRY(const Body body, parse(source, {}));
  Arena arena(limits, read_template_json);
  return Interpreter(arena).run(body, arena.scope(global_scope(arena, 0)));
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
  expect_over("bytes of memory", "{{ 'x'.center(10 ** 15) }}");
  expect_over("bytes of memory", "{{ 'x'.zfill(9 * 10 ** 18) }}");
}

TEST(JinjaLimits, bound_loops_and_work) {
  const std::string nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
  expect_over("1000000 loop iterations", nested);
  expect_over("5000 units of work", nested, {.work = 5000});
}

TEST(JinjaLimits, bound_recursion) {
  expect_over("levels of nesting", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  expect_over("levels of nesting", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
}

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
      "{% for i in range(0, 40, 3) %}{% set _ = d.pop('k' ~ i) %}{% endfor %}{% set _ = d.setdefault('k0', 'new') %}"
      "{{ d | length }} {{ d.k1 }} {{ d.k3 is undefined }} {{ d.k38 }} {{ d.keys() | list | first }} {{ d.keys() | list | last "
      "}}";
  EXPECT_EQ(render(source).value(), "27 1 True 38 k1 k0");
}

}  // namespace
}  // namespace baton::jinja
