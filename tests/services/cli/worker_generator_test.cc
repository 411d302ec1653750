#include "services/cli/worker_generator.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/fakes/small_tokenizer.h"
#include "tests/fakes/temp_path.h"
#include "tests/fakes/tiny_model.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

// The first call frees the model.
TEST(WorkerGeneratorTest, WorkersCanBeAskedForAnswersOnce) {
  const std::string folder = TempPath("model");
  WriteTinyModel(folder, 1);
  WriteSmallTokenizer(folder);
  const absl::Status stop = absl::AbortedError("the test has seen enough");
  const auto generator = WorkerGenerator::Load(
      {.model = folder, .sampling = {.max_new_tokens = 2}},
      {.addresses = "127.0.0.1:1"},
      [&] { return stop; });
  ASSERT_TRUE(generator.ok()) << generator.status();
  const std::vector<AnswerPrompt> prompts = {{"the prompt", {3, 4, 5}}};
  const auto ask = [&] {
    return (*generator)->AnswerAll(prompts, [](size_t, SampledAnswer) {
      return absl::OkStatus();
    });
  };
  EXPECT_EQ(ask(), stop) << "it has come to ask the workers";
  const absl::Status second = ask();
  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr("once"));
}

}  // namespace
}  // namespace dapd
