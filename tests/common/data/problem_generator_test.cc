#include "common/data/problem_generator.h"

#include <set>

#include "gtest/gtest.h"

#include "common/data/grade_answer.h"

namespace dapd {
namespace {

TEST(GenerateProblemsTest, EverySolutionEndsInItsAnswer) {
  for (const std::string& task : ProblemTasks()) {
    const auto problems = GenerateProblems(task, ProblemSplit::kTrain, 200, 1);
    ASSERT_TRUE(problems.ok()) << problems.status();
    for (const Problem& problem : *problems) {
      EXPECT_TRUE(GradeAnswer(problem.solution, problem.answer).correct)
          << problem.problem << "\n"
          << problem.solution;
    }
  }
}

TEST(GenerateProblemsTest, TheSplitsShareNothing) {
  for (const std::string& task : ProblemTasks()) {
    const auto trained = GenerateProblems(task, ProblemSplit::kTrain, 300, 1);
    const auto held_out =
        GenerateProblems(task, ProblemSplit::kHeldOut, 100, 2);
    ASSERT_TRUE(trained.ok() && held_out.ok()) << task;
    std::set<std::string> train;
    for (const Problem& p : *trained) {
      EXPECT_TRUE(train.insert(p.problem).second) << "twice: " << p.problem;
    }
    for (const Problem& p : *held_out) {
      EXPECT_FALSE(train.contains(p.problem)) << p.problem;
    }
  }
}

TEST(GenerateProblemsTest, TheSeedDecides) {
  const auto make = [](uint64_t seed) {
    return GenerateProblems("sum", ProblemSplit::kTrain, 5, seed)
        ->front()
        .problem;
  };
  EXPECT_EQ(make(3), make(3));
  EXPECT_NE(make(3), make(4));
}

TEST(GenerateProblemsTest, WhatCannotBeHadIsRefused) {
  EXPECT_FALSE(GenerateProblems("chess", ProblemSplit::kTrain, 5, 1).ok());
  // There are fewer: 12 conversions of 59 amounts, each in three wordings.
  EXPECT_FALSE(
      GenerateProblems("unit_conversion", ProblemSplit::kHeldOut, 2125, 1)
          .ok());
}

}  // namespace
}  // namespace dapd
