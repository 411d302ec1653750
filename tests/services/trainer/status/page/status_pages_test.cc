#include "services/trainer/status/page/status_pages.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"
#include "common/rpc/status_json.h"
#include "services/trainer/status/status_message.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

class StatusPagesTest : public testing::Test {
 protected:
  nlohmann::json Json(const std::string& path) const {
    return nlohmann::json::parse(pages_.at(path).body());
  }

  TrainerStatus status_;
  RunHistory history_;
  RunAnswers answers_;
  const std::map<std::string, HttpPage> pages_ =
      StatusPages(&status_, &history_, &answers_);
};

TEST_F(StatusPagesTest, TheStatusIsTheOneThatTheCommandPrints) {
  status_.Change([](v1::GetStatusResponse& state) {
    state.set_run_name("demo");
    state.set_step(7);
    state.add_terms()->set_name("entangled_rollout");
  });
  nlohmann::json page = Json("/status.json");
  nlohmann::json command = StatusJson(StatusMessage(status_));
  EXPECT_EQ(page["run_name"], "demo");
  // Time passes between the two pages.
  for (const char* key : {"elapsed_seconds", "eta_seconds"}) {
    page.erase(key);
    command.erase(key);
  }
  EXPECT_EQ(page, command);
}

TEST_F(StatusPagesTest, TheHistoryGrowsWithTheRun) {
  EXPECT_EQ(Json("/history.json")["last_step"], 0);
  history_.Add({{"step", 1}, {"loss", 0.5}});
  EXPECT_EQ(Json("/history.json")["last_step"], 1);
}

TEST_F(StatusPagesTest, TheAnswersAreTheNewest) {
  EXPECT_EQ(Json("/answers.json")["step"], 0);
  answers_.ShowStep({.step = 3, .answers = {{.text = "</script> \x1b"}}});
  EXPECT_EQ(Json("/answers.json")["step"], 3);
  EXPECT_EQ(Json("/answers.json")["answers"][0]["text"], "</script> \x1b");
}

TEST_F(StatusPagesTest, ThePageComesWithItsPolicyAndTheDataWithNone) {
  EXPECT_THAT(pages_.at("/").security_policy, HasSubstr("script-src 'sha256-"));
  EXPECT_THAT(pages_.at("/").content_type, HasSubstr("text/html"));
  EXPECT_EQ(pages_.at("/status.json").content_type, "application/json");
  EXPECT_EQ(pages_.at("/status.json").security_policy,
            HttpPage().security_policy);
}

TEST_F(StatusPagesTest, AnErrorTextOfAPeerIsShownEscaped) {
  status_.SetWorkers(
      [] {
        return std::vector<WorkerState>{{.address = "127.0.0.1:1",
                                         .stage = WorkerStage::kLost,
                                         .policy_version = -1,
                                         .in_flight = 0,
                                         .last_error = "broken \xff\n\x1b[2J"}};
      },
      {});
  ASSERT_EQ(Json("/status.json")["workers"].size(), 1U);
  EXPECT_EQ(Json("/status.json")["workers"][0]["last_error"],
            "broken \\xff\\n\\x1b[2J");
}

}  // namespace
}  // namespace dapd
