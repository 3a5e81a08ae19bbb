/// Lines to ids, and ids to lines.
#include "apps/programs.h"

#include <unistd.h>

#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/json_lines.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "load/load_text.h"

namespace baton {
namespace {

/// As JSON, without a json::Value for each id.
std::string list_of_ids(const std::vector<TokenId>& ids) {
  std::string text = "[";
  for (const TokenId id : ids) {
    if (text.size() > 1) text += ',';
    fmt::format_to(std::back_inserter(text), "{}", id);
  }
  return text += ']';
}

Result<std::string> encode_line(const Tokenizer& tokenizer, const json::Value& line, bool add_special_tokens) {
  if (!line.is_string())
    return fail(ErrorCode::invalid_request, fmt::format("the text must be a string, not {}", json::describe_type(line)));
  return list_of_ids(tokenizer.encode(line.get_ref<const std::string&>(), add_special_tokens));
}

Result<std::string> decode_line(const Tokenizer& tokenizer, const json::Value& line, bool skip_special_tokens) {
  BATON_TRY(const auto ids, json::convert<std::vector<TokenId>>(line, "ids"));
  for (const TokenId id : ids)
    if (!tokenizer.contains(id))
      return fail(ErrorCode::invalid_request, fmt::format("the id {} is not a token of this tokenizer, whose largest id is {}",
                                                          id, tokenizer.n_vocab() - 1));
  return json::dump(tokenizer.decode(ids, skip_special_tokens));
}

Result<void> tokenize_lines(const TokenizeOptions& options) {
  BATON_TRY(const Tokenizer tokenizer, load_tokenizer(options.model, download_bar()));
  return convert_json_lines(STDIN_FILENO, options.model.threads, [&](const json::Value& line) {
    return options.decode ? decode_line(tokenizer, line, options.skip_special_tokens)
                          : encode_line(tokenizer, line, !options.no_special_tokens);
  });
}

}  // namespace

int tokenize_main(const TokenizeOptions& options) {
  if (options.decode && options.no_special_tokens) {
    print_note("baton tokenize: --no-special-tokens is about texts; with --decode it is --skip-special-tokens\n");
    return 2;
  }
  if (!options.decode && options.skip_special_tokens) {
    print_note("baton tokenize: --skip-special-tokens needs --decode; for texts it is --no-special-tokens\n");
    return 2;
  }
  return exit_code("baton tokenize", tokenize_lines(options));
}

}  // namespace baton
