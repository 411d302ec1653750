#include "services/cli/answer_source.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

TEST(CheckPromptsFitTest, PromptAndAnswerFillTheContextAtMost) {
  const std::vector<AnswerPrompt> prompts = {{.name = "a", .ids = {1, 2, 3}}};
  EXPECT_TRUE(CheckPromptsFit(prompts, 5, 8).ok());
  EXPECT_EQ(ExitCodeOf(CheckPromptsFit(prompts, 6, 8)), ExitCode::kData);
}

TEST(CheckPromptsFitTest, TheLongestAnswerThatCanBeWrittenDoesNotFit) {
  const std::vector<AnswerPrompt> prompts = {{.name = "a", .ids = {1}}};
  const absl::Status status =
      CheckPromptsFit(prompts, std::numeric_limits<int64_t>::max(), 8);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
}

}  // namespace
}  // namespace dapd
