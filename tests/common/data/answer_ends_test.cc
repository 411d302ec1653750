#include "common/data/answer_ends.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/data/text_pipeline.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTurns[] =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<end>\n{% endfor %}";

std::vector<std::string> Findings(const std::string& chat_template,
                                  const std::vector<int64_t>& ends) {
  const std::string folder = TempPath("model");
  WriteSmallTokenizer(folder);
  EXPECT_TRUE(WriteFileAtomically(JoinPath(folder, "chat_template.jinja"),
                                  chat_template)
                  .ok());
  const auto tokenizer = Tokenizer::Load(folder).value();
  const auto chat = ChatTemplate::Load(folder).value();
  return AnswerEndFindings(*tokenizer, *chat, ends, "config.json");
}

TEST(AnswerEndsTest, TheTokenBehindAnAnswerMustEndIt) {
  EXPECT_THAT(Findings(kTurns, {3, kSmallEndId}), IsEmpty());
  EXPECT_THAT(Findings(kTurns, {3, 4}),
              ElementsAre(AllOf(HasSubstr("'<end>' (261)"),
                                HasSubstr("eos_token_id 3, 4 in config.json"),
                                HasSubstr("add 261"))));
  EXPECT_THAT(Findings("{% for m in messages %}{{ m.content }}\n{% endfor %}",
                       {kSmallEndId}),
              ElementsAre(HasSubstr("no token behind an answer, only '\\n'")));
}

TEST(AnswerEndsTest, ThoughtsMustNotBeOpenWhereAReferenceBegins) {
  const std::string open = absl::StrCat(
      kTurns, "{% if add_generation_prompt %}<think>\n{% endif %}");
  EXPECT_THAT(Findings(open, {kSmallEndId}),
              ElementsAre(AllOf(HasSubstr("'<think>'"),
                                HasSubstr("inside an open thought"))));
  const std::string closes = absl::StrCat(
      kTurns,
      "{% if add_generation_prompt %}<think>\n"
      "{% if not enable_thinking %}</think>{% endif %}{% endif %}");
  EXPECT_THAT(Findings(closes, {kSmallEndId}), IsEmpty());
}

TEST(AnswerEndsTest, ATemplateThatRefusesIsLeftToItsOwnError) {
  EXPECT_THAT(Findings("{{ raise_exception('no') }}", {1}), IsEmpty());
}

// If the tokenizer names no pad token, its end token is used as the pad token.
TEST(AnswerEndsTest, TheEndIsScoredWithoutAPadToken) {
  const std::string folder = TempPath("model");
  WriteSmallTokenizer(folder);
  const std::string path = JoinPath(folder, "tokenizer_config.json");
  nlohmann::json config =
      nlohmann::json::parse(ReadFile(path, 1 << 20).value());
  const std::vector<int32_t> answer = {72, 73, kSmallEndId};
  for (const auto& [pad, scored] : std::vector<std::pair<const char*, size_t>>{
           {nullptr, 3}, {"<end>", 3}, {"a", 3}}) {
    config["eos_token"] = "<end>";
    config.erase("pad_token");
    if (pad != nullptr) config["pad_token"] = pad;
    ASSERT_TRUE(WriteFileAtomically(path, config.dump()).ok());
    const TextPipeline text = LoadTextPipeline(folder, {}, kSmallEndId).value();
    EXPECT_EQ(text.views->ScoredTokens(answer).size(), scored);
  }
}

}  // namespace
}  // namespace dapd
