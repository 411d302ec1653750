#include "common/data/problem_generator.h"

#include <functional>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/progress.h"
#include "common/base/sha256.h"

namespace dapd {
namespace {

// One of this many problems is held out.
constexpr int kHeldOutShare = 5;
constexpr int64_t kMaxAttemptsPerProblem = 200;

// Distributions of the standard library differ between implementations; the
// generator does not.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() %
                                      static_cast<uint64_t>(high - low + 1));
  }
  template <typename T>
  const T& Pick(const std::vector<T>& items) {
    return items[static_cast<size_t>(
        Between(0, static_cast<int64_t>(items.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

struct Conversion {
  const char* from;
  const char* to;
  int64_t factor;
};

const std::vector<Conversion>& Conversions() {
  static const auto& table = *new std::vector<Conversion>{
      {"kilometers", "meters", 1000},
      {"meters", "centimeters", 100},
      {"centimeters", "millimeters", 10},
      {"hours", "minutes", 60},
      {"minutes", "seconds", 60},
      {"days", "hours", 24},
      {"weeks", "days", 7},
      {"kilograms", "grams", 1000},
      {"liters", "milliliters", 1000},
      {"dollars", "cents", 100},
      {"years", "months", 12},
      {"dozens", "pieces", 12},
  };
  return table;
}

Problem UnitConversion(Dice& dice) {
  const Conversion& c = dice.Pick(Conversions());
  const int64_t amount = dice.Between(2, 60);
  const std::string answer = absl::StrCat(amount * c.factor);
  const std::string from = absl::StrCat(amount, " ", c.from);
  Problem problem;
  problem.problem = dice.Pick(std::vector<std::string>{
      absl::StrCat("How many ", c.to, " are there in ", from, "?"),
      absl::StrCat("Convert ", from, " to ", c.to, "."),
      absl::StrCat("Express ", from, " in ", c.to, ".")});
  problem.solution = absl::StrCat("There are ",
                                  c.factor,
                                  " ",
                                  c.to,
                                  " in one of the ",
                                  c.from,
                                  ", so we multiply: ",
                                  amount,
                                  " * ",
                                  c.factor,
                                  " = ",
                                  answer,
                                  ". The answer is \\boxed{",
                                  answer,
                                  "}.");
  problem.answer = answer;
  return problem;
}

const std::vector<std::string>& Names() {
  static const auto& names = *new std::vector<std::string>{
      "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry"};
  return names;
}

const std::vector<std::string>& Things() {
  static const auto& things = *new std::vector<std::string>{
      "apples", "books", "coins", "pencils", "stamps", "marbles"};
  return things;
}

Problem WordProblem(Dice& dice) {
  const std::string& name = dice.Pick(Names());
  const std::string& thing = dice.Pick(Things());
  const int64_t a = dice.Between(11, 90);
  const int64_t b = dice.Between(2, 10);
  Problem problem;
  int64_t answer = 0;
  if (dice.Between(0, 1) == 0) {
    answer = a + b;
    problem.problem = absl::StrCat(name,
                                   " has ",
                                   a,
                                   " ",
                                   thing,
                                   " and gets ",
                                   b,
                                   " more. How many ",
                                   thing,
                                   " does ",
                                   name,
                                   " have now?");
    problem.solution = absl::StrCat(name,
                                    " starts with ",
                                    a,
                                    " and adds ",
                                    b,
                                    ": ",
                                    a,
                                    " + ",
                                    b,
                                    " = ",
                                    answer,
                                    ".");
  } else {
    answer = a - b;
    problem.problem = absl::StrCat(name,
                                   " has ",
                                   a,
                                   " ",
                                   thing,
                                   " and gives away ",
                                   b,
                                   ". How many ",
                                   thing,
                                   " are left?");
    problem.solution = absl::StrCat(name,
                                    " starts with ",
                                    a,
                                    " and takes away ",
                                    b,
                                    ": ",
                                    a,
                                    " - ",
                                    b,
                                    " = ",
                                    answer,
                                    ".");
  }
  absl::StrAppend(&problem.solution, " The answer is \\boxed{", answer, "}.");
  problem.answer = absl::StrCat(answer);
  return problem;
}

Problem Sum(Dice& dice) {
  const int64_t a = dice.Between(10, 99);
  const int64_t b = dice.Between(10, 99);
  Problem problem;
  problem.problem = absl::StrCat("What is ", a, " + ", b, "?");
  problem.solution = absl::StrCat("Add the tens: ",
                                  a / 10 * 10,
                                  " + ",
                                  b / 10 * 10,
                                  " = ",
                                  a / 10 * 10 + b / 10 * 10,
                                  ". Add the ones: ",
                                  a % 10,
                                  " + ",
                                  b % 10,
                                  " = ",
                                  a % 10 + b % 10,
                                  ". Together: ",
                                  a + b,
                                  ". The answer is \\boxed{",
                                  a + b,
                                  "}.");
  problem.answer = absl::StrCat(a + b);
  return problem;
}

// Makes a sum in steps, as the laboratory model writes it
// (deploy/pretrain_laboratory_model.py).
Problem StepwiseSum(Dice& dice) {
  std::vector<int64_t> numbers(4);
  for (int64_t& number : numbers) number = dice.Between(1, 49);
  Problem problem;
  problem.problem =
      absl::StrCat("Compute ", absl::StrJoin(numbers, " + "), ".");
  int64_t total = numbers.front();
  for (size_t i = 1; i < numbers.size(); ++i) {
    const int64_t next = total + numbers[i];
    absl::StrAppend(
        &problem.solution, total, " + ", numbers[i], " = ", next, ". ");
    total = next;
  }
  absl::StrAppend(&problem.solution, "The answer is \\boxed{", total, "}.");
  problem.answer = absl::StrCat(total);
  return problem;
}

Problem LargerNumber(Dice& dice) {
  const int64_t a = dice.Between(100, 999);
  int64_t b = dice.Between(100, 998);
  if (b >= a) ++b;
  const int64_t larger = std::max(a, b);
  Problem problem;
  problem.problem = absl::StrCat("Which number is larger, ", a, " or ", b, "?");
  problem.solution = absl::StrCat("Comparing the digits from the left, ",
                                  larger,
                                  " is larger than ",
                                  std::min(a, b),
                                  ". The answer is \\boxed{",
                                  larger,
                                  "}.");
  problem.answer = absl::StrCat(larger);
  return problem;
}

using Generator = std::function<Problem(Dice&)>;

const std::map<std::string, Generator>& Generators() {
  static const auto& table = *new std::map<std::string, Generator>{
      {"unit_conversion", UnitConversion},
      {"word_problem", WordProblem},
      {"sum", Sum},
      {"stepwise_sum", StepwiseSum},
      {"larger_number", LargerNumber},
  };
  return table;
}

ProblemSplit SplitOf(const std::string& text) {
  const std::string digest = Sha256Hex(text);
  return std::stoul(digest.substr(0, 8), nullptr, 16) % kHeldOutShare == 0
             ? ProblemSplit::kHeldOut
             : ProblemSplit::kTrain;
}

}  // namespace

std::vector<std::string> ProblemTasks() {
  std::vector<std::string> names;
  for (const auto& [name, generator] : Generators()) names.push_back(name);
  return names;
}

absl::StatusOr<std::vector<Problem>> GenerateProblems(const std::string& task,
                                                      ProblemSplit split,
                                                      int64_t count,
                                                      uint64_t seed) {
  const auto generator = Generators().find(task);
  if (generator == Generators().end()) {
    return DataError(absl::StrCat("there is no task '",
                                  task,
                                  "'; known: ",
                                  absl::StrJoin(ProblemTasks(), ", ")));
  }
  Dice dice(seed);
  std::set<std::string> seen;
  std::vector<Problem> problems;
  Progress progress("problems", count);
  for (int64_t attempt = 0; attempt < count * kMaxAttemptsPerProblem;
       ++attempt) {
    if (static_cast<int64_t>(problems.size()) == count) return problems;
    Problem problem = generator->second(dice);
    if (SplitOf(problem.problem) != split ||
        !seen.insert(problem.problem).second) {
      continue;
    }
    problem.id = absl::StrCat(task, "-", problems.size());
    problems.push_back(std::move(problem));
    progress.Update(static_cast<int64_t>(problems.size()));
  }
  if (static_cast<int64_t>(problems.size()) == count) return problems;
  return DataError(absl::StrCat("the task ",
                                task,
                                " has only ",
                                problems.size(),
                                " different problems in this split, not ",
                                count));
}

}  // namespace dapd
