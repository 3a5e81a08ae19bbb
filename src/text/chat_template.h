/// Chat templates: from a conversation to the text a model was trained on.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// A model's chat template, in Jinja as Transformers runs it: trim_blocks, lstrip_blocks, break and continue, {% generation %},
/// tojson without ASCII escapes, raise_exception, strftime_now. Parsed once; render() is const and may run in many threads at
/// once.
///
/// Beyond Transformers: lists and dicts may be changed (append, pop, update...), and there is a filter from_json. Not here:
/// blocks, inheritance, includes, imports, autoescape, translations; integers are 64 bits.
class ChatTemplate {
 public:
  struct Context {
    json::Value messages;
    bool add_generation_prompt = false;
    std::string bos_token, eos_token;
    json::Value tools = nullptr;                ///< null if there are none
    json::Value extra = json::Value::object();  ///< more variables (chat_template_kwargs), which come before those above
    /// What strftime_now shows, in local time; absent: the present.
    std::optional<std::chrono::system_clock::time_point> now = std::nullopt;
  };

  /// Errors name the line: invalid_data for what is not a template, unsupported for what is not done here.
  static Result<ChatTemplate> parse(std::string source);

  /// Errors: invalid_request with the template's own message (raise_exception) or with line and construct; too_large over a
  /// limit of output, memory, work or nesting.
  Result<std::string> render(const Context& context) const;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

 private:
  struct Tree;
  explicit ChatTemplate(std::unique_ptr<const Tree> tree);
  std::unique_ptr<const Tree> tree_;
};

}  // namespace baton
