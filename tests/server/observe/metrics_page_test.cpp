/// Names, labels and values of /metrics (server/observe/metrics_page.h).
#include "server/observe/metrics_page.h"

#include <gtest/gtest.h>

#include "support/tiny_engine.h"

namespace baton {
namespace {

std::unique_ptr<Engine> short_engine() {
  EngineOptions options;
  options.max_model_len = 256;
  return testing::make_tiny_engine(options, 64);
}

/// The value of the line that begins with `name`, or "none".
std::string value(const std::string& page, const std::string& name) {
  const auto line = page.find("\n" + name + " ");
  if (line == std::string::npos) return "none";
  const auto begin = line + name.size() + 2;
  return page.substr(begin, page.find('\n', begin) - begin);
}
std::string labelled(const std::string& name, const std::string& more = "") {
  return name + R"({model_name="demo",engine="0")" + more + "}";
}

const Budgets kBudgets({});
const ConnectionCounts kConnections;

MetricsPage::Counts counts_of(const PrefixCounts& prefixes = {}, const std::vector<KeyCounts>& keys = {},
                              GrammarCounts grammars = {}) {
  if (grammars.compile_seconds.counts.empty()) grammars.compile_seconds = Histogram({1}).snapshot();
  return {prefixes, keys, std::move(grammars), kBudgets, kConnections};
}

TEST(MetricsPage, counts_what_the_engine_did_under_the_names_that_dashboards_know) {
  const auto engine = short_engine();
  testing::run_requests(*engine,
                        {testing::greedy(testing::random_prompt(1, 40), 5), testing::greedy(testing::random_prompt(1, 40), 5)});
  const MetricsPage page(*engine, "demo");
  const std::string text = "\n" + page.render(counts_of());
  EXPECT_EQ(value(text, labelled("vllm:num_requests_running")), "0");
  EXPECT_EQ(value(text, labelled("vllm:prompt_tokens_total")), "80");
  EXPECT_EQ(value(text, labelled("vllm:generation_tokens_total")), "10");
  EXPECT_EQ(value(text, labelled("vllm:request_success_total", R"(,finished_reason="length")")), "2");
  EXPECT_EQ(value(text, labelled("vllm:request_success_total", R"(,finished_reason="abort")")), "0");
  EXPECT_EQ(value(text, labelled("vllm:time_to_first_token_seconds_count")), "2");
  EXPECT_EQ(value(text, labelled("vllm:request_prompt_tokens_bucket", R"(,le="50")")), "2");
  EXPECT_EQ(value(text, labelled("vllm:request_prompt_tokens_bucket", R"(,le="20")")), "0");
  EXPECT_EQ(value(text, labelled("vllm:request_prompt_tokens_bucket", R"(,le="+Inf")")), "2");
  EXPECT_EQ(value(text, labelled("vllm:request_prompt_tokens_sum")), "80");
  EXPECT_NE(value(text, labelled("baton:kv_bytes_requested_total")), "0");
  for (const char* histogram : {"request_inference_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
                                "request_time_per_output_token_seconds", "request_queue_time_seconds",
                                "e2e_request_latency_seconds", "request_params_n", "request_max_num_generation_tokens",
                                "request_params_max_tokens", "request_prefill_kv_computed_tokens", "request_generation_tokens"})
    EXPECT_EQ(value(text, labelled(std::string("vllm:") + histogram + "_count")), "2") << histogram;
  EXPECT_EQ(value(text, labelled("vllm:num_requests_waiting_by_reason", R"(,reason="capacity")")), "0");
  EXPECT_EQ(value(text, labelled("vllm:num_requests_waiting_by_reason", R"(,reason="deferred")")), "0");
  EXPECT_EQ(value(text, labelled("vllm:request_success_total", R"(,finished_reason="deadline")")), "0");
  EXPECT_EQ(value(text, labelled("vllm:prompt_tokens_recomputed_total")), "0");
  EXPECT_EQ(value(text, labelled("baton:kv_blocks_pinned")), "0");
  EXPECT_EQ(value(text, labelled("vllm:admission_rejections_total", R"(,reason="queue_full")")), "0");
}

TEST(MetricsPage, counts_drafts) {
  const auto engine = short_engine();
  Request request = testing::greedy(testing::random_prompt(1, 20), 30);
  request.sampling.logit_bias = {{7, kMaxBias}};  // only this token is sampled
  request.speculation = {.n_tokens = 3, .lookup_max = 1, .lookup_min = 1};
  testing::run_requests(*engine, {request});
  const MetricsPage page(*engine, "demo");
  const std::string text = "\n" + page.render(counts_of());
  const auto number = [&](const std::string& name, const std::string& more = "") {
    const std::string found = value(text, labelled("vllm:spec_decode_num_" + name + "_total", more));
    return found == "none" ? -1 : std::stoi(found);
  };
  EXPECT_GT(number("drafts"), 0);
  EXPECT_GT(number("draft_tokens"), number("drafts"));
  EXPECT_EQ(number("accepted_tokens"), number("draft_tokens")) << "nothing else comes";
  EXPECT_EQ(number("accepted_tokens_per_pos", R"(,position="0")"), number("drafts"));
  EXPECT_GE(number("accepted_tokens_per_pos", R"(,position="0")"), number("accepted_tokens_per_pos", R"(,position="2")"));
  EXPECT_EQ(number("accepted_tokens_per_pos", R"(,position="15")"), 0);
}

TEST(MetricsPage, keeps_the_older_names_beside_todays) {
  const auto engine = short_engine();
  testing::run_requests(*engine, {testing::greedy(testing::random_prompt(1, 40), 5)});
  testing::run_requests(*engine, {testing::greedy(testing::random_prompt(1, 40), 5)});
  const std::string text = "\n" + MetricsPage(*engine, "demo").render(counts_of());
  for (const auto& [name, older] :
       {std::pair{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
        std::pair{"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"},
        std::pair{"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"},
        std::pair{"vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"}}) {
    EXPECT_NE(value(text, labelled(name)), "none") << name;
    EXPECT_EQ(value(text, labelled(older)), value(text, labelled(name))) << older;
  }
  EXPECT_EQ(value(text, labelled("vllm:prefix_cache_hits_total")), "32");
  EXPECT_EQ(value(text, labelled("vllm:gpu_prefix_cache_hit_rate")), "0.4");
  EXPECT_EQ(value(text, labelled("vllm:prompt_tokens_by_source_total", R"(,source="local_compute")")), "48");
  EXPECT_EQ(value(text, labelled("vllm:prompt_tokens_by_source_total", R"(,source="local_cache_hit")")), "32");
}

TEST(MetricsPage, tells_what_the_host_tier_holds_and_what_was_loaded_from_it) {
  if (testing::n_test_ranks() > 1) GTEST_SKIP() << "the host tier is refused with several ranks";
  const auto engine = testing::make_tiny_engine({.max_model_len = 256, .host_tier_bytes = std::int64_t{8} << 20}, 20);
  for (const std::uint32_t seed : {1u, 2u, 1u})
    testing::run_requests(*engine, {testing::greedy(testing::random_prompt(seed, 200), 5)});
  const std::string text = "\n" + MetricsPage(*engine, "demo").render(counts_of());
  const auto number = [&](const std::string& name, const std::string& more = "") {
    const std::string found = value(text, labelled(name, more));
    return found == "none" ? -1 : std::stoi(found);
  };
  const int n_loaded = number("vllm:external_prefix_cache_hits_total");
  EXPECT_GE(n_loaded, 64);
  EXPECT_EQ(number("vllm:prefix_cache_hits_total"), 192 - n_loaded);
  EXPECT_EQ(number("vllm:external_prefix_cache_queries_total"), 600 - 192 + n_loaded);
  EXPECT_EQ(number("vllm:prompt_tokens_cached_total"), 192);
  EXPECT_EQ(number("vllm:prompt_tokens_by_source_total", R"(,source="external_kv_transfer")"), n_loaded);
  EXPECT_EQ(number("vllm:prompt_tokens_by_source_total", R"(,source="local_cache_hit")"), 192 - n_loaded);
  EXPECT_EQ(number("vllm:kv_offload_total_bytes_total", R"(,transfer_type="CPU_to_GPU")"), n_loaded / 16 * 65536);
  EXPECT_GE(number("vllm:kv_offload_total_bytes_total", R"(,transfer_type="GPU_to_CPU")"), n_loaded / 16 * 65536);
  EXPECT_GE(number("baton:host_tier_blocks"), n_loaded / 16);
  EXPECT_EQ(number("baton:host_tier_blocks_total"), 128);
  EXPECT_NE(text.find(R"(kv_offloading_size="0.0078125")"), std::string::npos);
}

TEST(MetricsPage, tells_the_cache_configuration_and_the_process) {
  const auto engine = short_engine();
  const std::string text = "\n" + MetricsPage(*engine, "demo").render(counts_of());
  const auto line = text.find("\nvllm:cache_config_info{");
  ASSERT_NE(line, std::string::npos);
  const std::string info = text.substr(line, text.find('\n', line + 1) - line);
  EXPECT_NE(info.find(R"(block_size="16")"), std::string::npos) << info;
  EXPECT_NE(info.find(R"(num_gpu_blocks="64")"), std::string::npos) << info;
  EXPECT_NE(info.find(R"(enable_prefix_caching="True")"), std::string::npos) << info;
  EXPECT_NE(info.find(R"(max_prefill_tokens="128")"), std::string::npos) << info;
  EXPECT_EQ(value(text, labelled("baton:weights_info", R"(,scheme="float32",dtype="float32")")), "1");
  EXPECT_NE(text.find("\nprocess_resident_memory_bytes "), std::string::npos);
  EXPECT_NE(text.find("\nprocess_cpu_seconds_total "), std::string::npos);
}

TEST(MetricsPage, counts_prefixes_by_where_they_come_from) {
  const auto engine = short_engine();
  PrefixCounts counts;
  counts.by_source = {1, 2, 3};
  counts.n_refused_files = 4;
  const std::string text = "\n" + MetricsPage(*engine, "demo").render(counts_of(counts));
  EXPECT_EQ(value(text, labelled("baton:prefixes", R"(,source="flag")")), "1");
  EXPECT_EQ(value(text, labelled("baton:prefixes", R"(,source="api")")), "2");
  EXPECT_EQ(value(text, labelled("baton:prefixes", R"(,source="folder")")), "3");
  EXPECT_EQ(value(text, labelled("baton:prefix_files_refused")), "4");
  EXPECT_EQ(text.find("baton:prefix_store"), std::string::npos) << "prefixes are not stored";
}

TEST(MetricsPage, counts_what_the_prefix_store_does) {
  const auto engine = short_engine();
  PrefixCounts counts;
  counts.store = PrefixStoreCounts{1, 2, 3, 4, 0.5, 6, 7, 0.25, 9, 10};
  const std::string text = "\n" + MetricsPage(*engine, "demo").render(counts_of(counts));
  EXPECT_EQ(value(text, labelled("baton:prefix_store_files")), "1");
  EXPECT_EQ(value(text, labelled("baton:prefix_store_bytes")), "2");
  EXPECT_EQ(value(text, labelled("baton:prefix_store_loaded_total")), "3");
  EXPECT_EQ(value(text, labelled("baton:prefix_store_loaded_bytes_total")), "4");
  EXPECT_EQ(value(text, labelled("baton:prefix_store_load_seconds_total")), "0.5");
  EXPECT_EQ(value(text, labelled("baton:prefix_store_written_total")), "6");
  EXPECT_EQ(value(text, labelled("baton:prefix_store_written_bytes_total")), "7");
  EXPECT_EQ(value(text, labelled("baton:prefix_store_write_seconds_total")), "0.25");
  EXPECT_EQ(value(text, labelled("baton:prefix_store_failures_total")), "9");
  EXPECT_EQ(value(text, labelled("baton:prefix_store_refused_total")), "10");
}

TEST(MetricsPage, tells_how_long_the_io_thread_waited_for_locks) {
  const auto engine = short_engine();
  MetricsPage page(*engine, "demo");
  for (const double seconds : {0.0, 0.0, 2e-4, 0.02}) page.observe_io_wait(seconds);
  const std::string text = "\n" + page.render(counts_of());
  EXPECT_EQ(value(text, labelled("baton:io_lock_wait_seconds_count")), "4");
  EXPECT_EQ(value(text, labelled("baton:io_lock_wait_seconds_bucket", R"(,le="1e-06")")), "2");
  EXPECT_EQ(value(text, labelled("baton:io_lock_wait_seconds_bucket", R"(,le="0.001")")), "3");
  EXPECT_EQ(value(text, labelled("baton:io_lock_wait_seconds_bucket", R"(,le="+Inf")")), "4");
}

TEST(MetricsPage, counts_connections) {
  const auto engine = short_engine();
  ConnectionCounts counts;
  counts.open.set(3);
  counts.limit.set(8192);
  counts.reclaimed.add(4);
  counts.refused_files.add(5);
  const std::string text = "\n" + MetricsPage(*engine, "demo").render({{}, {}, counts_of().grammars, kBudgets, counts});
  EXPECT_EQ(value(text, labelled("baton:connections")), "3");
  EXPECT_EQ(value(text, labelled("baton:connections_limit")), "8192");
  EXPECT_EQ(value(text, labelled("baton:connections_reclaimed_total")), "4");
  EXPECT_EQ(value(text, labelled("baton:connections_refused_total", R"(,reason="files")")), "5");
  EXPECT_EQ(value(text, labelled("baton:connections_refused_total", R"(,reason="address")")), "0");
}

TEST(MetricsPage, counts_requests_by_route_method_and_status) {
  const auto engine = short_engine();
  MetricsPage page(*engine, "demo");
  page.observe_request("/v1/completions", "POST", 200, 0.3);
  page.observe_request("/v1/completions", "POST", 204, 0.2);
  page.observe_request("/v1/completions", "POST", 404, 0.001);
  const std::string text = "\n" + page.render(counts_of());
  EXPECT_EQ(value(text, R"(http_requests_total{handler="/v1/completions",method="POST",status="2xx"})"), "2");
  EXPECT_EQ(value(text, R"(http_requests_total{handler="/v1/completions",method="POST",status="4xx"})"), "1");
  EXPECT_EQ(value(text, R"(http_request_duration_seconds_count{handler="/v1/completions",method="POST"})"), "3");
  EXPECT_EQ(value(text, R"(http_request_duration_seconds_bucket{handler="/v1/completions",method="POST",le="0.25"})"), "2");
}

TEST(MetricsPage, shows_what_each_key_uses) {
  const auto engine = short_engine();
  const std::vector<KeyCounts> keys = {{"shop", 2, 30, 400, 50, 6}, {"other", 0, 1, 0, 0, 0}};
  const std::string text = "\n" + MetricsPage(*engine, "demo").render(counts_of({}, keys));
  for (const std::string line : {"baton:key_requests_running{model_name=\"demo\",engine=\"0\",key=\"shop\"} 2",
                                 "baton:key_requests_total{model_name=\"demo\",engine=\"0\",key=\"shop\"} 30",
                                 "baton:key_prompt_tokens_total{model_name=\"demo\",engine=\"0\",key=\"shop\"} 400",
                                 "baton:key_generation_tokens_total{model_name=\"demo\",engine=\"0\",key=\"shop\"} 50",
                                 "baton:key_refusals_total{model_name=\"demo\",engine=\"0\",key=\"shop\"} 6",
                                 "baton:key_requests_total{model_name=\"demo\",engine=\"0\",key=\"other\"} 1"})
    EXPECT_NE(text.find("\n" + line), std::string::npos) << line;
}

TEST(MetricsPage, shows_what_structured_output_costs) {
  const auto engine = short_engine();
  GrammarCounts grammars;
  grammars.requests[static_cast<std::size_t>(grammar::GrammarKind::json_schema)] = 3;
  grammars.refused = 1;
  grammars.cache = {.hits = 2, .misses = 4, .n_entries = 1, .n_bytes = 1000};
  grammars.cache_limit_bytes = 5000;
  grammars.compile_seconds = {{0.001, 0.01}, {1, 2, 0}, 0.01};
  const std::string text = "\n" + MetricsPage(*engine, "demo").render(counts_of({}, {}, grammars));
  EXPECT_EQ(value(text, labelled("baton:grammar_requests_total", R"(,kind="json_schema")")), "3");
  EXPECT_EQ(value(text, labelled("baton:grammar_requests_total", R"(,kind="regex")")), "0");
  EXPECT_EQ(value(text, labelled("baton:grammar_refusals_total")), "1");
  EXPECT_EQ(value(text, labelled("baton:grammar_cache_hits_total")), "2");
  EXPECT_EQ(value(text, labelled("baton:grammar_cache_misses_total")), "4");
  EXPECT_EQ(value(text, labelled("baton:grammar_cache_entries")), "1");
  EXPECT_EQ(value(text, labelled("baton:grammar_cache_bytes")), "1000");
  EXPECT_EQ(value(text, labelled("baton:grammar_cache_limit_bytes")), "5000");
  EXPECT_EQ(value(text, labelled("baton:grammar_compile_seconds_bucket", R"(,le="0.001")")), "1");
  EXPECT_EQ(value(text, labelled("baton:grammar_compile_seconds_count")), "3");
}

}  // namespace
}  // namespace baton
