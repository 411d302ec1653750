#include "common/data/held_out_prompt.h"

#include <string>

#include "gtest/gtest.h"

#include "common/data/text_pipeline.h"
#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

// The template writes "<no thoughts>" if thinking is off.
TEST(HeldOutPromptTest, OnlyTheSamplersOwnPromptIsCut) {
  const std::string folder = TempPath("model");
  WriteSmallTokenizer(folder);
  const std::string problem(500, 'x');
  for (const auto prompt :
       {EvaluationForm::kTraining, EvaluationForm::kPlain}) {
    for (const bool thinking : {false, true}) {
      Config config;
      config.evaluation.prompt = prompt;
      config.evaluation.thinking = thinking;
      config.rollout.max_new_tokens = 20;
      config.data.max_prompt_tokens = 120;
      const TextPipeline text =
          LoadTextPipeline(folder, MakeViewOptions(config), kSmallEndId)
              .value();
      const std::vector<int32_t> ids =
          HeldOutPrompt(config, *text.views, problem).value();
      if (prompt == EvaluationForm::kTraining && !thinking) {
        EXPECT_EQ(ids, text.views->RolloutPrompt(problem).value());
        EXPECT_EQ(ids.size(), 100u);
        continue;
      }
      const std::string whole =
          text.tokenizer->Decode(ids, /*skip_special_tokens=*/false).value();
      EXPECT_NE(whole.find(problem), std::string::npos) << whole;
      EXPECT_EQ(whole.ends_with("<no thoughts>"), !thinking) << whole;
    }
  }
}

}  // namespace
}  // namespace dapd
