// dapd probe: measures of a model's answers and gradients beyond right and
// wrong.

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/data/claim_probe.h"
#include "common/data/confidence_interval.h"
#include "common/data/expected_answer.h"
#include "common/data/grade_answer.h"
#include "common/data/unread_row_keys.h"
#include "services/cli/answer_record.h"
#include "services/cli/command.h"
#include "services/cli/compatibility_probe.h"

namespace dapd {
namespace {

struct ClaimOptions {
  std::string input;
  std::string output;
  int reach = ClaimProbe::kDefaultReach;
  int64_t resamples = 10000;
  uint64_t seed = 1;
  bool json = false;
};

struct ClaimTotals {
  std::map<std::string, ClaimCount> problems;  // by id
  std::map<std::string, int64_t> sources;
  int64_t answers = 0;
  int64_t wrong = 0;
  int64_t claims = 0;
};

// Returns the text under `key`, which must be there.
absl::StatusOr<std::string> TextOf(const nlohmann::json& row,
                                   const char* key,
                                   const std::string& where) {
  if (!row.is_object() || !row.contains(key) || !row[key].is_string()) {
    return DataError(absl::StrCat(where, ": \"", key, "\" is not a string"));
  }
  return row[key].get<std::string>();
}

// Returns the row's grade or, without one, the grade against the row's own
// answer.
absl::StatusOr<bool> IsCorrect(const nlohmann::json& row,
                               const std::string& text,
                               const std::string& where) {
  if (row.contains("correct")) {
    if (row["correct"].is_boolean()) return row["correct"].get<bool>();
    return DataError(
        absl::StrCat(where, ": \"correct\" is neither true nor false"));
  }
  if (!row.contains("answer")) {
    return DataError(absl::StrCat(
        where, " has neither \"correct\" nor an \"answer\" to grade by"));
  }
  ASSIGN_OR_RETURN(const std::string answer, TextOf(row, "answer", where));
  return GradeAnswer(text, ExpectedAnswer(answer, "")).correct;
}

absl::Status CountRow(const ClaimProbe& probe,
                      const nlohmann::json& row,
                      const std::string& where,
                      JsonLinesWriter* found,
                      ClaimTotals* totals) {
  ASSIGN_OR_RETURN(const std::string id, TextOf(row, "id", where));
  ASSIGN_OR_RETURN(const std::string text, TextOf(row, "text", where));
  ASSIGN_OR_RETURN(const bool correct, IsCorrect(row, text, where));
  ClaimCount& problem = totals->problems[id];
  ++problem.answers;
  ++totals->answers;
  if (correct) return absl::OkStatus();
  ++totals->wrong;
  const std::optional<ClaimFinding> finding = probe.Find(text);
  if (!finding.has_value()) return absl::OkStatus();
  ++problem.claims;
  ++totals->claims;
  ++totals->sources[finding->source];
  if (found == nullptr) return absl::OkStatus();
  nlohmann::ordered_json line = {{"id", id}};
  if (row.contains("sample")) line["sample"] = row["sample"];
  line["source"] = finding->source;
  line["failure"] = finding->failure;
  line["claim"] = finding->claim;
  return found->Append(line);
}

void PrintTotals(const ClaimOptions& options, const ClaimTotals& totals) {
  std::vector<ClaimCount> problems;
  for (const auto& [id, count] : totals.problems) problems.push_back(count);
  const Interval rate =
      ClaimsPerTenThousand(problems, options.resamples, options.seed);
  if (options.json) {
    const nlohmann::ordered_json report = {
        {"problems", problems.size()},
        {"answers", totals.answers},
        {"wrong", totals.wrong},
        {"wrong_claims", totals.claims},
        {"wrong_claims_per_10k", ToJson(rate)},
        {"sources", totals.sources}};
    std::puts(report.dump(2).c_str());
    return;
  }
  std::puts(
      absl::StrFormat("%d answers to %d problems, %d wrong\n"
                      "wrong claims   %d, in 10,000 answers %.1f [%.1f, %.1f] "
                      "(95 %%, problems drawn with all their answers)",
                      totals.answers,
                      problems.size(),
                      totals.wrong,
                      totals.claims,
                      rate.mean,
                      rate.low,
                      rate.high)
          .c_str());
  for (const auto& [source, count] : totals.sources) {
    std::puts(absl::StrFormat("  %-18s %d", source, count).c_str());
  }
}

absl::Status ProbeClaims(const ClaimOptions& options) {
  ASSIGN_OR_RETURN(const ClaimProbe probe, ClaimProbe::Make(options.reach));
  std::optional<JsonLinesWriter> found;
  if (!options.output.empty()) {
    RETURN_IF_ERROR(CheckOutputSpares(options.input, options.output));
    ASSIGN_OR_RETURN(JsonLinesWriter writer,
                     JsonLinesWriter::Open(options.output));
    found.emplace(std::move(writer));
  }
  ClaimTotals totals;
  UnreadRowKeys unread;
  RETURN_IF_ERROR(
      ForEachJsonLine(options.input, [&](const nlohmann::json& row, int line) {
        const std::string where = absl::StrCat(options.input, ":", line);
        unread.Add(row, kAnswerKeys, where);
        return CountRow(
            probe, row, where, found.has_value() ? &*found : nullptr, &totals);
      }));
  unread.Report(options.input);
  if (totals.answers == 0) {
    return DataError(absl::StrCat(options.input, " holds no answer"));
  }
  if (found.has_value()) RETURN_IF_ERROR(found->Commit());
  PrintTotals(options, totals);
  return absl::OkStatus();
}

}  // namespace

void AddProbeCommand(Command& app) {
  auto options = std::make_shared<ClaimOptions>();
  Command command = app.AddSubcommand(
      "probe", "Analyses answers and gradients beyond right and wrong");
  command.RequireSubcommand();
  Command claims = command.AddSubcommand(
      "claims",
      "Counts wrong answers attributed to memory or a source, not derived");
  claims
      .AddOption("--input",
                 options->input,
                 "JSON Lines {id, text, correct or answer}, as eval writes")
      .Path()
      .Required();
  claims
      .AddOption(
          "--output", options->output, "JSON Lines with every wrong claim")
      .Path()
      .NotEmpty();
  claims
      .AddOption(
          "--reach",
          options->reach,
          "maximum number of sentences between the failure and the claim")
      .Range(1, 1000000)
      .ShowDefault();
  claims
      .AddOption(
          "--resamples", options->resamples, "resamples of the bootstrap")
      .Range(1, 10'000'000)
      .ShowDefault();
  claims.AddOption("--seed", options->seed, "seed of the bootstrap")
      .ShowDefault();
  claims.AddFlag("--json", options->json, "print JSON");
  claims.Does([options] { return ProbeClaims(*options); });
  AddCompatibilityProbe(command);
}

}  // namespace dapd
