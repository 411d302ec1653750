#include "services/trainer/status/page/run_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "services/trainer/status/status_message.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

class RunReportTest : public testing::Test {
 protected:
  // Returns the data in the report of a run with one step and this outcome.
  nlohmann::json Data(const absl::Status& outcome) {
    status_.Change([](v1::GetStatusResponse& state) {
      state.set_run_name("demo");
      state.set_step(1);
      ShowEvaluation("before", {.accuracy = Interval{0.5, 0.4, 0.6}}, &state);
    });
    history_.Add({{"step", 1}, {"loss", 0.5}});
    const std::string folder = TempPath("run");
    EXPECT_TRUE(MakeDirectories(folder).ok());
    LoadedConfig loaded;
    loaded.config.trainer.steps = 77;
    loaded.origins["trainer.steps"] = "--set";
    EXPECT_TRUE(
        WriteReport(folder, loaded, status_, history_, answers_, outcome).ok());
    const std::string html =
        ReadFile(JoinPath(folder, "report.html"), 1 << 20).value();
    const std::string open = "id=\"data\">";
    const size_t from = html.find(open) + open.size();
    return nlohmann::json::parse(
        html.substr(from, html.find("</script>", from) - from));
  }

  TrainerStatus status_;
  RunHistory history_;
  AnswersToShow answers_;
};

TEST_F(RunReportTest, HoldsCurvesEvaluationsAndConfiguration) {
  const nlohmann::json data = Data(absl::OkStatus());
  EXPECT_EQ(data["outcome"], "");
  EXPECT_EQ(data["history"]["series"]["loss"][0], 0.5);
  EXPECT_EQ(data["status"]["evaluations"][0]["accuracy"]["low"], 0.4);
  bool found = false;
  for (const auto& row : data["config"]) {
    if (row["key"] != "trainer.steps") continue;
    found = true;
    EXPECT_EQ(row["value"], "77");
    EXPECT_EQ(row["origin"], "--set");
  }
  EXPECT_TRUE(found);
}

TEST_F(RunReportTest, HoldsAnswersThatCannotEndTheirElement) {
  const std::string evil = "</script><script>alert(1)</script>\x1b$x^2$";
  answers_.step = {.step = 1, .answers = {{.text = evil}}};
  answers_.before = 0;
  answers_.held_out = {{.before = ShownAnswer{.text = evil}}};
  const nlohmann::json data = Data(absl::OkStatus());
  EXPECT_EQ(data["answers"]["answers"][0]["text"], evil);
  EXPECT_EQ(data["answers"]["held_out"]["pairs"][0]["before"]["text"], evil);
}

TEST_F(RunReportTest, SaysHowTheRunEnded) {
  const nlohmann::json failed = Data(absl::DataLossError("not finite"));
  EXPECT_EQ(failed["outcome"], "not finite");
  EXPECT_FALSE(failed["stopped"]);
  EXPECT_TRUE(Data(absl::CancelledError("stopped"))["stopped"]);
}

TEST_F(RunReportTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_FALSE(
      WriteReport("/nowhere/at/all", {}, status_, history_, {}, {}).ok());
}

}  // namespace
}  // namespace dapd
