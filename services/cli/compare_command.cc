// dapd compare: runs side by side.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "services/cli/command.h"
#include "services/cli/compare/comparison.h"
#include "services/cli/compare/paired_seeds.h"
#include "services/trainer/record/run_name.h"

namespace dapd {
namespace {

constexpr int kHeadBytes = 4096;  // of a page, its title included

struct CompareOptions {
  std::vector<std::string> runs;
  std::string figures;  // separated by commas; empty: all
  std::string output;
  bool paired = false;
  bool json = false;
};

// Keeps only the named held-out figures, in that order.
absl::Status ChooseFigures(const std::string& names, Comparison* comparison) {
  if (names.empty()) return absl::OkStatus();
  std::vector<ComparedFigure> chosen;
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    const size_t before = chosen.size();
    std::vector<std::string> known;
    for (const ComparedFigure& figure : comparison->figures) {
      if (figure.name == name) chosen.push_back(figure);
      known.push_back(figure.name);
    }
    if (chosen.size() == before) {
      return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                              "--figures: no run has '",
                              name,
                              known.empty() ? "', nor any other held-out figure"
                                            : "'; available: ",
                              absl::StrJoin(known, ", "))),
                          ExitCode::kUsage);
    }
  }
  comparison->figures = std::move(chosen);
  return absl::OkStatus();
}

// A folder's name may hold any bytes.
std::string ToText(const nlohmann::ordered_json& json) {
  return json.dump(
             2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

// Returns whether a path of a sweep's folder is no run but a file or the runs'
// logs, which `dapd compare SWEEP/*` includes, too.
bool IsBesideRuns(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ||
         (RunName(path) == "logs" &&
          !FileExists(JoinPath(path, "config.yaml")));
}

// Only a page of an earlier call may be replaced: any other file, such as a
// run's, is probably a mistake.
absl::Status CheckPage(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) ||
      std::filesystem::is_empty(path, error)) {
    return absl::OkStatus();
  }
  std::string head(kHeadBytes, '\0');
  std::ifstream(path).read(head.data(), kHeadBytes);
  if (IsComparisonHtml(head)) return absl::OkStatus();
  return WithExitCode(
      absl::AlreadyExistsError(absl::StrCat(
          path,
          " already exists and is no page of dapd compare; choose another "
          "--output, or remove it")),
      ExitCode::kUsage);
}

absl::Status Compare(const CompareOptions& options) {
  if (!options.output.empty()) RETURN_IF_ERROR(CheckPage(options.output));
  std::vector<RunResults> runs;
  for (const std::string& folder : options.runs) {
    if (IsBesideRuns(folder)) continue;
    ASSIGN_OR_RETURN(RunResults run, ReadRunResults(folder));
    runs.push_back(std::move(run));
  }
  if (runs.empty()) {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat(
            absl::StrJoin(options.runs, ", "), ": no run's folder is named")),
        ExitCode::kUsage);
  }
  Comparison comparison = CompareRuns(std::move(runs));
  if (options.paired) RETURN_IF_ERROR(PairBySeed(&comparison));
  RETURN_IF_ERROR(ChooseFigures(options.figures, &comparison));
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
      "compare", "Compares runs: settings, curves, held-out figures");
  command
      .AddOption(
          "runs", options->runs, "run folders; differences are to the first")
      .Path()
      .Required();
  command
      .AddOption("--figures",
                 options->figures,
                 "only these held-out figures, separated by commas: "
                 "accuracy,marker_rate (default: all)")
      .NotEmpty();
  command.AddFlag("--paired",
                  options->paired,
                  "differences over seeds by pairs of runs of one seed");
  command.AddFlag("--json", options->json, "print JSON");
  command
      .AddOption(
          "--output", options->output, "HTML page with the curves to write")
      .Path()
      .NotEmpty();
  command.Does([options] { return Compare(*options); });
}

}  // namespace dapd
