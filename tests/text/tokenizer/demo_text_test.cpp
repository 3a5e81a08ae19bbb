/// The demo model's template and tokenizer compared with Transformers: rendered chats, prompt ids, answers.
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "support/source_folder.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace baton {
namespace {

const std::filesystem::path kSource = test::source_folder();

TEST(DemoText, chats_render_and_tokenize_as_in_transformers) {
  const Tokenizer tokenizer = Tokenizer::load(kSource / "models/demo").value();
  const ChatTemplate chat_template = ChatTemplate::parse(tokenizer.chat_templates().at("default")).value();
  const std::string catalogue = read_file(kSource / "models/demo/catalogue.txt").value();
  const json::Value chats = json::parse_file(kSource / "tests/goldens/demo/chats.json").value();
  const std::string golden = read_file(kSource / "tests/goldens/demo/golden.safetensors").value();
  const auto tensors = parse_safetensors(std::as_bytes(std::span(golden)), "golden").value();
  const auto ids_of = [&](const std::string& name) {
    const auto bytes = tensors.find(name)->second.bytes;
    std::vector<TokenId> ids(bytes.size() / sizeof(TokenId));
    std::memcpy(ids.data(), bytes.data(), bytes.size());
    return ids;
  };
  ASSERT_EQ(chats.size(), 9u);
  for (std::size_t i = 0; i < chats.size(); ++i) {
    SCOPED_TRACE(i);
    json::Value messages = json::Value::array();
    if (chats[i]["with_catalogue"].get<bool>()) messages.push_back({{"role", "system"}, {"content", catalogue}});
    for (const auto& message : chats[i]["messages"]) messages.push_back(message);
    ChatTemplate::Context context;
    context.messages = messages;
    context.add_generation_prompt = true;
    context.role_tokens = tokenizer.role_tokens();
    const auto rendered = chat_template.render(context);
    ASSERT_TRUE(rendered) << rendered.error().message;
    EXPECT_EQ(*rendered, chats[i]["rendered"].get<std::string>());
    EXPECT_EQ(tokenizer.encode(*rendered, false), ids_of(std::to_string(i) + ".input_ids"));
    EXPECT_EQ(tokenizer.decode(ids_of(std::to_string(i) + ".greedy_ids"), true), chats[i]["answer"].get<std::string>());
  }
}

}  // namespace
}  // namespace baton
