#include "services/cli/status_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

v1::GetStatusResponse MakeStatus() {
  v1::GetStatusResponse status;
  status.set_run_name("demo");
  status.set_run_folder("runs/demo");
  status.set_phase("scoring");
  status.set_step(7);
  status.set_total_steps(20);
  status.set_adapter_digest("0123456789abcdef");
  status.set_seconds_per_step(2.5);
  status.set_eta_seconds(90);
  status.set_loss(0.125);
  v1::TermStatus& term = *status.add_terms();
  term.set_name("entangled_rollout");
  term.set_value(0.5);
  term.set_clipped_fraction(0.25);
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_role("rollout");
  worker.set_address("127.0.0.1:7001");
  worker.set_state("lost");
  worker.set_policy_version(-1);
  worker.set_last_error("connection refused");
  return status;
}

TEST(StatusTextTest, TheScreenShowsProgressTermsAndWorkers) {
  const std::string text = StatusText(MakeStatus());
  for (const char* part : {"demo (runs/demo)",
                           "scoring",
                           "step      7 of 20, 2.5s a step, 1m30s left",
                           "digest 0123456789ab,",
                           "loss      0.125",
                           "entangled_rollout",
                           "clipped 25.0%",
                           "127.0.0.1:7001",
                           "no policy",
                           "connection refused"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(StatusTextTest, JsonHasNumbersAndTheProtosNames) {
  const nlohmann::ordered_json json = StatusJson(MakeStatus());
  EXPECT_EQ(json["step"], 7);
  EXPECT_TRUE(json["step"].is_number_integer());
  EXPECT_EQ(json["loss"], 0.125);
  EXPECT_EQ(json["terms"][0]["clipped_fraction"], 0.25);
  EXPECT_EQ(json["workers"][0]["policy_version"], -1);
}

TEST(StatusTextTest, AnEmptyStatusHasEmptyLists) {
  const nlohmann::ordered_json json = StatusJson({});
  EXPECT_TRUE(json["terms"].is_array());
  EXPECT_TRUE(json["workers"].empty());
  EXPECT_THAT(StatusText({}), HasSubstr("(none)"));
}

}  // namespace
}  // namespace dapd
