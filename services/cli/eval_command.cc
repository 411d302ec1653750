// dapd eval: Avg@K over a data set with verified answers.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/config/load_config.h"
#include "common/config/prompts.h"
#include "common/data/confidence_interval.h"
#include "common/data/dataset.h"
#include "common/data/grade_answer.h"
#include "common/data/view_builder.h"
#include "common/tensor/torch_bridge.h"
#include "services/cli/command.h"
#include "services/cli/local_generator.h"

namespace dapd {
namespace {

struct EvalOptions {
  LocalGeneratorOptions generator;
  std::string config;  // empty: the released prompts
  std::string data;
  std::string output;
  int64_t samples = 1;
  int64_t limit = 0;
  bool json = false;
};

struct Totals {
  std::vector<double> correct;  // a problem's share of right answers
  std::vector<double> boxed;
  double tokens = 0.0;
};

void PrintReport(const EvalOptions& options, const Totals& totals) {
  const Interval accuracy = MeanInterval(totals.correct);
  const Interval format = MeanInterval(totals.boxed);
  const size_t problems = totals.correct.size();
  const double mean_tokens =
      totals.tokens /
      static_cast<double>(problems * static_cast<size_t>(options.samples));
  if (options.json) {
    const nlohmann::ordered_json report = {{"problems", problems},
                                           {"samples", options.samples},
                                           {"accuracy", ToJson(accuracy)},
                                           {"format_rate", ToJson(format)},
                                           {"mean_tokens", mean_tokens}};
    std::puts(report.dump(2).c_str());
    return;
  }
  const auto percent = [](const Interval& i) {
    return absl::StrFormat(
        "%.2f %% [%.2f, %.2f]", 100 * i.mean, 100 * i.low, 100 * i.high);
  };
  std::puts(absl::StrFormat(
                "%d problems x %d answers; 95 %% intervals over problems "
                "(Student t; Wilson where all agree)\n"
                "Avg@%d accuracy %s\nformat rate    %s\nmean tokens    %.1f",
                problems,
                options.samples,
                options.samples,
                percent(accuracy),
                percent(format),
                mean_tokens)
                .c_str());
}

// As a run with that configuration asks.
absl::StatusOr<ViewOptions> AskAs(const std::string& config) {
  ViewOptions views;
  if (config.empty()) return views;
  ASSIGN_OR_RETURN(const LoadedConfig loaded, LoadConfig(config, {}));
  views.prompts = Prompts(loaded.config.prompts);
  return views;
}

absl::Status Evaluate(const EvalOptions& options) {
  ASSIGN_OR_RETURN(const ViewOptions view_options, AskAs(options.config));
  ASSIGN_OR_RETURN(Dataset data, ReadDataset(options.data, {}));
  if (options.limit > 0 &&
      options.limit < static_cast<int64_t>(data.problems.size())) {
    data.problems.resize(static_cast<size_t>(options.limit));
  }
  for (const Problem& problem : data.problems) {
    if (problem.answer.empty()) {
      return DataError(absl::StrCat(
          options.data,
          ": problem '",
          problem.id,
          "' has no answer to verify; the column is called 'answer'"));
    }
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LocalGenerator> generator,
                   LocalGenerator::Load(options.generator));
  const ViewBuilder views(*generator->text().tokenizer,
                          *generator->text().chat_template,
                          view_options);
  std::vector<LocalGenerator::Prompt> prompts;
  for (size_t i = 0; i < data.problems.size(); ++i) {
    LocalGenerator::Prompt prompt{.name = data.problems[i].id,
                                  .example = static_cast<uint32_t>(i)};
    ASSIGN_OR_RETURN(prompt.ids, views.RolloutPrompt(data.problems[i].problem));
    for (int64_t k = 0; k < options.samples; ++k) {
      prompt.sample = static_cast<uint32_t>(k);
      prompts.push_back(prompt);
    }
  }
  ASSIGN_OR_RETURN(const std::vector<LocalAnswer> answers,
                   generator->Answer(prompts));
  Totals totals;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t i = 0; i < data.problems.size(); ++i) {
    double correct = 0.0;
    double boxed = 0.0;
    for (int64_t k = 0; k < options.samples; ++k) {
      const size_t at =
          i * static_cast<size_t>(options.samples) + static_cast<size_t>(k);
      ASSIGN_OR_RETURN(const std::string text,
                       generator->text().tokenizer->Decode(
                           answers[at].ids, /*skip_special_tokens=*/true));
      const Grade grade = GradeAnswer(text, data.problems[i].answer);
      correct += grade.correct ? 1.0 : 0.0;
      boxed += grade.has_box ? 1.0 : 0.0;
      totals.tokens += static_cast<double>(answers[at].ids.size());
      rows.push_back({{"id", data.problems[i].id},
                      {"sample", k},
                      {"text", text},
                      {"answer", data.problems[i].answer},
                      {"has_box", grade.has_box},
                      {"correct", grade.correct}});
    }
    totals.correct.push_back(correct / static_cast<double>(options.samples));
    totals.boxed.push_back(boxed / static_cast<double>(options.samples));
  }
  if (!options.output.empty()) {
    ASSIGN_OR_RETURN(JsonLinesWriter writer,
                     JsonLinesWriter::Open(options.output));
    for (const auto& row : rows) RETURN_IF_ERROR(writer.Append(row));
    RETURN_IF_ERROR(writer.Commit());
  }
  PrintReport(options, totals);
  return absl::OkStatus();
}

}  // namespace

void AddEvalCommand(Command& app) {
  auto options = std::make_shared<EvalOptions>();
  Command command = app.AddSubcommand("eval", "Avg@K with verified answers");
  options->generator.AddFlags(command);
  command.AddOption("--data", options->data, "problems with answers")
      .Required();
  command.AddOption("--config",
                    options->config,
                    "YAML configuration of a run, whose prompts.none asks "
                    "(default: the released prompt)");
  command.AddOption("--samples", options->samples, "answers per problem (K)")
      .Positive();
  command.AddOption("--limit", options->limit, "only the first N problems");
  command.AddOption("--output",
                    options->output,
                    "JSON Lines with every answer and its grade");
  command.AddFlag("--json", options->json, "print JSON");
  command.Does(
      [options] { return CatchTorch([&] { return Evaluate(*options); }); });
}

}  // namespace dapd
