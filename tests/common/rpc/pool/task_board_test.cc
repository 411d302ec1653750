#include "common/rpc/pool/task_board.h"

#include <string>

#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

struct NumberedTask {
  uint64_t id = 0;
};
using Tasks = TaskBoard<NumberedTask, std::string>;

const absl::Time kLater = absl::FromUnixSeconds(100);

TEST(TaskBoardTest, TasksAreTakenInTheOrderTheyWereAdded) {
  Tasks board(3);
  for (uint64_t id : {5, 2, 9}) board.Add({id});
  for (uint64_t id : {5, 2, 9}) EXPECT_EQ(board.Take(0)->id, id);
  EXPECT_FALSE(board.has_pending());
  EXPECT_EQ(board.InFlight(0), 3);
}

TEST(TaskBoardTest, ReturnedTasksComeFirstInTheOrderOfTheirIds) {
  Tasks board(3);
  for (uint64_t id : {1, 2, 3, 4}) board.Add({id});
  for (int i = 0; i < 3; ++i) board.Take(0);
  EXPECT_EQ(board.ReturnAll(0, absl::UnavailableError("gone")), 3);
  EXPECT_EQ(board.InFlight(0), 0);
  for (uint64_t id : {1, 2, 3, 4}) EXPECT_EQ(board.Take(1)->id, id);
}

TEST(TaskBoardTest, OnlyTheFirstAnswerToATaskCounts) {
  Tasks board(3);
  board.Add({7});
  board.Take(0);
  board.ReturnAll(0, absl::UnavailableError("gone"));
  board.Take(1);
  EXPECT_TRUE(board.Answer(7, std::string("late, from the first worker")));
  EXPECT_FALSE(board.Answer(7, std::string("from the second")));
  EXPECT_EQ(*board.PopAnswer(), "late, from the first worker");
  EXPECT_FALSE(board.has_answer());
  EXPECT_EQ(board.outstanding(), 0U);
}

TEST(TaskBoardTest, WhatAWorkerHasIsKnownWhateverBecomesOfIt) {
  Tasks board(3);
  const auto at = [](int64_t second) { return absl::FromUnixSeconds(second); };
  for (uint64_t id : {1, 2, 3, 4}) board.Add({id});
  for (int64_t i = 0; i < 4; ++i) board.Take(0, at(i));
  EXPECT_EQ(board.TakeStraggler(1, at(4), at(4))->id, 1U);
  EXPECT_EQ(board.TakeStraggler(1, at(4), at(4))->id, 2U);
  EXPECT_EQ(board.InFlight(0), 4);
  EXPECT_EQ(board.InFlight(1), 2);
  // After an answer neither worker has the task any more.
  EXPECT_TRUE(board.Answer(1, std::string("one")));
  EXPECT_EQ(board.InFlight(0), 3);
  EXPECT_EQ(board.InFlight(1), 1);
  // If one of a task's two workers is lost, a third worker may take the task as
  // a straggler.
  EXPECT_EQ(board.ReturnAll(0, absl::UnavailableError("gone")), 3);
  EXPECT_EQ(board.InFlight(0), 0);
  EXPECT_EQ(board.pending(), 2);
  EXPECT_EQ(board.TakeStraggler(2, at(6), at(5))->id, 2U);
  EXPECT_EQ(board.TakeStraggler(3, at(6), at(5)), nullptr);
  board.Recall(1);
  board.Recall(2);
  EXPECT_EQ(board.InFlight(1), 0);
  EXPECT_EQ(board.InFlight(2), 0);
  EXPECT_EQ(board.pending(), 3);
  EXPECT_EQ(board.TakeStraggler(3, at(9), at(8)), nullptr);
}

TEST(TaskBoardTest, AStragglerIsTheTaskThatOneOtherWorkerHasHadForLongest) {
  Tasks board(3);
  for (uint64_t id : {1, 2, 3}) board.Add({id});
  const auto at = [](int64_t second) { return absl::FromUnixSeconds(second); };
  board.Take(0, at(2));
  board.Take(0, at(1));
  board.Take(1, at(0));
  EXPECT_EQ(board.TakeStraggler(1, at(9), at(1)), nullptr);
  EXPECT_EQ(board.TakeStraggler(1, at(9), at(5))->id, 2U);
  EXPECT_EQ(board.InFlight(0), 2);
  EXPECT_EQ(board.InFlight(1), 2);
  EXPECT_EQ(board.TakeStraggler(2, at(9), at(1))->id, 3U)
      << "a task has at most two workers";
}

TEST(TaskBoardTest, ATaskThatASecondWorkerHasIsNotPendingWhenTheFirstIsLost) {
  Tasks board(3);
  board.Add({7});
  board.Take(0, absl::UnixEpoch());
  ASSERT_NE(board.TakeStraggler(1, kLater, kLater), nullptr);
  EXPECT_TRUE(board.Return(0, 7, absl::UnavailableError("gone")));
  EXPECT_FALSE(board.has_pending());
  EXPECT_EQ(board.Age(1, 7, kLater + absl::Seconds(3)), absl::Seconds(3));
  EXPECT_TRUE(board.Return(1, 7, absl::UnavailableError("gone, too")));
  EXPECT_TRUE(board.has_pending());
}

TEST(TaskBoardTest, AnAnswerToAReturnedTaskTakesItOffTheList) {
  Tasks board(3);
  board.Add({7});
  board.Add({8});
  board.Take(0);
  board.ReturnAll(0, absl::UnavailableError("gone"));
  EXPECT_TRUE(board.Answer(7, std::string("late")));
  EXPECT_EQ(board.Take(1)->id, 8U);
  EXPECT_FALSE(board.has_pending());
}

TEST(TaskBoardTest, ATaskThatWasReturnedTooOftenFailsWithTheLastReason) {
  Tasks board(2);
  board.Add({7});
  board.Take(0);
  EXPECT_TRUE(board.Return(0, 7, absl::UnavailableError("first")));
  EXPECT_FALSE(board.has_answer());
  board.Take(0);
  EXPECT_TRUE(board.Return(0, 7, absl::AbortedError("second")));
  EXPECT_FALSE(board.has_pending());
  const auto answer = board.PopAnswer();
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kAborted);
  EXPECT_NE(answer.status().message().find("task 7 was given up after 2"),
            absl::string_view::npos);
}

TEST(TaskBoardTest, HowTheLastWorkerEndedIsNoCodeOfOurs) {
  for (int code = 1; code <= 16; ++code) {
    Tasks board(1);
    board.Add({7});
    board.Take(0);
    board.ReturnAll(0, {static_cast<absl::StatusCode>(code), "theirs"});
    const absl::Status status = board.PopAnswer().status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kInternal) << status;
    EXPECT_TRUE(IsTaskFailure(status)) << status;
    EXPECT_FALSE(absl::IsCancelled(status)) << status;
  }
}

TEST(TaskBoardTest, RecalledTasksCountNoAttempt) {
  Tasks board(2);
  board.Add({7});
  for (int i = 0; i < 5; ++i) {
    board.Take(0);
    board.Recall(0);
    EXPECT_TRUE(board.has_pending());
  }
  EXPECT_FALSE(board.has_answer());
}

TEST(TaskBoardTest, AWorkerCannotReturnWhatAnotherHas) {
  Tasks board(2);
  board.Add({7});
  board.Take(0);
  EXPECT_FALSE(board.Return(1, 7, absl::UnavailableError("not mine")));
  EXPECT_EQ(board.InFlight(0), 1);
}

TEST(TaskBoardTest, WhoRefusedATaskIsKnownAndNotGivenItAsAStraggler) {
  const auto refusal = absl::DataLossError("no number");
  Tasks board(9);
  board.Add({7});
  EXPECT_FALSE(board.Refuse(0, 7, refusal)) << "it does not have it";
  EXPECT_FALSE(board.HasRefused(0, 7));
  board.Take(0);
  EXPECT_TRUE(board.Refuse(0, 7, refusal));
  EXPECT_TRUE(board.HasRefused(0, 7));
  EXPECT_FALSE(board.HasRefused(1, 7));
  const absl::Time taken = absl::FromUnixSeconds(1);
  board.Take(1, taken);
  EXPECT_EQ(board.TakeStraggler(0, kLater, kLater), nullptr);
  EXPECT_NE(board.TakeStraggler(2, kLater, kLater), nullptr);
}

}  // namespace
}  // namespace dapd
