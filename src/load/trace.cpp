/// Parses traces line by line, and the medians of a benchmark of steps.
#include "load/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/json.h"

namespace baton {
namespace {

constexpr std::int64_t kMaxTokens = 1 << 26;
constexpr double kMaxTime_s = 1e12;  // a double counts microseconds up to there

tl::unexpected<Error> bad_line(std::string_view what, std::int64_t line, std::string_view reason) {
  return fail(ErrorCode::invalid_data, fmt::format("{}, line {}: {}", what, line, reason));
}

bool is_time(double seconds) { return std::abs(seconds) <= kMaxTime_s; }  // also not of NaN

Result<std::int32_t> count_field(const json::Value& object, std::string_view key) {
  const json::Value* value = json::find(object, key);
  if (value == nullptr) return json::missing(key);
  BATON_TRY(const std::int64_t number, json::to_int64(*value, key, 0, kMaxTokens));
  return static_cast<std::int32_t>(number);
}

Result<TraceRequest> parse_object(std::string_view line) {
  BATON_TRY(const json::Value object, json::parse(line, "request"));
  TraceRequest request;
  BATON_TRY(const double timestamp_ms, json::get<double>(object, "timestamp"));
  request.arrival_s = timestamp_ms / 1e3;
  if (!is_time(request.arrival_s)) return fail(ErrorCode::invalid_data, "'timestamp' is not a time");
  BATON_TRY(request.prompt_len, count_field(object, "input_length"));
  BATON_TRY(request.output_len, count_field(object, "output_length"));
  BATON_TRY(auto runs, json::get_optional<std::vector<std::int64_t>>(object, "hash_ids"));
  if (runs) request.runs = std::move(*runs);
  return request;
}

template <class T>
bool read_number(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

/// "2023-11-16 18:15:46.6805900", or a number of seconds.
bool read_time(std::string_view text, double& seconds) {
  if (read_number(text, seconds)) return true;
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[13] != ':' || text[16] != ':') return false;
  int year = 0, month = 0, day = 0, hour = 0, minute = 0;
  double second = 0;
  if (!read_number(text.substr(0, 4), year) || !read_number(text.substr(5, 2), month) || !read_number(text.substr(8, 2), day) ||
      !read_number(text.substr(11, 2), hour) || !read_number(text.substr(14, 2), minute) ||
      !read_number(text.substr(17), second))
    return false;
  // Days since a fixed one, in the calendar that begins years with March.
  const std::int64_t y = month <= 2 ? year - 1 : year;
  const std::int64_t m = (month + 9) % 12;
  const std::int64_t days = 365 * y + y / 4 - y / 100 + y / 400 + (m * 306 + 5) / 10 + day;
  seconds = static_cast<double>(days) * 86400 + hour * 3600 + minute * 60 + second;
  return true;
}

struct Columns {
  std::size_t time = std::string_view::npos;
  std::size_t prompt = std::string_view::npos;
  std::size_t output = std::string_view::npos;
};

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

Result<Columns> parse_head(std::string_view line) {
  const std::vector<std::string_view> names = split(line);
  Columns columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "TIMESTAMP") columns.time = i;
    if (names[i] == "ContextTokens") columns.prompt = i;
    if (names[i] == "GeneratedTokens") columns.output = i;
  }
  if (columns.time == std::string_view::npos || columns.prompt == std::string_view::npos ||
      columns.output == std::string_view::npos)
    return fail(ErrorCode::invalid_data, "a table needs the columns TIMESTAMP, ContextTokens and GeneratedTokens");
  return columns;
}

Result<TraceRequest> parse_row(std::string_view line, const Columns& columns) {
  const std::vector<std::string_view> fields = split(line);
  TraceRequest request;
  if (fields.size() <= std::max({columns.time, columns.prompt, columns.output}))
    return fail(ErrorCode::invalid_data, "fewer fields than columns");
  if (!read_time(fields[columns.time], request.arrival_s) || !is_time(request.arrival_s))
    return fail(ErrorCode::invalid_data, "TIMESTAMP is not a time");
  const bool has_lengths =
      read_number(fields[columns.prompt], request.prompt_len) && read_number(fields[columns.output], request.output_len);
  if (!has_lengths || request.prompt_len < 0 || request.output_len < 0 || request.prompt_len > kMaxTokens ||
      request.output_len > kMaxTokens)
    return fail(ErrorCode::invalid_data,
                fmt::format("ContextTokens and GeneratedTokens must be numbers from 0 to {}", kMaxTokens));
  return request;
}

constexpr std::int64_t kMostStepRows = 1 << 20;

Result<StepCostTable::Entry> parse_step_cost(const json::Value& object) {
  StepCostTable::Entry entry;
  BATON_TRY(const std::int64_t n_decodes, json::get<std::int64_t>(object, "decodes"));
  BATON_TRY(const std::int64_t n_tokens, json::get<std::int64_t>(object, "prompt_tokens"));
  BATON_TRY(entry.seconds, json::get<double>(object, "median_seconds"));
  if (n_decodes < 0 || n_decodes > kMostStepRows || n_tokens < 0 || n_tokens > kMostStepRows)
    return fail(ErrorCode::invalid_data, fmt::format("a step of {} decodes and {} prompt tokens; both are from 0 to {}",
                                                     n_decodes, n_tokens, kMostStepRows));
  entry.n_decodes = static_cast<std::int32_t>(n_decodes);
  entry.n_prompt_tokens = static_cast<std::int32_t>(n_tokens);
  return entry;
}

Result<StepCostTable> parse_cost_table(std::string_view text) {
  BATON_TRY(const json::Value value, json::parse(text, "costs"));
  const json::Value* const steps = json::find(value, "steps");
  if (steps == nullptr || !steps->is_array())
    return fail(ErrorCode::invalid_data, "'steps' must be a list, as baton bench steps writes it");
  std::vector<StepCostTable::Entry> entries;
  for (const json::Value& step : *steps) {
    const auto entry = parse_step_cost(step);
    if (!entry) return fail(ErrorCode::invalid_data, fmt::format("steps[{}]: {}", entries.size(), entry.error().message));
    entries.push_back(*entry);
  }
  std::string fault;
  std::optional<StepCostTable> table = StepCostTable::make(entries, fault);
  if (!table) return fail(ErrorCode::invalid_data, fault);
  return *std::move(table);
}

}  // namespace

Result<Trace> parse_trace(std::string_view text, std::string_view what) {
  Trace trace;
  std::optional<Columns> columns;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!columns && !line.starts_with('{')) {
      auto head = parse_head(line);
      if (!head) return bad_line(what, number, head.error().message);
      columns = *head;
      continue;
    }
    auto request = columns ? parse_row(line, *columns) : parse_object(line);
    if (!request) return bad_line(what, number, request.error().message);
    trace.requests.push_back(std::move(*request));
  }
  if (trace.requests.empty()) return fail(ErrorCode::invalid_data, fmt::format("{}: no requests", what));
  std::ranges::stable_sort(trace.requests, {}, &TraceRequest::arrival_s);
  const double first = trace.requests.front().arrival_s;
  for (TraceRequest& request : trace.requests) request.arrival_s -= first;
  return trace;
}

Result<StepCostTable> parse_step_costs(std::string_view text, std::string_view what) {
  auto table = parse_cost_table(text);
  if (!table) return fail(ErrorCode::invalid_data, fmt::format("{}: {}", what, table.error().message));
  return table;
}

}  // namespace baton
