// dapd problems: generated problems with worked solutions.

#include <memory>
#include <string>

#include "absl/strings/str_join.h"

#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/data/problem_generator.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

struct ProblemsOptions {
  std::string task;
  std::string split = "train";
  std::string output;
  int64_t count = 100;
  uint64_t seed = 1;
};

absl::Status WriteProblems(const ProblemsOptions& options) {
  ASSIGN_OR_RETURN(
      const std::vector<Problem> problems,
      GenerateProblems(options.task,
                       options.split == "held_out" ? ProblemSplit::kHeldOut
                                                   : ProblemSplit::kTrain,
                       options.count,
                       options.seed));
  ASSIGN_OR_RETURN(JsonLinesWriter writer,
                   JsonLinesWriter::Open(options.output));
  for (const Problem& problem : problems) {
    RETURN_IF_ERROR(writer.Append({{"id", problem.id},
                                   {"problem", problem.problem},
                                   {"solution", problem.solution},
                                   {"answer", problem.answer}}));
  }
  return writer.Commit();
}

}  // namespace

void AddProblemsCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<ProblemsOptions>();
  CLI::App* command = app.add_subcommand(
      "problems", "Generated problems with worked solutions");
  command
      ->add_option("--task", options->task, absl::StrJoin(ProblemTasks(), ", "))
      ->required();
  command->add_option("--split", options->split, "train or held_out")
      ->check(CLI::IsMember({"train", "held_out"}));
  command->add_option("--count", options->count, "how many")
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", options->seed, "of the generator");
  command->add_option("--output", options->output, "JSON Lines file")
      ->required();
  command->callback([options, action] {
    *action = [options] { return WriteProblems(*options); };
  });
}

}  // namespace dapd
