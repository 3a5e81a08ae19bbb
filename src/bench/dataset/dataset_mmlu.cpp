/// MMLU: the questions of subjects, each after the solved questions that all of its subject share.
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/dataset/dataset_kinds.h"
#include "core/one_line.h"
#include "core/parallel.h"
#include "io/file.h"

namespace baton {
namespace {

constexpr std::string_view kLetters = "ABCD";
constexpr std::string_view kTestSuffix = "_test.csv";
constexpr std::int64_t kQuestionsAtATime = 16;

struct CsvRow {
  std::int64_t line = 1;  ///< on which it begins
  std::vector<std::string> fields;
};

/// Rows of fields separated by commas. A field in quotes may contain commas, line feeds and doubled quotes. Errors name
/// the line.
Result<std::vector<CsvRow>> parse_csv(std::string_view text, std::string_view what) {
  std::vector<CsvRow> rows;
  std::int64_t line = 1;
  while (!text.empty()) {
    CsvRow& row = rows.emplace_back();
    row.line = line;
    for (bool is_row_open = true; is_row_open;) {
      std::string& field = row.fields.emplace_back();
      bool is_quoted = false;
      while (true) {
        if (text.empty() && is_quoted)
          return fail(ErrorCode::invalid_data, fmt::format("{}, line {}: a quote is not closed", what, row.line));
        const char c = text.empty() ? '\n' : text.front();
        const bool is_doubled = is_quoted && text.starts_with("\"\"");
        text.remove_prefix(std::min<std::size_t>(is_doubled ? 2 : 1, text.size()));
        if (c == '\n') ++line;
        if (!is_quoted && (c == ',' || c == '\n')) {
          is_row_open = c == ',';
          break;
        }
        if (is_doubled || c != '"') {
          field += c;
        } else {
          is_quoted = !is_quoted;
        }
      }
    }
    if (row.fields.back().ends_with('\r')) row.fields.back().pop_back();
    if (row.fields.size() == 1 && row.fields[0].empty()) rows.pop_back();
  }
  return rows;
}

/// The words around the questions of a subject.
struct MmluPrompt {
  std::string intro;               ///< once, in front of the solved questions
  std::string lead;                ///< in front of each question
  std::string_view cue;            ///< after the choices
  std::string_view before_letter;  ///< between the cue and an answer
};

MmluPrompt prompt_of(const DatasetOptions& options, const std::string& subject) {
  std::string title = subject;
  std::ranges::replace(title, '_', ' ');
  if (options.mmlu_prompt == "hendrycks")
    return {fmt::format("The following are multiple choice questions (with answers) about {}.\n\n", title), "", "Answer:", " "};
  // The answers of the RelayAttention authors' solved questions stand on lines of their own.
  return {"",
          fmt::format("There is a single choice question about {}. Answer the question by replying A, B, C or D.\nQuestion: ",
                      title),
          "Answer: \n", ""};
}

struct MmluQuestion {
  std::string text;  ///< question and choices, and the cue for the answer
  std::size_t right = 0;
};

Result<std::vector<MmluQuestion>> read_questions(const std::filesystem::path& path, std::string_view cue) {
  BATON_TRY(const std::string text, read_file(path));
  BATON_TRY(const std::vector<CsvRow> rows, parse_csv(text, path.string()));
  std::vector<MmluQuestion> questions;
  for (const CsvRow& row : rows) {
    const std::size_t right = row.fields.back().size() == 1 ? kLetters.find(row.fields.back()) : std::string_view::npos;
    if (row.fields.size() != 2 + kLetters.size() || right == std::string_view::npos)
      return fail(ErrorCode::invalid_data,
                  fmt::format("{}, line {}: not a question, four choices and a letter from A to D", path.string(), row.line));
    MmluQuestion& question = questions.emplace_back(MmluQuestion{row.fields[0], right});
    for (std::size_t i = 0; i < kLetters.size(); ++i) question.text += fmt::format("\n{}. {}", kLetters[i], row.fields[1 + i]);
    question.text += fmt::format("\n{}", cue);
  }
  return questions;
}

/// The subjects that are asked for, in alphabetical order: those with a file test/SUBJECT_test.csv.
Result<std::vector<std::string>> choose_subjects(const DatasetOptions& options) {
  const std::filesystem::path folder = std::filesystem::path(options.path) / "test";
  std::error_code error;
  std::vector<std::string> known;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kTestSuffix)) known.push_back(name.substr(0, name.size() - kTestSuffix.size()));
  }
  std::ranges::sort(known);
  if (known.empty())
    return fail(ErrorCode::not_found,
                fmt::format("{}: no files test/SUBJECT_test.csv, as Hendrycks' data.tar has", options.path));
  if (options.subjects.empty()) return known;
  std::vector<std::string> chosen;
  std::string_view rest = options.subjects;
  while (true) {
    const std::string name(rest.substr(0, rest.find(',')));
    if (std::ranges::find(known, name) == known.end())
      return fail(ErrorCode::not_found, fmt::format("--subjects {}: not one of {}", name, fmt::join(known, ", ")));
    if (std::ranges::find(chosen, name) == chosen.end()) chosen.push_back(name);
    if (name.size() == rest.size()) break;
    rest.remove_prefix(name.size() + 1);
  }
  std::ranges::sort(chosen);
  return chosen;
}

/// The text that all questions of a subject stand after.
Result<std::string> shared_text_of(const DatasetOptions& options, const std::string& subject) {
  const MmluPrompt prompt = prompt_of(options, subject);
  if (options.num_shots == 0) return prompt.intro + prompt.lead;
  std::string text = prompt.intro;
  const std::filesystem::path path = std::filesystem::path(options.path) / "dev" / (subject + "_dev.csv");
  BATON_TRY(const std::vector<MmluQuestion> solved, read_questions(path, prompt.cue));
  if (solved.size() < static_cast<std::size_t>(options.num_shots))
    return fail(ErrorCode::invalid_request,
                fmt::format("--num-shots {}: {} has {} questions", options.num_shots, path.string(), solved.size()));
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.num_shots); ++i)
    text += fmt::format("{}{}{}{}\n\n", prompt.lead, solved[i].text, prompt.before_letter, kLetters[solved[i].right]);
  return text + prompt.lead;
}

/// The tokens of the letters as they stand after the cue, with the space if there is one.
Result<std::vector<TokenId>> letter_tokens(const Tokenizer& tokenizer, const MmluPrompt& prompt) {
  const std::vector<TokenId> cue = tokenizer.encode(prompt.cue, false);
  std::vector<TokenId> letters;
  for (const char letter : kLetters) {
    const std::vector<TokenId> ids = tokenizer.encode(fmt::format("{}{}{}", prompt.cue, prompt.before_letter, letter), false);
    if (ids.size() != cue.size() + 1 || !std::equal(cue.begin(), cue.end(), ids.begin()))
      return fail(ErrorCode::unsupported,
                  fmt::format("the tokenizer does not write the answer {} as one token after \"{}\"", letter, prompt.cue));
    letters.push_back(ids.back());
  }
  return letters;
}

std::int32_t common_len(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return static_cast<std::int32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

Result<Workload> mmlu_workload(const DatasetSource& source) {
  const DatasetOptions& options = source.options;
  if (options.path.empty())
    return fail(ErrorCode::invalid_request, "the dataset mmlu needs --dataset-path: the folder with dev/ and test/");
  if (source.context.tokenizer == nullptr) return needs_tokenizer(options);
  if (std::ranges::find(kMmluPrompts, options.mmlu_prompt) == kMmluPrompts.end())
    return fail(ErrorCode::invalid_request,
                fmt::format("--mmlu-prompt {}: not one of {}", options.mmlu_prompt, fmt::join(kMmluPrompts, ", ")));
  const MmluPrompt prompt = prompt_of(options, "");
  const Tokenizer& tokenizer = *source.context.tokenizer;
  BATON_TRY(const std::vector<TokenId> letters, letter_tokens(tokenizer, prompt));
  BATON_TRY(const std::vector<std::string> subjects, choose_subjects(options));

  struct Place {
    std::size_t subject = 0;
    MmluQuestion question;
  };
  std::vector<Place> places;
  std::vector<std::string> shared(subjects.size());
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    BATON_TRY(shared[i], shared_text_of(options, subjects[i]));
    const std::string name = subjects[i] + std::string(kTestSuffix);
    BATON_TRY(auto questions, read_questions(std::filesystem::path(options.path) / "test" / name, prompt.cue));
    for (MmluQuestion& question : questions) places.push_back({i, std::move(question)});
  }
  std::vector<std::size_t> sample = source.tokens.order_of(places.size());
  if (options.num_prompts > 0) sample.resize(std::min(sample.size(), static_cast<std::size_t>(options.num_prompts)));
  std::ranges::sort(sample);  // the questions of a subject one after another again

  Workload workload;
  workload.name = fmt::format("mmlu, {}, {}", counted(options.num_shots, "shot"), counted(std::ssize(subjects), "subject"));
  std::vector<int> n_questions(subjects.size());
  for (const std::size_t index : sample) ++n_questions[places[index].subject];
  std::vector<std::vector<TokenId>> shared_ids;
  for (const std::string& text : shared) shared_ids.push_back(tokenizer.encode(text, true));
  workload.requests.resize(sample.size());
  const Parallel parallel(0);
  parallel.for_ranges(static_cast<std::int64_t>(sample.size()), kQuestionsAtATime, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      const auto& [subject, question] = places[sample[i]];
      WorkloadRequest& request = workload.requests[i];
      request.prompt = tokenizer.encode(shared[subject] + question.text, true);
      if (n_questions[subject] > 1) request.shared_len = common_len(request.prompt, shared_ids[subject]);
      request.subject = subjects[subject];
      request.right_token = letters[question.right];
      request.choices = letters;
    }
  });
  return workload;
}

}  // namespace baton
