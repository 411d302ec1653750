#include "services/cli/compatibility_probe.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/config/preset_terms.h"
#include "common/data/gradient_compatibility.h"
#include "common/objective/position_gradient.h"
#include "common/tensor/torch_bridge.h"
#include "services/cli/local_policy.h"
#include "services/cli/position_probe.h"
#include "services/cli/probe_samples.h"

namespace dapd {
namespace {

struct CompatibilityOptions {
  std::string config;
  std::vector<std::string> overrides;
  LocalPolicyOptions policy;
  std::string samples;
  // The Inference Anchor, and the term that leads the bridge from Self to
  // Cross.
  std::string first = "inference_rollout";
  std::string second = "privileged_rollout";
  int64_t problems = 32;
  int64_t positions = 8;
  uint64_t seed = 1;
  double memory_gib = 0.0;  // 0: half of the free memory
  std::string output;
  bool json = false;
};

absl::StatusOr<Term> TakeTerm(const std::vector<Term>& terms,
                              const std::string& name,
                              const char* option) {
  std::vector<std::string> names;
  for (const Term& term : terms) {
    if (term.name == name) {
      const std::string problem = ProblemWithPositions(term);
      if (!problem.empty()) return ConfigError(problem);
      return term;
    }
    names.push_back(term.name);
  }
  return ConfigError(absl::StrCat("the objective has no term '",
                                  name,
                                  "', which ",
                                  option,
                                  " names; it has ",
                                  absl::StrJoin(names, ", ")));
}

// Keeps only the two terms to compare in `config`.
absl::Status TakeTerms(const CompatibilityOptions& options, Config* config) {
  const std::vector<Term> terms = ExpandTerms(config->objective);
  ASSIGN_OR_RETURN(Term first, TakeTerm(terms, options.first, "--first"));
  ASSIGN_OR_RETURN(Term second, TakeTerm(terms, options.second, "--second"));
  if (CompletionOf(first.student) != CompletionOf(second.student)) {
    return ConfigError(absl::StrCat("'",
                                    first.name,
                                    "' and '",
                                    second.name,
                                    "' score different tokens (",
                                    ViewNameString(first.student),
                                    ", ",
                                    ViewNameString(second.student),
                                    "): a position of one is not a position of "
                                    "the other. Name two terms over the "
                                    "rollout or two over the reference"));
  }
  config->objective.terms = {std::move(first), std::move(second)};
  return absl::OkStatus();
}

std::string DescribeTerm(const Term& term) {
  return absl::StrCat(
      ViewNameString(term.student), " <- ", Describe(term.target));
}

absl::Status MeasureAll(const std::vector<std::vector<SampleRow>>& problems,
                        PositionProbe* probe) {
  Progress progress("problems", static_cast<int64_t>(problems.size()));
  int64_t done = 0;
  for (const std::vector<SampleRow>& rows : problems) {
    RETURN_IF_ERROR(probe->MeasureProblem(rows));
    progress.Update(++done, absl::StrCat(probe->num_positions(), " positions"));
  }
  return absl::OkStatus();
}

void PrintReport(const CompatibilityReport& report,
                 int64_t skipped_problems,
                 bool is_json,
                 const std::vector<Term>& terms) {
  if (is_json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    for (const auto& [side, term] :
         {std::pair{"first", &terms[0]}, std::pair{"second", &terms[1]}}) {
      json[side] = {{"term", term->name}, {"compares", DescribeTerm(*term)}};
    }
    json["skipped_problems"] = skipped_problems;
    json.update(ToJson(report));
    std::puts(json.dump(2).c_str());
    return;
  }
  std::puts(absl::StrFormat("first    %s: %s\nsecond   %s: %s\n%s",
                            terms[0].name,
                            DescribeTerm(terms[0]),
                            terms[1].name,
                            DescribeTerm(terms[1]),
                            ToText(report))
                .c_str());
  if (skipped_problems > 0) {
    std::puts(absl::StrFormat("%d problems have no interior position",
                              skipped_problems)
                  .c_str());
  }
}

absl::Status ProbeCompatibility(const CompatibilityOptions& options) {
  if (!options.output.empty()) {
    RETURN_IF_ERROR(CheckOutputSpares(options.config, options.output));
    RETURN_IF_ERROR(CheckOutputSpares(options.samples, options.output));
    RETURN_IF_ERROR(CheckWritable(options.output));
  }
  ASSIGN_OR_RETURN(LoadedConfig loaded,
                   LoadConfig(options.config, options.overrides));
  Config& config = loaded.config;
  RETURN_IF_ERROR(TakeTerms(options, &config));
  std::optional<JsonLinesWriter> lines;
  if (!options.output.empty()) {
    ASSIGN_OR_RETURN(JsonLinesWriter writer,
                     JsonLinesWriter::Open(options.output));
    lines.emplace(std::move(writer));
  }
  // This comes before the measured model takes its memory.
  ASSIGN_OR_RETURN(
      const auto problems,
      TakeProbeSamples(config,
                       {.samples = options.samples,
                        .adapter = options.policy.LiveAdapter(config),
                        .problems = options.problems,
                        .seed = options.seed}));
  ASSIGN_OR_RETURN(LocalPolicy local, LoadLocalPolicy(config, options.policy));
  ASSIGN_OR_RETURN(
      PositionProbe probe,
      PositionProbe::Make(config,
                          std::move(local),
                          static_cast<int64_t>(problems.size()),
                          {.positions = options.positions,
                           .seed = options.seed,
                           .memory_gib = options.memory_gib,
                           .lines = lines.has_value() ? &*lines : nullptr}));
  RETURN_IF_ERROR(MeasureAll(problems, &probe));
  ASSIGN_OR_RETURN(const CompatibilityReport report, probe.Finish());
  if (lines.has_value()) RETURN_IF_ERROR(lines->Commit());
  PrintReport(
      report, probe.num_skipped(), options.json, config.objective.terms);
  return absl::OkStatus();
}

}  // namespace

void AddCompatibilityProbe(Command& probe) {
  auto options = std::make_shared<CompatibilityOptions>();
  Command command = probe.AddSubcommand(
      "compatibility",
      "Measures whether two terms' gradients agree, position by position");
  command.AddOption("--config", options->config, "YAML configuration")
      .Path()
      .Required();
  command.AddOption(
      "--set", options->overrides, "key=value, overrides the file");
  options->policy.AddFlags(command);
  command
      .AddOption("--samples",
                 options->samples,
                 "JSON Lines {id, problem, reference, rollout_ids} "
                 "(default: problems of data.path, answered here)")
      .Path()
      .NotEmpty();
  command.AddOption("--first", options->first, "term of the objective")
      .ShowDefault();
  command.AddOption("--second", options->second, "term over the same tokens")
      .ShowDefault();
  command
      .AddOption(
          "--problems", options->problems, "maximum number of problems sampled")
      .Positive()
      .ShowDefault();
  command
      .AddOption("--positions",
                 options->positions,
                 "maximum number of positions sampled for each problem, over "
                 "all its answers")
      .Positive()
      .ShowDefault();
  command.AddOption("--seed", options->seed, "seed of all random choices")
      .ShowDefault();
  command
      .AddOption("--memory-gib",
                 options->memory_gib,
                 "memory for the gradients of the interval over all positions "
                 "(default: half of the free memory)")
      .Range(0.0, 1e6);
  command
      .AddOption("--output", options->output, "JSON Lines with every position")
      .Path()
      .NotEmpty();
  command.AddFlag("--json", options->json, "print JSON");
  command.Does([options] {
    return CatchTorch([&] { return ProbeCompatibility(*options); });
  });
}

}  // namespace dapd
