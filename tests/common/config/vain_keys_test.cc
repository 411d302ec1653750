#include "common/config/vain_keys.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(WarningsOfVainKeysTest, AKeyThatIsGivenInVainIsNamedWithItsOrigin) {
  const std::string path = TempPath("config.yaml");
  ASSERT_TRUE(WriteFileAtomically(path,
                                  "model: {path: some/model}\n"
                                  "objective: {teacher_weights: base}\n")
                  .ok());
  const auto warnings = [&](const std::string& preset) {
    const auto loaded = LoadConfig(path, {"objective.preset=" + preset});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return WarningsOfVainKeys(*loaded);
  };
  const std::string where = "objective.teacher_weights (file:2) ";
  for (const char* preset : {"dapd", "sft", "sdpo"}) {
    EXPECT_THAT(warnings(preset), ElementsAre(StartsWith(where))) << preset;
  }
  EXPECT_THAT(warnings("opsd"), IsEmpty());
  EXPECT_THAT(warnings("dopd"), IsEmpty()) << "divergence is not given";
}

TEST(WarningsOfVainKeysTest, OnTheCpuNoNumberOfGpusIsUsed) {
  const std::string path = TempPath("config.yaml");
  ASSERT_TRUE(WriteFileAtomically(path, "model: {path: some/model}\n").ok());
  const auto warnings = [&](const std::string& device) {
    const auto loaded =
        LoadConfig(path, {"model.device=" + device, "run.gpus=4"});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return WarningsOfVainKeys(*loaded);
  };
  EXPECT_THAT(warnings("cpu"),
              ElementsAre(StartsWith("run.gpus (--set) has no effect")));
  EXPECT_THAT(warnings("cuda"), IsEmpty());
}

TEST(WarningsOfVainKeysTest, GreedyAnswersAreAllTheSame) {
  const std::string path = TempPath("config.yaml");
  ASSERT_TRUE(WriteFileAtomically(path,
                                  "model: {path: some/model}\n"
                                  "evaluation: {samples: 4}\n")
                  .ok());
  const auto greedy = LoadConfig(path, {});
  ASSERT_TRUE(greedy.ok()) << greedy.status();
  EXPECT_THAT(WarningsOfVainKeys(*greedy),
              ElementsAre(StartsWith("evaluation.samples (file:2) has no ")));
  for (const char* other :
       {"evaluation.temperature=1", "evaluation.samples=1"}) {
    EXPECT_THAT(WarningsOfVainKeys(*LoadConfig(path, {other})), IsEmpty());
  }
}

}  // namespace
}  // namespace dapd
