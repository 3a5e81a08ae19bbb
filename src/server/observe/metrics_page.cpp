/// Engine counters as Prometheus families, with vLLM's current names and the older ones that deployed routers still
/// read.
#include "server/observe/metrics_page.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "core/log.h"

namespace baton {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;
using prometheus::MetricFamily;
using prometheus::MetricType;

double number(double value) { return value; }
double number(const Count& count) { return static_cast<double>(count.value()); }

/// Collects families that share labels. Metrics of one name are one family, whose help is the first one's.
class Families {
 public:
  /// One metric of a family: the value of the label that distinguishes it.
  struct Labelled {
    template <class Value>
    Labelled(std::string_view text, const Value& given) : label(text), value(number(given)) {}
    std::string label;
    double value;
  };

  explicit Families(Labels labels) : labels_(std::move(labels)) {}

  template <class Value>
  void counter(std::string name, std::string help, const Value& value, Labels more = {}) {
    add(std::move(name), std::move(help), MetricType::Counter, more).counter.value = number(value);
  }
  template <class Value>
  void gauge(std::string name, std::string help, const Value& value, Labels more = {}) {
    add(std::move(name), std::move(help), MetricType::Gauge, more).gauge.value = number(value);
  }
  void counters(const std::string& name, const std::string& help, const char* label, const std::vector<Labelled>& metrics) {
    for (const Labelled& one : metrics) counter(name, help, one.value, {{label, one.label}});
  }
  void gauges(const std::string& name, const std::string& help, const char* label, const std::vector<Labelled>& metrics) {
    for (const Labelled& one : metrics) gauge(name, help, one.value, {{label, one.label}});
  }
  void histogram(std::string name, std::string help, const Histogram::Snapshot& snapshot) {
    prometheus::ClientMetric::Histogram& to = add(std::move(name), std::move(help), MetricType::Histogram, {}).histogram;
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < snapshot.bounds.size(); ++i) {
      n += static_cast<std::uint64_t>(snapshot.counts[i]);
      to.bucket.push_back({n, snapshot.bounds[i]});
    }
    to.sample_count = n + static_cast<std::uint64_t>(snapshot.counts.back());
    to.sample_sum = snapshot.sum;
  }
  void histogram(std::string name, std::string help, const Histogram& histogram_now) {
    histogram(std::move(name), std::move(help), histogram_now.snapshot());
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& add(std::string name, std::string help, MetricType type, const Labels& more) {
    auto family = std::ranges::find(families_, name, &MetricFamily::name);
    if (family == families_.end()) family = families_.insert(family, {std::move(name), std::move(help), type, {}});
    prometheus::ClientMetric& metric = family->metric.emplace_back();
    metric.label = labels_;
    metric.label.insert(metric.label.end(), more.begin(), more.end());
    return metric;
  }

  Labels labels_;
  std::vector<MetricFamily> families_;
};

double ratio(const Count& part, const Count& whole) { return whole.value() == 0 ? 0 : number(part) / number(whole); }

void add_gauges(Families& out, const EngineMetrics& m, const EngineInfo& info) {
  out.gauge("vllm:num_requests_running", "Running sequences.", m.num_requests_running);
  out.gauge("vllm:num_requests_waiting", "Waiting sequences.", m.num_requests_waiting);
  const double deferred = number(m.num_requests_deferred);
  out.gauges("vllm:num_requests_waiting_by_reason",
             "Waiting sequences by reason: capacity, or a prefix that another sequence is computing.", "reason",
             {{"capacity", std::max(0.0, number(m.num_requests_waiting) - deferred)}, {"deferred", deferred}});
  const double usage = ratio(m.kv_blocks_used, m.kv_blocks_total);
  out.gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", usage);
  out.gauge("vllm:gpu_cache_usage_perc", "Older name of vllm:kv_cache_usage_perc.", usage);
  out.gauge("vllm:gpu_prefix_cache_hit_rate", "Share of prompt tokens found in the cache, 0 to 1.",
            ratio(m.prefix_cache_hits, m.prefix_cache_queries));
  out.gauge("vllm:cache_config_info", "Settings of the KV cache.", 1,
            {{"block_size", std::to_string(info.block_len)},
             {"num_gpu_blocks", std::to_string(info.n_blocks)},
             {"cache_dtype", std::string(to_string(info.kv_dtype))},
             {"state_cache_dtype", info.state_slot_bytes > 0 ? std::string(to_string(info.state_dtype)) : "none"},
             {"enable_prefix_caching", info.enable_prefix_caching ? "True" : "False"},
             {"kv_offloading_size", fmt::format("{:g}", static_cast<double>(info.tier_bytes()) / 0x1p30)},
             {"max_num_seqs", std::to_string(info.max_num_seqs)},
             {"max_num_batched_tokens", std::to_string(info.max_num_batched_tokens)},
             {"max_prefill_tokens", std::to_string(info.max_prefill_tokens)},
             {"attention", info.attention},
             {"batch_invariant", info.batch_invariant ? "True" : "False"}});
  out.gauge("baton:weights_info", "How the weights of the layers are stored.", 1,
            {{"scheme", info.weight_scheme}, {"dtype", std::string(to_string(info.weight_dtype))}});
  out.gauge("baton:kv_blocks_pinned", "KV blocks that registered prefixes keep.", m.kv_blocks_pinned);
  out.gauge("baton:state_slots_total", "States of recurrent layers that there is memory for; 0: the model has none.",
            m.state_slots_total);
  out.gauge("baton:state_slot_bytes", "Bytes of one of them.", static_cast<double>(info.state_slot_bytes));
  out.gauge("baton:state_snapshots", "States that the prefix cache keeps at the ends of prompts, answers and shared text.",
            m.state_snapshots);
  out.gauge("baton:state_snapshots_pinned", "Of these, at the ends of registered prefixes.", m.state_snapshots_pinned);
  out.counter("baton:state_snapshots_evicted_total", "States that the prefix cache gave up for others.",
              m.state_snapshots_evicted);
  out.counter("baton:prompt_tokens_replayed_total",
              "Prompt tokens whose keys were cached, computed again for the state of recurrent layers.",
              m.prompt_tokens_replayed);
  out.gauge("baton:host_tier_blocks", "Blocks that the prefix cache evicted and host memory keeps.", m.host_tier_blocks);
  out.gauge("baton:host_tier_blocks_total", "Blocks that the host tier can keep; 0: there is none.", m.host_tier_blocks_total);
  out.gauge("baton:host_tier_states", "Snapshots of states that the prefix cache evicted and host memory keeps.",
            m.host_tier_states);
  out.gauge("baton:host_tier_states_total",
            "Snapshots that the host tier can keep; 0: the model has none, or there is no tier.", m.host_tier_states_total);
  out.gauge("baton:relay_groups", "Shared runs of keys that the last step read once for several sequences.", m.relay_groups);
}

void add_prefix_store(Families& out, const PrefixStoreCounts& counts) {
  out.gauge("baton:prefix_store_files", "Stored prefixes that a restart would find.", counts.n_files);
  out.gauge("baton:prefix_store_bytes", "Bytes of their files.", counts.n_bytes);
  out.counter("baton:prefix_store_loaded_total", "Prefixes whose keys and values were loaded.", counts.n_loaded);
  out.counter("baton:prefix_store_loaded_bytes_total", "Bytes of the loaded files.", counts.n_loaded_bytes);
  out.counter("baton:prefix_store_load_seconds_total", "Time that loading took.", counts.load_seconds);
  out.counter("baton:prefix_store_written_total", "Prefixes that were stored.", counts.n_written);
  out.counter("baton:prefix_store_written_bytes_total", "Bytes of the written files.", counts.n_written_bytes);
  out.counter("baton:prefix_store_write_seconds_total", "Time that storing took.", counts.write_seconds);
  out.counter("baton:prefix_store_failures_total", "Prefixes that could not be stored; the log says why.", counts.n_failed);
  out.counter("baton:prefix_store_refused_total", "Files that were not used; the log says why.", counts.n_refused);
}

void add_prefixes(Families& out, const PrefixCounts& counts) {
  for (const PrefixSource source : {PrefixSource::flag, PrefixSource::api, PrefixSource::folder})
    out.gauge("baton:prefixes", "Registered prefixes by source.", counts.by_source[static_cast<std::size_t>(source)],
              {{"source", std::string(to_string(source))}});
  out.gauge("baton:prefix_files_refused", "Files of the prefix folder whose contents are not served; the log says why.",
            counts.n_refused_files);
  if (counts.store) add_prefix_store(out, *counts.store);
}

void add_counters(Families& out, const EngineMetrics& m) {
  out.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the cache.", m.prefix_cache_queries);
  out.counter("vllm:gpu_prefix_cache_queries_total", "Older name of vllm:prefix_cache_queries_total.", m.prefix_cache_queries);
  out.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.", m.prefix_cache_hits);
  out.counter("vllm:gpu_prefix_cache_hits_total", "Older name of vllm:prefix_cache_hits_total.", m.prefix_cache_hits);
  out.counter("vllm:external_prefix_cache_queries_total", "Prompt tokens looked up in the host tier: those the cache lacks.",
              m.external_prefix_cache_queries);
  out.counter("vllm:external_prefix_cache_hits_total", "Of these, tokens loaded from it.", m.external_prefix_cache_hits);
  out.counters("vllm:kv_offload_total_bytes_total",
               "Bytes of keys and values copied to (GPU_to_CPU) and from (CPU_to_GPU) the host tier.", "transfer_type",
               {{"GPU_to_CPU", m.kv_offload_saved_bytes}, {"CPU_to_GPU", m.kv_offload_loaded_bytes}});
  out.counter("vllm:num_preemptions_total", "Preempted sequences: their blocks were given to others.", m.num_preemptions);
  out.counter("vllm:prompt_tokens_total", "Prompt tokens of admitted requests.", m.prompt_tokens);
  out.counter("vllm:prompt_tokens_cached_total", "Of these, tokens found in the cache.", m.prompt_tokens_cached);
  out.counter("vllm:prompt_tokens_recomputed_total", "Tokens that preempted sequences computed again.",
              m.prompt_tokens_recomputed);
  out.counters("vllm:prompt_tokens_by_source_total", "Prompt tokens by source.", "source",
               {{"local_compute", number(m.prompt_tokens) - number(m.prompt_tokens_cached)},
                {"local_cache_hit", number(m.prompt_tokens_cached) - number(m.external_prefix_cache_hits)},
                {"external_kv_transfer", m.external_prefix_cache_hits}});
  out.counter("vllm:generation_tokens_total", "Tokens generated.", m.generation_tokens);
  out.counter("vllm:spec_decode_num_drafts_total", "Steps of a sequence with drafts.", m.spec_decode_num_drafts);
  out.counter("vllm:spec_decode_num_draft_tokens_total", "Verified draft tokens.", m.spec_decode_num_draft_tokens);
  out.counter("vllm:spec_decode_num_accepted_tokens_total", "Accepted draft tokens.", m.spec_decode_num_accepted_tokens);
  for (std::size_t i = 0; i < m.spec_decode_num_accepted_tokens_per_pos.size(); ++i)
    out.counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted draft tokens by position in their step.",
                m.spec_decode_num_accepted_tokens_per_pos[i], {{"position", std::to_string(i)}});
  for (std::size_t i = 0; i < kDraftSourceNames.size(); ++i) {
    const std::string source(kDraftSourceNames[i]);
    out.counter("baton:draft_tokens_total", "Verified draft tokens by source.", m.draft_tokens_by_source[i],
                {{"source", source}});
    out.counter("baton:accepted_draft_tokens_total", "Accepted draft tokens by source.", m.accepted_tokens_by_source[i],
                {{"source", source}});
  }
  out.counter("baton:draft_passes_total", "Runs of the model's own layer for drafts (method mtp).", m.draft_passes);
  out.counters("vllm:request_success_total", "Finished sequences by reason.", "finished_reason",
               {{"stop", m.finished_stop},
                {"length", m.finished_length},
                {"abort", m.finished_abort},
                {"error", m.finished_error},
                {"deadline", m.finished_deadline}});
  out.counters("vllm:admission_rejections_total", "Refused requests by reason.", "reason",
               {{"queue_full", m.rejected_queue_full}, {"draining", m.rejected_draining}, {"no_memory", m.rejected_no_memory}});
  out.counter("baton:log_lines_dropped_total", "Lines of the log that could not be written.", log::n_dropped());
  out.counter("baton:steps_total", "Steps of the engine.", m.steps);
  out.counter("baton:kv_bytes_requested_total", "KV bytes that the executed plans read, all layers.", m.kv_bytes_requested);
  out.counter("baton:grammar_sequences_total", "Sequences whose answers keep to a grammar.", m.grammar_sequences);
  out.counter("baton:grammar_masks_total", "Distinct token masks of all steps.", m.grammar_masks);
  out.counter("baton:mask_deferrals_total",
              "Samples that were dropped and taken again because a token mask was not ready in time.", m.mask_deferrals);
  out.counter("baton:kv_bytes_saved_total", "KV bytes that sharing saved: reading each context by itself would have read them.",
              m.kv_bytes_saved);
}

void add_histograms(Families& out, const EngineMetrics& m) {
  const auto inter_token = m.inter_token_latency_seconds.snapshot();
  out.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", m.time_to_first_token_seconds);
  out.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a sequence.", inter_token);
  out.histogram("vllm:time_per_output_token_seconds", "Older name of vllm:inter_token_latency_seconds.", inter_token);
  out.histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", m.e2e_request_latency_seconds);
  out.histogram("vllm:request_queue_time_seconds", "From arrival to the first step.", m.request_queue_time_seconds);
  out.histogram("vllm:request_inference_time_seconds", "From the first step to the end.", m.request_inference_time_seconds);
  out.histogram("vllm:request_prefill_time_seconds", "From the first step to the first token.", m.request_prefill_time_seconds);
  out.histogram("vllm:request_decode_time_seconds", "From the first token to the last.", m.request_decode_time_seconds);
  out.histogram("vllm:request_time_per_output_token_seconds", "Mean time between the tokens of a sequence.",
                m.request_time_per_output_token_seconds);
  out.histogram("vllm:request_max_num_generation_tokens", "Tokens of the longest sequence of a request.",
                m.request_max_num_generation_tokens);
  out.histogram("vllm:request_params_n", "Sequences per request (n).", m.request_params_n);
  out.histogram("vllm:request_params_max_tokens", "Most tokens that a sequence may generate (max_tokens).",
                m.request_params_max_tokens);
  out.histogram("vllm:request_prefill_kv_computed_tokens", "Prompt tokens that were not found in the cache.",
                m.request_prefill_kv_computed_tokens);
  out.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", m.request_prompt_tokens);
  out.histogram("vllm:request_generation_tokens", "Tokens generated by a sequence.", m.request_generation_tokens);
  out.histogram("vllm:iteration_tokens_total", "Rows of a step.", m.iteration_tokens_total);
  out.histogram("baton:grammar_mask_seconds", "Time of a step spent on its token masks, while the device computes its logits.",
                m.grammar_mask_seconds);
  out.histogram("baton:relay_group_size", "Sequences that share one read.", m.relay_group_size);
  out.histogram("baton:relay_prefix_tokens", "Tokens of one shared read.", m.relay_prefix_tokens);
}

void add_budgets(Families& out, const Budgets& budgets) {
  for_each_budget(budgets, [&](std::string_view name, const Budget& budget) {
    const Labels label = {{"budget", std::string(name)}};
    out.gauge("baton:budget_used", "What clients' requests and answers take of a budget.", budget.used(), label);
    out.gauge("baton:budget_limit", "The size of a budget.", budget.limit(), label);
    out.counter("baton:budget_refusals_total", "Requests and answers for which a budget had no room.", budget.n_refused(),
                label);
  });
}

void add_connections(Families& out, const ConnectionCounts& counts) {
  out.gauge("baton:connections", "Open connections of clients.", counts.open);
  out.gauge("baton:connections_limit", "Most connections that may be open.", counts.limit);
  out.counter("baton:connections_reclaimed_total", "Idle or stalled connections that were closed to make room for others.",
              counts.reclaimed);
  out.counters(
      "baton:connections_refused_total", "Connections whose request was refused, by what there was too little of.", "reason",
      {{"connections", counts.refused_connections}, {"address", counts.refused_address}, {"files", counts.refused_files}});
}

void add_grammars(Families& out, const GrammarCounts& counts) {
  for (std::size_t kind = 0; kind < counts.requests.size(); ++kind)
    out.counter("baton:grammar_requests_total", "Requests whose answers keep to a grammar, by kind of grammar.",
                counts.requests[kind], {{"kind", std::string(to_string(grammar::kGrammarKinds[kind]))}});
  out.counter("baton:grammar_refusals_total", "Requests whose grammar was refused.", counts.refused);
  out.counter("baton:grammar_cache_hits_total", "Grammars that were compiled before.", counts.cache.hits);
  out.counter("baton:grammar_cache_misses_total", "Grammars that had to be compiled.", counts.cache.misses);
  out.gauge("baton:grammar_cache_entries", "Compiled grammars.", counts.cache.n_entries);
  out.gauge("baton:grammar_cache_bytes", "Memory of compiled grammars and of what is known of their tokens.",
            counts.cache.n_bytes);
  out.gauge("baton:grammar_cache_limit_bytes", "The most that this memory should be.", counts.cache_limit_bytes);
}

void add_keys(Families& out, const std::vector<KeyCounts>& keys) {
  for (const KeyCounts& key : keys) {
    const Labels label = {{"key", key.name}};
    out.gauge("baton:key_requests_running", "Unfinished requests by API key.", key.n_running, label);
    out.counter("baton:key_requests_total", "Requests by API key.", key.n_requests, label);
    out.counter("baton:key_prompt_tokens_total", "Prompt tokens by API key.", key.n_prompt_tokens, label);
    out.counter("baton:key_generation_tokens_total", "Tokens generated by API key.", key.n_generated_tokens, label);
    out.counter("baton:key_refusals_total", "Requests refused by a quota of their API key.", key.n_refused, label);
  }
}

/// The process metrics that Prometheus client libraries export.
void add_process(Families& out) {
  double pages_virtual = 0, pages_resident = 0;
  std::ifstream("/proc/self/statm") >> pages_virtual >> pages_resident;
  const auto page_bytes = static_cast<double>(::sysconf(_SC_PAGESIZE));
  out.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", pages_virtual * page_bytes);
  out.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", pages_resident * page_bytes);
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  out.counter("process_cpu_seconds_total", "User and system time in seconds.", seconds(used.ru_utime) + seconds(used.ru_stime));
  std::error_code error;
  double n_open = 0;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end; entry.increment(error))
    ++n_open;
  out.gauge("process_open_fds", "Open file descriptors.", n_open);
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  out.gauge("process_max_fds", "Most file descriptors that may be open.", files.rlim_cur);
}

}  // namespace

/// Requests by route. The registry has its own lock.
class MetricsPage::Http {
 public:
  void observe(std::string_view handler, std::string_view method, int status, double seconds) {
    const prometheus::Labels route = {{"handler", std::string(handler)}, {"method", std::string(method)}};
    prometheus::Labels with_status = route;
    with_status["status"] = fmt::format("{}xx", status / 100);
    requests_.Add(with_status).Increment();
    durations_.Add(route, kBounds).Observe(seconds);
  }
  std::vector<MetricFamily> collect() const { return registry_.Collect(); }

 private:
  static const prometheus::Histogram::BucketBoundaries kBounds;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_ =
      prometheus::BuildCounter().Name("http_requests_total").Help("Requests by route, method and status.").Register(registry_);
  prometheus::Family<prometheus::Histogram>& durations_ = prometheus::BuildHistogram()
                                                              .Name("http_request_duration_seconds")
                                                              .Help("From a request's arrival to its answer's end.")
                                                              .Register(registry_);
};

const prometheus::Histogram::BucketBoundaries MetricsPage::Http::kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                                            2.5,   5,    10,    30,   60,  120,  300, 600};

MetricsPage::MetricsPage(const Engine& engine, std::string model_name)
    : engine_(engine), model_name_(std::move(model_name)), http_(std::make_unique<Http>()) {}
MetricsPage::~MetricsPage() = default;

void MetricsPage::observe_request(std::string_view handler, std::string_view method, int status, double seconds) {
  http_->observe(handler, method, status, seconds);
}

std::string MetricsPage::render(const Counts& counts) const {
  Families engine({{"model_name", model_name_}, {"engine", "0"}});
  const EngineMetrics& metrics = engine_.metrics();
  add_gauges(engine, metrics, engine_.info());
  add_prefixes(engine, counts.prefixes);
  add_keys(engine, counts.keys);
  add_grammars(engine, counts.grammars);
  add_budgets(engine, counts.budgets);
  add_connections(engine, counts.connections);
  engine.gauge("baton:stored_responses", fmt::format("Answers of {} that are stored.", counts.responses_at),
               counts.n_responses);
  engine.gauge("baton:stored_response_bytes", "Their memory.", counts.n_response_bytes);
  add_counters(engine, metrics);
  add_histograms(engine, metrics);
  engine.histogram("baton:grammar_compile_seconds", "How long compiling a grammar took.", counts.grammars.compile_seconds);
  engine.histogram("baton:io_lock_wait_seconds", "Time that the I/O thread waited for a lock.", io_lock_waits_);
  Families process({});
  add_process(process);
  std::vector<MetricFamily> families = engine.take();
  for (auto& more : {http_->collect(), process.take()}) families.insert(families.end(), more.begin(), more.end());
  std::ostringstream page;
  page.exceptions(std::ios::badbit | std::ios::failbit);  // a stream that finds no memory would leave out the rest of the page
  prometheus::TextSerializer().Serialize(page, families);
  return std::move(page).str();
}

}  // namespace baton
