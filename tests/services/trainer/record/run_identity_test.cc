#include "services/trainer/record/run_identity.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RunIdentityTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(folder_).ok());
    ASSERT_TRUE(WriteIdentity(folder_, identity_).ok());
  }

  const std::string folder_ = TempPath("run");
  RunIdentity identity_ = {
      .base_model_path = "models/base",
      .base_digest = "abc",
      .data_digest = "def",
      .settings = {{"run.seed", "7"}, {"lora.alpha", "4"}}};
};

TEST_F(RunIdentityTest, TheSameRunGoesOnAlsoWithABaseThatWasMoved) {
  identity_.base_model_path = "elsewhere";
  EXPECT_TRUE(CheckIdentity(folder_, identity_).ok());
}

// An older version may have recorded settings that may change.
TEST_F(RunIdentityTest, SettingsThatMayChangeMayBeGone) {
  const RunIdentity now = identity_;
  identity_.settings["trainer.steps"] = "20";
  ASSERT_TRUE(WriteIdentity(folder_, identity_).ok());
  EXPECT_TRUE(CheckIdentity(folder_, now).ok()) << CheckIdentity(folder_, now);
}

TEST_F(RunIdentityTest, AnotherRunIsRefusedByAllThatDiffers) {
  identity_.base_digest = "another";
  identity_.data_digest = "another";
  identity_.settings = {{"run.seed", "8"}, {"rollout.top_k", "20"}};
  const absl::Status refused = CheckIdentity(folder_, identity_);
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kConfig) << refused;
  for (const char* difference :
       {"the base model: models/base does not have the content that "
        "\"models/base\" had",
        "the data: data.path holds different problems",
        "run.seed: was 7, is 8",
        "rollout.top_k: was not set, is 20",
        "lora.alpha: was 4, is not set"}) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr(difference));
  }
  identity_.base_digest = "abc";
  EXPECT_THAT(std::string(CheckIdentity(folder_, identity_).message()),
              Not(HasSubstr("the base model")));
}

TEST_F(RunIdentityTest, ATeacherWithOtherContentUnderItsNameIsRefused) {
  identity_.teacher_digests = {{"big", "123"}};
  ASSERT_TRUE(WriteIdentity(folder_, identity_).ok());
  EXPECT_TRUE(CheckIdentity(folder_, identity_).ok());
  const auto rank = [this] {
    return RankIdentity(identity_, "1", false, false);
  };
  const std::string before = rank();
  identity_.teacher_digests["big"] = "456";
  const absl::Status refused = CheckIdentity(folder_, identity_);
  EXPECT_EQ(ExitCodeOf(refused), ExitCode::kConfig) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("the teacher 'big': its model or its adapter does not "
                        "have the content that it had"));
  EXPECT_NE(rank(), before);
}

TEST_F(RunIdentityTest, WhatIsNotKnownIsNotCompared) {
  identity_.base_digest = "another";
  const std::string path = JoinPath(folder_, "identity.json");
  for (const char* damaged : {"{", "[]", R"({"base_digest": "abc"})"}) {
    ASSERT_TRUE(WriteFileAtomically(path, damaged).ok());
    testing::internal::CaptureStderr();
    EXPECT_TRUE(CheckIdentity(folder_, identity_).ok()) << damaged;
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("identity.json is damaged"));
  }
  EXPECT_TRUE(CheckIdentity(TempPath("older"), identity_).ok());
}

RunIdentity Identity() {
  return {.base_model_path = "models/here",
          .base_digest = "base",
          .data_digest = "data",
          .settings = {{"trainer.batch_size", "6"}}};
}

TEST(RankIdentityTest, EveryPartThatRanksShareMakesItAnother) {
  RunIdentity base = Identity();
  base.base_digest = "other";
  RunIdentity data = Identity();
  data.data_digest = "other";
  RunIdentity settings = Identity();
  settings.settings["trainer.batch_size"] = "7";
  const std::set<std::string> identities = {
      RankIdentity(Identity(), "0.1.0-1-gabc", false, false),
      RankIdentity(Identity(), "0.1.0-2-gdef", false, false),
      RankIdentity(Identity(), "0.1.0-1-gabc", true, false),
      RankIdentity(Identity(), "0.1.0-1-gabc", false, true),
      RankIdentity(base, "0.1.0-1-gabc", false, false),
      RankIdentity(data, "0.1.0-1-gabc", false, false),
      RankIdentity(settings, "0.1.0-1-gabc", false, false)};
  EXPECT_EQ(identities.size(), 7U) << "two of them are taken for the same job";
}

TEST(RankIdentityTest, WhereTheModelLiesIsEachMachinesOwn) {
  RunIdentity elsewhere = Identity();
  elsewhere.base_model_path = "/mnt/models";
  EXPECT_EQ(RankIdentity(elsewhere, "0.1.0", false, false),
            RankIdentity(Identity(), "0.1.0", false, false));
}

}  // namespace
}  // namespace dapd
