#include "services/trainer/trainer_service.h"

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(TrainerServiceTest, TheAnswerHoldsTheStateAndTheWorkersOfBothRoles) {
  TrainerStatus status;
  status.Change([](TrainerState& state) {
    state.run_name = "demo";
    state.phase = "scoring";
    state.step = 7;
    state.total_steps = 20;
    state.loss = 0.25;
    state.terms = {{"entangled_rollout", 0.5, 2.0, 0.125}};
  });
  TrainerService service(
      &status,
      [] {
        return std::vector<WorkerState>{
            {"127.0.0.1:1", "ready", 7, 3, "connection reset"}};
      },
      [] {
        return std::vector<WorkerState>{{"127.0.0.1:2", "lost", -1, 0, "gone"}};
      });
  v1::GetStatusResponse response;
  ASSERT_TRUE(service.GetStatus(nullptr, nullptr, &response).ok());
  EXPECT_EQ(response.run_name(), "demo");
  EXPECT_EQ(response.phase(), "scoring");
  EXPECT_EQ(response.step(), 7);
  EXPECT_EQ(response.total_steps(), 20);
  EXPECT_EQ(response.loss(), 0.25);
  ASSERT_EQ(response.terms_size(), 1);
  EXPECT_EQ(response.terms(0).name(), "entangled_rollout");
  EXPECT_EQ(response.terms(0).clipped_fraction(), 0.125);
  ASSERT_EQ(response.workers_size(), 2);
  EXPECT_EQ(response.workers(0).role(), "rollout");
  EXPECT_EQ(response.workers(0).in_flight(), 3U);
  EXPECT_EQ(response.workers(1).role(), "teacher");
  EXPECT_EQ(response.workers(1).state(), "lost");
  EXPECT_EQ(response.workers(1).last_error(), "gone");
}

TEST(TrainerServiceTest, ANewStatusIsStarting) {
  TrainerStatus status;
  TrainerService service(
      &status,
      [] { return std::vector<WorkerState>(); },
      [] { return std::vector<WorkerState>(); });
  v1::GetStatusResponse response;
  ASSERT_TRUE(service.GetStatus(nullptr, nullptr, &response).ok());
  EXPECT_EQ(response.phase(), "starting");
  EXPECT_EQ(response.workers_size(), 0);
}

}  // namespace
}  // namespace dapd
