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

void AddProblemsCommand(Command& app) {
  auto options = std::make_shared<ProblemsOptions>();
  Command command =
      app.AddSubcommand("problems", "Generates problems with worked solutions");
  command
      .AddOption("--task", options->task, absl::StrJoin(ProblemTasks(), ", "))
      .Required();
  command.AddOption("--split", options->split, "train or held_out")
      .OneOf({"train", "held_out"})
      .ShowDefault();
  command.AddOption("--count", options->count, "number of problems")
      .Range(1, 1'000'000)
      .ShowDefault();
  command.AddOption("--seed", options->seed, "seed of the generator")
      .ShowDefault();
  command.AddOption("--output", options->output, "JSON Lines file")
      .Path()
      .Required();
  command.Does([options] { return WriteProblems(*options); });
}

}  // namespace dapd
