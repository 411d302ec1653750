#include "services/trainer/workers/teacher_clients.h"

#include <deque>
#include <set>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace dapd {
namespace {

// A pool that has the result of a task once the test gives it. Like a real
// pool, it is never asked without a task.
class HeldTeachers : public TeacherClient {
 public:
  void SetWeights(PolicyUpdates updates) override {
    num_sets_ = updates.size();
  }
  void Submit(ScoreTask task) override {
    MutexLock lock(&mutex_);
    tasks_.insert(task.id);
  }
  absl::StatusOr<std::optional<ScoreResult>> NextWithin(
      absl::Duration) override {
    MutexLock lock(&mutex_);
    if (!error_.ok()) return error_;
    if (tasks_.empty()) return absl::FailedPreconditionError("no task");
    if (results_.empty()) return std::nullopt;
    ScoreResult result;
    result.id = results_.front();
    tasks_.erase(result.id);
    results_.pop_front();
    return result;
  }
  std::vector<WorkerState> Workers() const override {
    return {{.address = address_}};
  }
  void Shutdown() override { is_shut_down_ = true; }
  void SubmitPrefix(ScoreTask partial) override {
    prefixes_.insert(partial.id);
  }
  void WithdrawPrefix(uint64_t id) override { prefixes_.erase(id); }

  void Give(uint64_t id) {
    MutexLock lock(&mutex_);
    results_.push_back(id);
  }

  Mutex mutex_;
  std::set<uint64_t> tasks_ ABSL_GUARDED_BY(mutex_);
  std::deque<uint64_t> results_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::set<uint64_t> prefixes_;
  std::string address_;
  size_t num_sets_ = 100;
  bool is_shut_down_ = false;
};

class TeacherClientsTest : public ::testing::Test {
 protected:
  TeacherClientsTest() {
    auto own = std::make_unique<HeldTeachers>();
    auto big = std::make_unique<HeldTeachers>();
    own_ = own.get();
    big_ = big.get();
    own_->address_ = "own:1";
    big_->address_ = "big:1";
    TeacherClients::ByName further;
    further["big"] = std::move(big);
    clients_ = std::make_unique<TeacherClients>(
        std::move(own), std::move(further), bell_);
  }

  static ScoreTask TaskFor(uint64_t id, const std::string& teacher) {
    ScoreTask task;
    task.id = id;
    task.teacher = teacher;
    return task;
  }

  const std::shared_ptr<ResultBell> bell_ = std::make_shared<ResultBell>();
  HeldTeachers* own_ = nullptr;
  HeldTeachers* big_ = nullptr;
  std::unique_ptr<TeacherClients> clients_;
};

TEST_F(TeacherClientsTest, EachTaskGoesToTheTeacherThatItNames) {
  clients_->Submit(TaskFor(1, ""));
  clients_->Submit(TaskFor(2, "big"));
  clients_->Submit(TaskFor(3, "big"));
  EXPECT_EQ(own_->tasks_, std::set<uint64_t>({1}));
  EXPECT_EQ(big_->tasks_, std::set<uint64_t>({2, 3}));
  big_->Give(3);
  own_->Give(1);
  big_->Give(2);
  std::set<uint64_t> ids;
  for (int n = 0; n < 3; ++n) ids.insert(clients_->Next()->id);
  EXPECT_EQ(ids, std::set<uint64_t>({1, 2, 3}));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      clients_->NextWithin(absl::ZeroDuration()).status()));
}

TEST_F(TeacherClientsTest, ALateResultEndsTheWait) {
  clients_->Submit(TaskFor(1, ""));
  clients_->Submit(TaskFor(2, "big"));
  EXPECT_FALSE(clients_->NextWithin(absl::Milliseconds(1))->has_value());
  std::jthread worker([&] {
    absl::SleepFor(absl::Milliseconds(5));
    big_->Give(2);
    bell_->Ring();
  });
  const auto result = clients_->Next();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->id, 2U);
}

TEST_F(TeacherClientsTest, APoolWithoutATaskIsNotAsked) {
  {
    MutexLock lock(&own_->mutex_);
    own_->error_ = absl::UnavailableError("no own teacher is left");
  }
  clients_->Submit(TaskFor(1, "big"));
  big_->Give(1);
  EXPECT_TRUE(clients_->Next().ok());
  clients_->Submit(TaskFor(2, ""));
  EXPECT_TRUE(absl::IsUnavailable(clients_->Next().status()));
}

TEST_F(TeacherClientsTest, WeightsAreForTheOwnTeachersOnly) {
  clients_->SetWeights({});
  EXPECT_EQ(own_->num_sets_, 0U);
  EXPECT_EQ(big_->num_sets_, 100U);
}

TEST_F(TeacherClientsTest, WorkersAreNamedByTheirTeacher) {
  const std::vector<WorkerState> workers = clients_->Workers();
  ASSERT_EQ(workers.size(), 2U);
  EXPECT_EQ(workers[0].address, "own:1");
  EXPECT_EQ(workers[0].teacher, "");
  EXPECT_EQ(workers[1].address, "big:1");
  EXPECT_EQ(workers[1].teacher, "big");
}

TEST_F(TeacherClientsTest, PrefixesGoToTheTeacherOfTheirTask) {
  clients_->SubmitPrefix(TaskFor(1, ""));
  clients_->SubmitPrefix(TaskFor(2, "big"));
  EXPECT_EQ(own_->prefixes_, std::set<uint64_t>({1}));
  EXPECT_EQ(big_->prefixes_, std::set<uint64_t>({2}));
  clients_->WithdrawPrefix(2);
  EXPECT_EQ(own_->prefixes_, std::set<uint64_t>({1}));
  EXPECT_TRUE(big_->prefixes_.empty());
}

TEST_F(TeacherClientsTest, AllPoolsEndTogether) {
  clients_->Shutdown();
  EXPECT_TRUE(own_->is_shut_down_);
  EXPECT_TRUE(big_->is_shut_down_);
}

}  // namespace
}  // namespace dapd
