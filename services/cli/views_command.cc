// dapd views: the token sequences of given samples.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/files.h"
#include "common/base/json_lines.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/data/model_text.h"
#include "common/data/sample_rows.h"
#include "services/cli/command.h"

namespace dapd {
namespace {

struct ViewsOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string input;
  std::string output;
};

nlohmann::ordered_json ToJson(const std::string& id, const Views& views) {
  nlohmann::ordered_json named = nlohmann::ordered_json::object();
  for (int i = 0; i < kNumViews; ++i) {
    const View& view = views[static_cast<size_t>(i)];
    if (view.input_ids.empty()) continue;  // not read, or the sample lacks it
    named[ViewNameString(static_cast<ViewName>(i))] = {
        {"input_ids", view.input_ids},
        {"scored_from", view.scored_from},
        {"scored_count", view.scored_count}};
  }
  return {{"id", id}, {"views", named}};
}

absl::Status BuildViews(const ViewsOptions& options) {
  RETURN_IF_ERROR(CheckOutputSpares(options.input, options.output));
  RETURN_IF_ERROR(CheckOutputSpares(options.config, options.output));
  ASSIGN_OR_RETURN(const LoadedConfig loaded,
                   LoadConfig(options.config, options.overrides));
  const Config& config = loaded.config;
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
    RETURN_IF_ERROR(writer.Append(ToJson(sample.id, views)));
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
      .Required();
  command.AddOption("--output", options->output, "JSON Lines {id, views}")
      .Path()
      .Required();
  command.Does([options] { return BuildViews(*options); });
}

}  // namespace dapd
