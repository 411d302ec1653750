// dapd views: the token sequences of given samples, or of rows of data.path.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/data/dataset.h"
#include "common/data/model_text.h"
#include "common/data/row_material.h"
#include "common/data/sample_rows.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

struct ViewsOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string input;  // empty: the first `rows` of data.path
  int64_t rows = 0;
  std::string output;
};

nlohmann::ordered_json NamedViews(const Views& views) {
  nlohmann::ordered_json named = nlohmann::ordered_json::object();
  for (int i = 0; i < kNumViews; ++i) {
    const View& view = views[static_cast<size_t>(i)];
    if (view.input_ids.empty()) continue;  // not read, or the sample lacks it
    named[ViewNameString(static_cast<ViewName>(i))] = {
        {"input_ids", view.input_ids},
        {"scored_from", view.scored_from},
        {"scored_count", view.scored_count}};
  }
  return named;
}

// Returns the views of a row that are known before an answer is sampled: those
// over its reference, and the prompts in front of the answer. Their texts show
// what the model reads.
absl::StatusOr<nlohmann::ordered_json> DataRowJson(const Problem& problem,
                                                   const TextPipeline& text) {
  ASSIGN_OR_RETURN(
      Views views,
      text.views->BuildReferenceViews(problem.source(), problem.solution));
  ASSIGN_OR_RETURN(const GrowingViews prompts,
                   text.views->StartViews(problem.source(), problem.solution));
  for (const ViewName name : {ViewName::kNoneRollout,
                              ViewName::kCrossRollout,
                              ViewName::kDemonstrationRollout,
                              ViewName::kProbeRollout}) {
    const auto i = static_cast<size_t>(name);
    views[i] = prompts.views()[i];
    views[i].scored_from = static_cast<int64_t>(views[i].input_ids.size());
  }
  nlohmann::ordered_json texts = nlohmann::ordered_json::object();
  for (int i = 0; i < kNumViews; ++i) {
    const View& view = views[static_cast<size_t>(i)];
    if (view.input_ids.empty()) continue;
    ASSIGN_OR_RETURN(texts[ViewNameString(static_cast<ViewName>(i))],
                     text.tokenizer->Decode(view.input_ids,
                                            /*skip_special_tokens=*/false));
  }
  nlohmann::ordered_json row = {{"id", problem.id},
                                {"where", problem.where},
                                {"problem", problem.problem},
                                {"reference", problem.solution}};
  if (!problem.answer.empty()) row["answer"] = problem.answer;
  if (problem.material != nullptr) {
    row["material"] = MaterialJson(*problem.material);
  }
  row["texts"] = std::move(texts);
  row["views"] = NamedViews(views);
  return row;
}

absl::Status ShowRows(const ViewsOptions& options, const Config& config) {
  RETURN_IF_ERROR(RequireDataPath(config.data));
  ASSIGN_OR_RETURN(const ModelText base, ReadModelText(config));
  ASSIGN_OR_RETURN(const Dataset data,
                   ReadDataset(config.data.path, MakeDatasetOptions(config)));
  ASSIGN_OR_RETURN(JsonLinesWriter writer,
                   JsonLinesWriter::Open(options.output));
  const size_t count =
      std::min(data.problems.size(), static_cast<size_t>(options.rows));
  for (size_t i = 0; i < count; ++i) {
    const Problem& problem = data.problems[i];
    auto row = DataRowJson(problem, base.text);
    if (!row.ok()) return RowError(problem, row.status());
    RETURN_IF_ERROR(writer.Append(*row));
  }
  return writer.Commit();
}

absl::Status BuildViews(const ViewsOptions& options) {
  if (options.input.empty() == (options.rows == 0)) {
    return WithExitCode(
        absl::InvalidArgumentError(
            "--input names samples, and --rows asks for rows of data.path; "
            "give one of the two"),
        ExitCode::kUsage);
  }
  RETURN_IF_ERROR(CheckOutputSpares(options.input, options.output));
  RETURN_IF_ERROR(CheckOutputSpares(options.config, options.output));
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(options.config, options.overrides));
  const Config& config = loaded.config;
  if (options.input.empty()) return ShowRows(options, config);
  ASSIGN_OR_RETURN(const ModelText base, ReadModelText(config));
  ASSIGN_OR_RETURN(std::vector<SampleRow> rows,
                   ReadSampleRows(options.input, base.model.vocab_size));
  RETURN_IF_ERROR(FillContexts(config, *base.text.views, &rows));
  ASSIGN_OR_RETURN(JsonLinesWriter writer,
                   JsonLinesWriter::Open(options.output));
  Progress progress("samples", static_cast<int64_t>(rows.size()));
  int64_t num_built = 0;
  for (const SampleRow& row : rows) {
    const Sample& sample = row.sample;
    progress.Update(++num_built);
    ASSIGN_OR_RETURN(const Views views, BuildViewsOf(*base.text.views, sample));
    RETURN_IF_ERROR(
        writer.Append({{"id", sample.id}, {"views", NamedViews(views)}}));
  }
  return writer.Commit();
}

}  // namespace

void AddViewsCommand(Command& app) {
  auto options = std::make_shared<ViewsOptions>();
  Command command = app.AddSubcommand(
      "views", "Writes the token sequences of samples, by view");
  command.AddOption("--config", options->config, "YAML configuration")
      .Path()
      .Required();
  command.AddOption(
      "--set", options->overrides, "key=value, overrides the file");
  command
      .AddOption("--input",
                 options->input,
                 "JSON Lines {id, problem, reference, rollout_ids}")
      .Path()
      .NotEmpty();
  command
      .AddOption("--rows",
                 options->rows,
                 "instead of --input: the first N rows of data.path as they "
                 "are read, with the views that need no sampled answer and "
                 "their texts")
      .Range(1, 1'000'000);
  command.AddOption("--output", options->output, "JSON Lines {id, views}")
      .Path()
      .Required();
  command.Does([options] { return BuildViews(*options); });
}

}  // namespace dapd
