#include "common/model/spec/gpu_shares.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr double kGiB = 1 << 30;

Gpu WithMemory(double total_gib, double free_gib) {
  return {.name = "NVIDIA L4",
          .uuid = "GPU-1a",
          .major = 8,
          .minor = 9,
          .total_bytes = static_cast<int64_t>(total_gib * kGiB),
          .free_bytes = static_cast<int64_t>(free_gib * kGiB)};
}

// Plans 10 GiB for a trainer, 6 for a rollout worker and 4 for a teacher, some
// of which can shrink.
MemoryPlan Plan() {
  MemoryPlan plan;
  plan.trainer.items = {{"base", 10 * kGiB},
                        {"trained ahead", 100 * kGiB, /*least=*/0.0}};
  plan.rollout.items = {{"base", 6 * kGiB},
                        {"key-value caches", 50 * kGiB, /*least=*/0.0}};
  plan.teacher.items = {{"base", 4 * kGiB}};
  return plan;
}

std::map<std::string, std::vector<std::string>> Dealt(
    const Config& config, const std::vector<std::string>& gpus) {
  std::map<std::string, std::vector<std::string>> dealt;
  for (const LocalProcess& process : DealGpus(config, gpus)) {
    dealt[process.name] = process.gpus;
  }
  return dealt;
}

TEST(GpuSharesTest, WorkersOfFurtherTeachersComeLast) {
  Config config;
  config.objective.preset = "opsd";
  config.objective.teacher_weights.names = {"big"};
  config.teachers = {{.name = "unread"}, {.name = "big", .workers = 2}};
  const std::vector<std::string> gpus = {"0", "1", "2", "3"};
  EXPECT_THAT(Dealt(config, gpus),
              ElementsAre(Pair("rollout-0", ElementsAre("1")),
                          Pair("teacher-big-0", ElementsAre("2")),
                          Pair("teacher-big-1", ElementsAre("3")),
                          Pair("trainer", ElementsAre("0"))));
  MemoryPlan plan = Plan();
  plan.teachers["big"].items = {{"base", 20 * kGiB}};
  const std::vector<LocalProcess> processes = DealGpus(config, gpus);
  EXPECT_EQ(processes.back().PlanOf(plan).Least(), 20 * kGiB);
  EXPECT_THAT(
      std::string(
          CheckShares(
              processes, plan, gpus, std::vector<Gpu>(4, WithMemory(16, 16)))
              .message()),
      HasSubstr("teacher-big-0 20.0"));
}

TEST(GpuSharesTest, RanksAreServedFirstAndWorkersShareWhatIsLeft) {
  Config config;
  config.trainer.ranks = 2;
  config.run.rollout_workers = 1;
  config.run.teacher_workers = 2;
  config.rollout.tensor_parallel = 2;
  EXPECT_THAT(Dealt(config, {"4", "5", "6", "7"}),
              ElementsAre(Pair("rollout-0", ElementsAre("6", "7")),
                          Pair("teacher-0", ElementsAre("4")),
                          Pair("teacher-1", ElementsAre("5")),
                          Pair("trainer", ElementsAre("4")),
                          Pair("trainer-1", ElementsAre("5"))));
  EXPECT_THAT(Dealt(config, {})["trainer"], IsEmpty());
}

std::map<std::string, int64_t> Sharing(const Config& config,
                                       const std::vector<std::string>& gpus) {
  const std::vector<LocalProcess> processes = DealGpus(config, gpus);
  std::map<std::string, int64_t> sharing;
  for (const LocalProcess& process : processes) {
    sharing[process.name] = ProcessesOnGpusOf(process, processes);
  }
  return sharing;
}

// A process with a GPU for itself plans with all of its memory, however many
// processes share another GPU.
TEST(GpuSharesTest, HowManyShareAGpuIsCountedForEachProcess) {
  Config config;  // a trainer, a rollout worker and a teacher
  const auto same = [](int64_t count) {
    return ElementsAre(Pair("rollout-0", count),
                       Pair("teacher-0", count),
                       Pair("trainer", count));
  };
  EXPECT_THAT(Sharing(config, {"0", "1", "2"}), same(1));
  EXPECT_THAT(
      Sharing(config, {"0", "1"}),
      ElementsAre(
          Pair("rollout-0", 1), Pair("teacher-0", 2), Pair("trainer", 2)));
  EXPECT_THAT(Sharing(config, {"0"}), same(3));
  EXPECT_THAT(Sharing(config, {}), same(0));
  // The trainer uses the first of the worker's two GPUs, the teacher the
  // second.
  config.rollout.tensor_parallel = 2;
  EXPECT_THAT(Sharing(config, {"0", "1"}), same(2));
}

TEST(GpuSharesTest, NineProcessesOnEightGpusLeaveSevenAGpuEach) {
  Config config;
  config.trainer.ranks = 4;
  config.run.teacher_workers = 4;
  const std::vector<std::string> gpus = {
      "0", "1", "2", "3", "4", "5", "6", "7"};
  int64_t alone = 0;
  for (const auto& [name, sharing] : Sharing(config, gpus)) {
    if (sharing == 1) ++alone;
    const bool is_shared = name == "trainer" || name == "teacher-3";
    EXPECT_EQ(sharing, is_shared ? 2 : 1) << name;
  }
  EXPECT_EQ(alone, 7);
  // A rank that shares a GPU of 30 GiB has 15 GiB, which is too little beside a
  // teacher's 4 GiB; a rank with its own GPU has enough.
  MemoryPlan plan = Plan();
  plan.trainer.items = {{"base", 14 * kGiB}};
  plan.trainer.holes = 0.05;
  const std::vector<Gpu> small(8, WithMemory(30, 30));
  EXPECT_TRUE(CheckShares(DealGpus(config, gpus), plan, gpus, small).ok());
  plan.trainer.items = {{"base", 20 * kGiB}};
  EXPECT_FALSE(CheckShares(DealGpus(config, gpus), plan, gpus, small).ok());
  config.run.teacher_workers = 3;
  EXPECT_TRUE(CheckShares(DealGpus(config, gpus), plan, gpus, small).ok());
}

TEST(GpuSharesTest, WorkersThatNothingIsAskedOfGetNone) {
  Config config;
  EXPECT_EQ(Dealt(config, {"0", "1"}).count("teacher-0"), 1U);
  config.objective.preset = "sft";  // no target needs a teacher
  EXPECT_EQ(Dealt(config, {"0", "1"}).count("teacher-0"), 0U);
}

TEST(GpuSharesTest, ProcessesThatShareAGpuHaveToFitTogether) {
  const Config config;
  const auto check = [&](const std::vector<std::string>& names,
                         const std::vector<Gpu>& gpus) {
    return CheckShares(DealGpus(config, names), Plan(), names, gpus);
  };
  EXPECT_TRUE(check({"0"}, {WithMemory(24, 20.5)}).ok());
  const absl::Status status = check({"0"}, {WithMemory(19.5, 19.0)});
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("at least 20.0 GiB (trainer 10.0, rollout-0 6.0, "
                              "teacher-0 4.0)"),
                    HasSubstr("NVIDIA L4 (GPU-1a) has 19.5 GiB. ")));
  // With one GPU for each process the same memory is enough.
  const Gpu gpu = WithMemory(12, 11);
  EXPECT_TRUE(check({"0", "1", "2"}, {gpu, gpu, gpu}).ok());
  // If nothing is known about GPUs, nothing is refused.
  EXPECT_TRUE(check({"0"}, {}).ok());
}

TEST(GpuSharesTest, MemoryThatAnotherProcessHoldsIsNoFaultOfTheConfiguration) {
  const Config config;
  const auto check = [&](const std::vector<Gpu>& gpus) {
    std::vector<std::string> names;
    for (size_t i = 0; i < gpus.size(); ++i) names.push_back(std::to_string(i));
    return CheckShares(DealGpus(config, names), Plan(), names, gpus);
  };
  const absl::Status status = check({WithMemory(24, 19.5)});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("at least 20.0 GiB (trainer 10.0, rollout-0 6.0, "
                              "teacher-0 4.0)"),
                    HasSubstr("NVIDIA L4 (GPU-1a) has 24.0 GiB"),
                    HasSubstr("of which 19.5 GiB are free"),
                    HasSubstr("another process holds the rest")));
  // The GPU that is too small decides: waiting does not help.
  EXPECT_EQ(ExitCodeOf(check({WithMemory(24, 1), WithMemory(2, 2)})),
            ExitCode::kConfig);
}

// The trainer of three processes plans with a third, whatever the other
// processes leave.
TEST(GpuSharesTest, WhoDividesAGpusMemoryHasToFitAnEvenPart) {
  const Config config;
  MemoryPlan plan = Plan();
  const auto check = [&](double gib) {
    return CheckShares(
        DealGpus(config, {"0"}), plan, {"0"}, {WithMemory(gib, gib)});
  };
  EXPECT_TRUE(check(24).ok());
  plan.trainer.holes = 0.05;
  const absl::Status status = check(24);
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kConfig);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the trainer needs at least 10.4 GiB"),
                    HasSubstr("which 3 processes share, is 8.0 of 24.0 GiB")));
  EXPECT_FALSE(check(31.5).ok());
  EXPECT_TRUE(check(31.7).ok());
}

// Ranks may not share a GPU, however much memory it has.
TEST(GpuSharesTest, RanksDoNotShareAGpu) {
  const Gpu gpu = WithMemory(1000, 1000);
  const auto check = [&](const Config& config,
                         const std::vector<std::string>& names) {
    return CheckShares(DealGpus(config, names),
                       Plan(),
                       names,
                       std::vector<Gpu>(names.size(), gpu));
  };
  Config config;
  config.trainer.ranks = 2;
  const absl::Status ranks = check(config, {"0"});
  EXPECT_EQ(ExitCodeOf(ranks), ExitCode::kConfig);
  EXPECT_THAT(
      std::string(ranks.message()),
      HasSubstr("trainer.ranks is 2, but the number of GPUs here is 1"));
  EXPECT_TRUE(check(config, {"0", "1"}).ok());

  config.trainer.ranks = 1;
  config.rollout.tensor_parallel = 4;
  const absl::Status worker = check(config, {"0", "1"});
  EXPECT_EQ(ExitCodeOf(worker), ExitCode::kConfig);
  EXPECT_THAT(
      std::string(worker.message()),
      HasSubstr(
          "rollout.tensor_parallel is 4, but the number of GPUs here is 2"));
  EXPECT_TRUE(check(config, {"0", "1", "2", "3"}).ok());
}

// Tests of several ranks do so on a machine with one GPU.
TEST(GpuSharesTest, RanksShareAGpuWhereNcclIsToldSo) {
  Config config;
  config.trainer.ranks = 2;
  config.rollout.tensor_parallel = 2;
  const auto check = [&](double gib) {
    const std::vector<LocalProcess> processes = DealGpus(config, {"0"});
    // Two trainer ranks, two ranks of the worker, and a teacher.
    EXPECT_EQ(ProcessesOnGpusOf(processes.front(), processes), 5);
    return CheckShares(processes, Plan(), {"0"}, {WithMemory(gib, gib)});
  };
  EXPECT_FALSE(check(1000).ok());
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  EXPECT_TRUE(check(1000).ok());
  const MemoryPlan plan = Plan();
  const double needed = (2 * plan.trainer.Least() + 2 * plan.rollout.Least() +
                         plan.teacher.Least()) /
                        kGiB;
  EXPECT_TRUE(check(needed + 0.1).ok());
  EXPECT_FALSE(check(needed - 0.1).ok());
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0", 1);
  EXPECT_FALSE(check(1000).ok());
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

TEST(GpuSharesTest, WithoutWhatIsFreeTheWholeGpuCounts) {
  Gpu gpu = WithMemory(24, 0);
  gpu.free_bytes.reset();
  const Config config;
  EXPECT_TRUE(CheckShares(DealGpus(config, {"0"}), Plan(), {"0"}, {gpu}).ok());
  gpu.total_bytes /= 2;
  EXPECT_THAT(
      std::string(
          CheckShares(DealGpus(config, {"0"}), Plan(), {"0"}, {gpu}).message()),
      HasSubstr("has 12.0 GiB. "));
}

TEST(GpuSharesTest, AMachineWithoutGpusRefusesNothing) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_TRUE(CheckOwnGpu("trainer", Plan().trainer).ok());
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace dapd
