#include "services/trainer/status/trainer_service.h"

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
    state.phase_done = 3;
    state.phase_total = 8;
    state.evaluations = {
        {"before",
         {.problems = 100,
          .accuracy = {0.5, 0.4, 0.6},
          .divergences = {{"entangled_rollout", {0.1, 0.05, 0.15}}}}}};
  });
  status.SetWorkers(
      [] {
        return std::vector<WorkerState>{
            {.address = "127.0.0.1:1",
             .state = "ready",
             .policy_version = 7,
             .weights = {{WeightSet::kSnapshot, 4}, {WeightSet::kEma, 7}},
             .in_flight = 3}};
      },
      [] {
        return std::vector<WorkerState>{
            {.address = "127.0.0.1:2", .state = "lost", .last_error = "gone"}};
      });
  TrainerService service(&status);
  v1::GetStatusResponse response;
  ASSERT_TRUE(service.GetStatus(nullptr, nullptr, &response).ok());
  EXPECT_EQ(response.run_name(), "demo");
  EXPECT_EQ(response.phase(), "scoring");
  EXPECT_EQ(response.step(), 7);
  EXPECT_EQ(response.total_steps(), 20);
  EXPECT_EQ(response.loss(), 0.25);
  EXPECT_EQ(response.phase_done(), 3);
  EXPECT_EQ(response.phase_total(), 8);
  ASSERT_EQ(response.evaluations_size(), 1);
  EXPECT_EQ(response.evaluations(0).when(), "before");
  EXPECT_EQ(response.evaluations(0).problems(), 100);
  EXPECT_EQ(response.evaluations(0).accuracy().low(), 0.4);
  EXPECT_EQ(response.evaluations(0).divergences(0).unclipped().high(), 0.15);
  ASSERT_EQ(response.terms_size(), 1);
  EXPECT_EQ(response.terms(0).name(), "entangled_rollout");
  EXPECT_EQ(response.terms(0).clipped_fraction(), 0.125);
  ASSERT_EQ(response.workers_size(), 2);
  EXPECT_EQ(response.workers(0).role(), "rollout");
  EXPECT_EQ(response.workers(0).in_flight(), 3U);
  ASSERT_EQ(response.workers(0).weights_size(), 2);
  EXPECT_EQ(response.workers(0).weights(0).set(), "snapshot");
  EXPECT_EQ(response.workers(0).weights(1).version(), 7);
  EXPECT_EQ(response.workers(1).role(), "teacher");
  EXPECT_EQ(response.workers(1).state(), "lost");
  EXPECT_EQ(response.workers(1).last_error(), "gone");
}

TEST(TrainerServiceTest, ANewStatusIsStarting) {
  TrainerStatus status;
  TrainerService service(&status);
  v1::GetStatusResponse response;
  ASSERT_TRUE(service.GetStatus(nullptr, nullptr, &response).ok());
  EXPECT_EQ(response.phase(), "starting");
  EXPECT_EQ(response.workers_size(), 0);
}

TEST(TrainerServiceTest, TheTimeLeftShrinksBetweenStepsAndNeverGoesBelowZero) {
  TrainerStatus status;
  status.Change([](TrainerState& state) {
    state.step = 1;
    state.eta_seconds = 1000.0;
  });
  const double first = status.Get().eta_seconds;
  EXPECT_LT(first, 1000.0);
  EXPECT_GT(first, 900.0);
  EXPECT_LT(status.Get().eta_seconds, first);
  EXPECT_GT(status.Get().elapsed_seconds, 0.0);
  status.Change([](TrainerState& state) { state.eta_seconds = 0.0; });
  EXPECT_EQ(status.Get().eta_seconds, 0.0);
}

TEST(TrainerServiceTest, WorkersAreNotAskedForOnceTheyAreGone) {
  TrainerStatus status;
  int asked = 0;
  status.SetWorkers(
      [&] {
        ++asked;
        return std::vector<WorkerState>();
      },
      {});
  status.GetWorkers();
  status.SetWorkers({}, {});
  status.GetWorkers();
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace dapd
