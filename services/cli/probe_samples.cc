#include "services/cli/probe_samples.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/config/preset_terms.h"
#include "common/data/dataset.h"
#include "common/data/model_text.h"
#include "common/data/probe_draws.h"
#include "common/data/text_pipeline.h"
#include "common/data/view_builder.h"
#include "common/data/view_limits.h"
#include "common/model/weights/placement.h"
#include "services/cli/local_generator.h"

namespace dapd {
namespace {

// Returns the rows of `drawn`, by group.
std::vector<std::vector<SampleRow>> Grouped(
    std::vector<SampleRow> rows,
    const std::vector<std::vector<size_t>>& drawn) {
  std::vector<std::vector<SampleRow>> problems;
  for (const std::vector<size_t>& group : drawn) {
    problems.emplace_back();
    for (const size_t row : group) {
      problems.back().push_back(std::move(rows[row]));
    }
  }
  return problems;
}

absl::StatusOr<std::vector<std::vector<SampleRow>>> ReadSamples(
    const Config& config, const ProbeSampleOptions& options) {
  ASSIGN_OR_RETURN(const ModelText base, ReadModelText(config));
  ASSIGN_OR_RETURN(std::vector<SampleRow> rows,
                   ReadSampleRows(options.samples, base.model.vocab_size));
  // Groups are complete in the file, but not among the trained rows.
  RETURN_IF_ERROR(FillContexts(config, *base.text.views, &rows));
  std::erase_if(rows, [](const SampleRow& row) { return row.is_left_out; });
  if (rows.empty()) {
    return DataError(absl::StrCat(
        options.samples, " holds no sample that was not left out of its step"));
  }
  std::vector<std::string> texts;
  for (const SampleRow& row : rows) {
    texts.push_back(row.sample.source().Key());
  }
  return Grouped(std::move(rows),
                 DrawProblems(texts, options.problems, options.seed));
}

// Refuses answers that only a run samples.
absl::Status CheckOneAnswerEach(const Config& config) {
  const std::vector<Term> terms = ExpandTerms(config.objective);
  if (ReadsView(terms, ViewName::kSiblingRollout)) {
    return ConfigError(
        "sibling_rollout shows other graded answers to the same problem, which "
        "only a run samples: give recorded samples with --samples");
  }
  if (config.rollout.source != ReferenceSource::kGiven) {
    return ConfigError(absl::StrCat(
        "rollout.source is ",
        NameOf(config.rollout.source),
        ", whose second answers only a run samples: give recorded samples with "
        "--samples, or set rollout.source=reference"));
  }
  return absl::OkStatus();
}

absl::Status AnswerRows(const Config& config,
                        const ProbeSampleOptions& options,
                        std::vector<SampleRow>* rows) {
  LogInfo(absl::StrCat("answering ", rows->size(), " problems"));
  SetComputeThreads(config.run.num_threads);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<LocalGenerator> generator,
      LocalGenerator::Load(
          {.model = config.model.path,
           .adapter = options.adapter,
           .precision = NameOf(config.model.precision),
           .device = config.model.device,
           .slots = config.rollout.slots,
           .sampling = {.temperature = config.rollout.temperature,
                        .top_k = config.rollout.top_k,
                        .top_p = config.rollout.top_p,
                        .max_new_tokens = config.rollout.max_new_tokens},
           .seed = options.seed}));
  const TextPipeline& text = generator->text();
  const ViewBuilder views(
      *text.tokenizer, *text.chat_template, MakeViewOptions(config));
  std::vector<AnswerPrompt> prompts;
  for (const SampleRow& row : *rows) {
    AnswerPrompt prompt{.name = row.sample.id,
                        .example = static_cast<uint32_t>(prompts.size())};
    ASSIGN_OR_RETURN(prompt.ids, views.RolloutPrompt(row.sample.source()));
    prompts.push_back(std::move(prompt));
  }
  return generator->AnswerAll(prompts, [&](size_t index, SampledAnswer answer) {
    (*rows)[index].sample.rollout_ids = std::move(answer.ids);
    return absl::OkStatus();
  });
}

// Returns the drawn problems of data.path, without problems that are too long
// for a run.
absl::StatusOr<Dataset> DrawData(const Config& config,
                                 const ProbeSampleOptions& options) {
  ASSIGN_OR_RETURN(const ModelText base, ReadModelText(config));
  ASSIGN_OR_RETURN(Dataset data,
                   ReadDataset(config.data.path, MakeDatasetOptions(config)));
  std::vector<std::string> texts;
  for (const Problem& problem : data.problems) {
    texts.push_back(problem.source().Key());
  }
  Dataset drawn;
  // If the data has a problem several times, its first row is taken.
  for (const std::vector<size_t>& rows :
       DrawProblems(texts, options.problems, options.seed)) {
    drawn.problems.push_back(std::move(data.problems[rows.front()]));
  }
  RETURN_IF_ERROR(ApplyViewLimits(config, base.max_view(), base.text, &drawn));
  if (drawn.problems.empty()) {
    return DataError(
        absl::StrCat(config.data.path, " holds no problem that can be used"));
  }
  return drawn;
}

absl::StatusOr<std::vector<std::vector<SampleRow>>> AnswerProblems(
    const Config& config, const ProbeSampleOptions& options) {
  if (config.data.path.empty()) {
    return ConfigError(
        "data.path is empty: set it, or give recorded samples with --samples");
  }
  RETURN_IF_ERROR(CheckOneAnswerEach(config));
  ASSIGN_OR_RETURN(Dataset data, DrawData(config, options));
  std::vector<SampleRow> rows;
  std::vector<std::vector<size_t>> groups;
  for (Problem& problem : data.problems) {
    SampleRow row;
    row.sample.id = std::move(problem.id);
    row.sample.problem = std::move(problem.problem);
    row.sample.reference = std::move(problem.solution);
    row.sample.material = std::move(problem.material);
    groups.push_back({rows.size()});
    rows.push_back(std::move(row));
  }
  if (ReadsRollouts(ExpandTerms(config.objective))) {
    RETURN_IF_ERROR(AnswerRows(config, options, &rows));
  }
  return Grouped(std::move(rows), groups);
}

}  // namespace

absl::StatusOr<std::vector<std::vector<SampleRow>>> TakeProbeSamples(
    const Config& config, const ProbeSampleOptions& options) {
  return options.samples.empty() ? AnswerProblems(config, options)
                                 : ReadSamples(config, options);
}

}  // namespace dapd
