// dapd compare: runs side by side.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "services/cli/command.h"
#include "services/cli/compare/comparison.h"

namespace dapd {
namespace {

struct CompareOptions {
  std::vector<std::string> runs;
  std::string output;
  bool json = false;
};

// A folder's name may hold any bytes.
std::string ToText(const nlohmann::ordered_json& json) {
  return json.dump(
             2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

absl::Status Compare(const CompareOptions& options) {
  std::vector<RunResults> runs;
  for (const std::string& folder : options.runs) {
    ASSIGN_OR_RETURN(RunResults run, ReadRunResults(folder));
    runs.push_back(std::move(run));
  }
  const Comparison comparison = CompareRuns(std::move(runs));
  if (!options.output.empty()) {
    RETURN_IF_ERROR(
        WriteFileAtomically(options.output, ComparisonHtml(comparison)));
  }
  const std::string text = options.json ? ToText(ComparisonJson(comparison))
                                        : ComparisonText(comparison);
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddCompareCommand(Command& app) {
  auto options = std::make_shared<CompareOptions>();
  Command command = app.AddSubcommand(
      "compare", "Runs side by side: settings, curves, held-out figures");
  command
      .AddOption(
          "runs", options->runs, "run folders; differences are to the first")
      .Required();
  command.AddFlag("--json", options->json, "print JSON");
  command.AddOption(
      "--output", options->output, "HTML page with the curves to write");
  command.Does([options] { return Compare(*options); });
}

}  // namespace dapd
