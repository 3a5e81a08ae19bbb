/// baton._engine: the Python module. Everything that people call is Python above it (baton/llm.py).
#include <chrono>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "cli/arguments.h"
#include "core/log.h"
#include "local_model.h"

namespace nb = nanobind;
using namespace baton;
using python::LocalModel;
using python::LocalModelError;
using python::News;
using python::Question;

namespace {

/// The exception of baton.errors for an error.
const char* exception_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_request:
    case ErrorCode::too_large: return "InvalidRequestError";
    case ErrorCode::not_found: return "NotFoundError";
    case ErrorCode::unavailable: return "UnavailableError";
    case ErrorCode::unsupported: return "UnsupportedError";
    case ErrorCode::invalid_data: return "InvalidDataError";
    case ErrorCode::out_of_memory: return "OutOfMemoryError";
    case ErrorCode::io: return "IoError";
    case ErrorCode::internal: return "BatonError";
  }
  return "BatonError";
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const LocalModelError& failure) {
    const nb::object type = nb::module_::import_("baton.errors").attr(exception_of(failure.error().code));
    const nb::object made = type(in_words_of_a_call(failure.error().message), failure.error().param);
    PyErr_SetObject(type.ptr(), made.ptr());
  }
}

/// A list of the options as a member that Python sets as a whole.
template <class T>
auto set_list(SharedList<T> SamplingParams::*member) {
  return [member](Question& question, std::vector<T> list) { question.sampling.*member = std::move(list); };
}
template <class T>
auto sampling_value(T SamplingParams::*member) {
  return [member](Question& question, T value) { question.sampling.*member = std::move(value); };
}

void bind_arguments(nb::module_& module) {
  nb::class_<EngineArguments>(module, "EngineArguments");
  module.def(
      "parse_arguments",
      [](const std::string& model, const std::vector<std::pair<std::string, std::string>>& pairs) {
        std::vector<Argument> arguments;
        for (const auto& [name, value] : pairs) arguments.push_back({name, value});
        auto parsed = parse_arguments(model, arguments);
        if (parsed) return std::move(*parsed);
        if (parsed.error().code == ErrorCode::not_found) throw nb::type_error(parsed.error().message.c_str());
        throw LocalModelError(std::move(parsed.error()));
      },
      nb::arg("model"), nb::arg("arguments"));
  nb::class_<ArgumentRow>(module, "ArgumentRow")
      .def_ro("name", &ArgumentRow::name)
      .def_ro("effect", &ArgumentRow::effect)
      .def_ro("values", &ArgumentRow::values)
      .def_ro("reason", &ArgumentRow::reason);
  module.def("argument_rows", &argument_rows);
}

void bind_questions(nb::module_& module) {
  nb::class_<Question>(module, "Question")
      .def(nb::init<>())
      .def_rw("n", &Question::n)
      .def_rw("stop", &Question::stop)
      .def_rw("bad_words", &Question::bad_words)
      .def_rw("include_stop", &Question::include_stop)
      .def_rw("skip_special_tokens", &Question::skip_special_tokens)
      .def_rw("detokenize", &Question::detokenize)
      .def_rw("cache_salt", &Question::cache_salt)
      .def_rw("priority", &Question::priority)
      .def("set_temperature", sampling_value(&SamplingParams::temperature))
      .def("set_top_k", sampling_value(&SamplingParams::top_k))
      .def("set_top_p", sampling_value(&SamplingParams::top_p))
      .def("set_min_p", sampling_value(&SamplingParams::min_p))
      .def("set_repetition_penalty", sampling_value(&SamplingParams::repetition_penalty))
      .def("set_presence_penalty", sampling_value(&SamplingParams::presence_penalty))
      .def("set_frequency_penalty", sampling_value(&SamplingParams::frequency_penalty))
      .def("set_seed", sampling_value(&SamplingParams::seed))
      .def("set_logprobs", sampling_value(&SamplingParams::n_top_logprobs))
      .def("set_prompt_logprobs", sampling_value(&SamplingParams::n_prompt_logprobs))
      .def("set_max_tokens", sampling_value(&SamplingParams::max_tokens))
      .def("set_min_tokens", sampling_value(&SamplingParams::min_tokens))
      .def("set_ignore_eos", sampling_value(&SamplingParams::ignore_eos))
      .def("set_allowed_ids", set_list(&SamplingParams::allowed_ids))
      .def("set_stop_ids", set_list(&SamplingParams::stop_ids))
      .def("set_logit_bias", [](Question& question, const std::vector<std::pair<TokenId, float>>& biases) {
        std::vector<TokenBias> list;
        for (const auto& [id, bias] : biases) list.push_back({id, bias});
        question.sampling.logit_bias = std::move(list);
      });
}

void bind_news(nb::module_& module) {
  nb::class_<TokenLogprob>(module, "TokenLogprob")
      .def_ro("token", &TokenLogprob::token)
      .def_ro("logprob", &TokenLogprob::logprob);
  nb::class_<TokenOutput>(module, "TokenOutput")
      .def_ro("token", &TokenOutput::token)
      .def_ro("logprob", &TokenOutput::logprob)
      .def_ro("top_logprobs", &TokenOutput::top_logprobs)
      .def_ro("rank", &TokenOutput::rank);
  nb::class_<SequenceStats>(module, "SequenceStats")
      .def_ro("prompt_tokens", &SequenceStats::prompt_tokens)
      .def_ro("cached_tokens", &SequenceStats::cached_tokens)
      .def_ro("completion_tokens", &SequenceStats::completion_tokens)
      .def_ro("replayed_tokens", &SequenceStats::replayed_tokens)
      .def_ro("relayed_tokens", &SequenceStats::relayed_tokens)
      .def_ro("kv_bytes_requested", &SequenceStats::kv_bytes_requested)
      .def_ro("kv_bytes_saved", &SequenceStats::kv_bytes_saved)
      .def_ro("largest_group", &SequenceStats::largest_group)
      .def_ro("queue_ms", &SequenceStats::queue_ms)
      .def_ro("prefill_ms", &SequenceStats::prefill_ms)
      .def_ro("n_preemptions", &SequenceStats::n_preemptions)
      .def_ro("draft_tokens", &SequenceStats::draft_tokens)
      .def_ro("accepted_tokens", &SequenceStats::accepted_tokens);
  nb::class_<News>(module, "News")
      .def_ro("request", &News::request)
      .def_ro("index", &News::index)
      .def_ro("text", &News::text)
      .def_ro("tokens", &News::tokens)
      .def_ro("finish_reason", &News::finish_reason)
      .def_ro("stop", &News::stop)
      .def_ro("stop_token", &News::stop_token)
      .def_ro("stats", &News::stats)
      .def_ro("prompt_scores", &News::prompt_scores)
      .def_prop_ro("error", [](const News& news) { return news.error ? news.error->message : std::string(); })
      .def_prop_ro("error_type", [](const News& news) { return news.error ? exception_of(news.error->code) : ""; });
}

void bind_model(nb::module_& module) {
  nb::class_<PinInfo>(module, "PinInfo")
      .def_prop_ro("id", [](const PinInfo& pin) { return pin.id.value; })
      .def_ro("n_tokens", &PinInfo::n_tokens)
      .def_ro("n_pinned_tokens", &PinInfo::n_pinned_tokens)
      .def_ro("prefill_ms", &PinInfo::prefill_ms);
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<LocalModel>(module, "LocalModel")
      .def(nb::init<const EngineArguments&, const std::string&>(), nb::arg("arguments"), nb::arg("program"), unlocked)
      .def("constrain", &LocalModel::constrain, nb::arg("question"), nb::arg("structured_outputs"), unlocked)
      .def("submit", &LocalModel::submit, nb::arg("prompt"), nb::arg("question"), unlocked)
      .def("cancel", &LocalModel::cancel, nb::arg("request"), unlocked)
      .def(
          "wait", [](LocalModel& model, int timeout_ms) { return model.wait(std::chrono::milliseconds(timeout_ms)); },
          nb::arg("timeout_ms"), unlocked)
      .def("encode", &LocalModel::encode, nb::arg("text"), nb::arg("add_special_tokens"), unlocked)
      .def("decode", &LocalModel::decode, nb::arg("ids"), nb::arg("skip_special_tokens"), unlocked)
      .def("render", &LocalModel::render, nb::arg("messages"), nb::arg("tools"), nb::arg("variables"),
           nb::arg("template_source"), nb::arg("add_generation_prompt"), nb::arg("continues_last"), unlocked)
      .def("pin", &LocalModel::pin, nb::arg("tokens"), unlocked)
      .def("unpin", &LocalModel::unpin, nb::arg("id"), unlocked)
      .def_prop_ro("name", &LocalModel::name)
      .def_prop_ro("n_vocab", &LocalModel::n_vocab)
      .def_prop_ro("n_tokens", [](const LocalModel& model) { return model.tokenizer().n_vocab(); })
      .def_prop_ro("bos_token_id", [](const LocalModel& model) { return model.tokenizer().bos(); })
      .def_prop_ro("eos_token_id", [](const LocalModel& model) { return model.tokenizer().eos(); })
      .def_prop_ro("role_tokens",
                   [](const LocalModel& model) {
                     const auto& tokens = model.tokenizer().role_tokens();
                     return std::vector<std::pair<std::string, std::string>>(tokens.begin(), tokens.end());
                   })
      .def("token_text", [](const LocalModel& model, TokenId id) { return std::string(model.tokenizer().token_text(id)); })
      .def("id_of", [](const LocalModel& model, const std::string& token) { return model.tokenizer().id_of(token); })
      .def("is_special", [](const LocalModel& model, TokenId id) { return model.tokenizer().is_special(id); })
      .def_prop_ro("max_model_len", [](const LocalModel& model) { return model.info().max_model_len; })
      .def_prop_ro("device", [](const LocalModel& model) { return model.info().backend.device; })
      .def_prop_ro("default_temperature", [](const LocalModel& model) { return model.defaults().temperature; })
      .def_prop_ro("default_top_p", [](const LocalModel& model) { return model.defaults().top_p; })
      .def_prop_ro("default_top_k", [](const LocalModel& model) { return model.defaults().top_k; })
      .def_prop_ro("default_min_p", [](const LocalModel& model) { return model.defaults().min_p; })
      .def_prop_ro("default_repetition_penalty", [](const LocalModel& model) { return model.defaults().repetition_penalty; })
      .def_prop_ro("default_max_tokens", [](const LocalModel& model) { return model.defaults().max_tokens; })
      .def("kv_bytes", &LocalModel::kv_bytes);
}

}  // namespace

NB_MODULE(_engine, module) {
  nb::register_exception_translator(translate);
  bind_arguments(module);
  bind_questions(module);
  bind_news(module);
  bind_model(module);
  module.def("set_log_level", [](const std::string& level) {
    const Result<log::Level> known = log::level_from_name(level);
    if (!known) throw LocalModelError(known.error());
    log::set_level(*known);
  });
}
