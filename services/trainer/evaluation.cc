#include "services/trainer/evaluation.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/data/held_out_prompt.h"
#include "common/data/repetition.h"
#include "common/generation/decode_request.h"
#include "services/trainer/record/choose_answers.h"

namespace dapd {
namespace {

std::vector<PipelineInput> MakeInputs(const Config& config,
                                      const Dataset& held_out,
                                      size_t problems,
                                      int64_t samples,
                                      int64_t version) {
  std::vector<PipelineInput> inputs;
  for (size_t i = 0; i < problems; ++i) {
    for (int64_t k = 0; k < samples; ++k) {
      inputs.push_back({.problem = &held_out.problems[i],
                        .key = {.seed = config.run.seed + 1,
                                .step = static_cast<uint32_t>(version),
                                .example = static_cast<uint32_t>(i),
                                .sample = static_cast<uint32_t>(k)}});
    }
  }
  return inputs;
}

SamplingParams EvaluationSampling(const Config& config) {
  return {.temperature = config.evaluation.temperature,
          .top_k = config.evaluation.top_k,
          .top_p = config.evaluation.top_p,
          .max_new_tokens = HeldOutAnswerTokens(config)};
}

SamplePipeline::Prompt PromptOf(const Config& config,
                                const ViewBuilder& views) {
  return [&config, &views](const Problem& problem) {
    return HeldOutPrompt(config, views, problem.problem);
  };
}

// Shares of a problem's answers, one number a problem.
void GradeAnswers(const std::vector<RolloutRecord>& records,
                  const std::string& marker,
                  EvaluationReport& report) {
  const auto samples = static_cast<size_t>(report.samples);
  const auto share_of = [&](const auto& holds) {
    std::vector<double> shares;
    for (size_t begin = 0; begin < records.size(); begin += samples) {
      double count = 0.0;
      for (size_t i = begin; i < begin + samples; ++i) {
        count += holds(records[i]) ? 1.0 : 0.0;
      }
      shares.push_back(count / static_cast<double>(samples));
    }
    return BootstrapInterval(shares, kEvaluationSeed);
  };
  report.accuracy =
      share_of([](const RolloutRecord& answer) { return answer.correct; });
  report.format_rate =
      share_of([](const RolloutRecord& answer) { return answer.has_box; });
  if (!marker.empty()) {
    report.marker = marker;
    report.marker_rate = share_of([&](const RolloutRecord& answer) {
      return absl::StrContains(answer.text, marker);
    });
  }
  report.truncated = share_of([](const RolloutRecord& answer) {
    return answer.finish_reason == FinishReason::kLength;
  });
  report.repeated = share_of([](const RolloutRecord& answer) {
    return EndsInRepetition(WithoutEndToken(answer.ids, answer.finish_reason));
  });
  double tokens = 0.0;
  for (const RolloutRecord& answer : records) {
    tokens += static_cast<double>(answer.ids.size());
  }
  report.mean_tokens = tokens / static_cast<double>(records.size());
}

// Whether a context takes an answer of full length behind the sampler's prompt.
absl::StatusOr<bool> CanBeAnswered(const Problem& problem,
                                   const Config& config,
                                   const ViewBuilder& views,
                                   int64_t context) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                   views.RolloutPrompt(problem.problem));
  return static_cast<int64_t>(prompt.size()) + HeldOutAnswerTokens(config) <=
         context;
}

// Whether it takes every view of the answer that the terms read.
absl::StatusOr<bool> CanBeScored(const RolloutRecord& record,
                                 const std::vector<Term>& terms,
                                 const ViewBuilder& views,
                                 int64_t context) {
  const Problem& problem = *record.problem;
  // An answer has at least one token, where one is needed.
  ASSIGN_OR_RETURN(
      const Views built,
      record.ids.empty()
          ? views.BuildReferenceViews(problem.problem, problem.solution)
          : views.Build({.id = problem.id,
                         .problem = problem.problem,
                         .reference = problem.solution,
                         .rollout_ids = record.ids,
                         .reference_ids = {},
                         .context = record.context}));
  return std::ranges::all_of(ViewsRead(terms), [&](ViewName name) {
    const View& view = built[static_cast<size_t>(name)];
    return static_cast<int64_t>(view.input_ids.size()) <= context;
  });
}

// The first held-out problems with answers of the live policy, as far as the
// model's context takes what the terms read of them: solutions and answers are
// not bounded by what training's are, and workers refuse what is too long.
struct AnsweredProblems {
  std::vector<PipelineInput> inputs;        // that fit
  std::map<size_t, RolloutResult> answers;  // which the inputs refer to
};

absl::Status AnswerWhatFits(const Config& config,
                            std::vector<PipelineInput> all,
                            int64_t context,
                            const AnswerRules& rules,
                            const std::vector<Term>& terms,
                            const ViewBuilder& views,
                            SamplePipeline& pipeline,
                            AnsweredProblems* answered) {
  const size_t wanted = all.size();
  std::vector<PipelineInput> asked;
  for (PipelineInput& input : all) {
    bool fits = true;
    if (rules.needs_answers) {
      ASSIGN_OR_RETURN(fits,
                       CanBeAnswered(*input.problem, config, views, context));
    }
    if (fits) asked.push_back(std::move(input));
  }
  ASSIGN_OR_RETURN(SubmittedBatch batch,
                   pipeline.Submit(asked, EvaluationSampling(config), rules));
  RETURN_IF_ERROR(pipeline.Start(std::move(batch),
                                 /*at_base=*/{},
                                 /*with_scores=*/false));
  ASSIGN_OR_RETURN(const std::vector<RolloutRecord> records,
                   pipeline.CollectRollouts([&](const PipelineInput&,
                                                size_t index,
                                                int64_t,
                                                const RolloutResult& result) {
                     answered->answers[index] = result;
                     return absl::OkStatus();
                   }));
  for (size_t i = 0; i < asked.size(); ++i) {
    ASSIGN_OR_RETURN(const bool fits,
                     CanBeScored(records[i], terms, views, context));
    if (!fits) continue;
    if (rules.needs_answers) asked[i].known[0] = &answered->answers.at(i);
    answered->inputs.push_back(std::move(asked[i]));
  }
  const size_t left_out = wanted - answered->inputs.size();
  if (left_out > 0) {
    LogWarning(absl::StrCat(
        left_out,
        " of ",
        wanted,
        " held-out problems are left out of the divergences: with answer and "
        "solution they are longer than the model's context of ",
        context,
        " tokens; with a lower evaluation.max_new_tokens they may fit"));
  }
  return absl::OkStatus();
}

absl::Status MeasureDivergences(const Config& config,
                                const Dataset& held_out,
                                size_t problems,
                                const ModelWeights& weights,
                                const Policy& policy,
                                const std::vector<Term>& terms,
                                const ViewBuilder& views,
                                SamplePipeline& pipeline,
                                EvaluationReport& report) {
  const AnswerRules rules = MakeHeldOutRules(ReadsRollouts(terms));
  AnsweredProblems answered;
  RETURN_IF_ERROR(AnswerWhatFits(
      config,
      MakeInputs(config, held_out, problems, 1, policy.version()),
      weights.config.max_positions,
      rules,
      terms,
      views,
      pipeline,
      &answered));
  if (answered.inputs.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      SubmittedBatch batch,
      pipeline.Submit(answered.inputs, EvaluationSampling(config), rules));
  RETURN_IF_ERROR(pipeline.Start(std::move(batch),
                                 policy.SetsAtBase(),
                                 /*with_scores=*/true));
  ASSIGN_OR_RETURN(const std::vector<RolloutRecord> records,
                   pipeline.CollectRollouts());
  std::vector<std::vector<double>> values(terms.size());
  for (size_t i = 0; i < records.size(); ++i) {
    if (!records[i].is_trained) continue;
    std::vector<ScoredSample> sample(1);
    ASSIGN_OR_RETURN(sample[0], pipeline.TakeScored(i));
    const std::vector<DivergenceSums> sums =
        EvaluateMicroBatch(weights,
                           policy.live(),
                           terms,
                           sample,
                           {.temperature = config.objective.temperature});
    for (size_t k = 0; k < terms.size(); ++k) {
      if (sums[k].tokens == 0) continue;
      values[k].push_back(sums[k].true_value());
    }
  }
  for (size_t k = 0; k < terms.size(); ++k) {
    report.divergences.push_back({terms[k].name, MeanInterval(values[k])});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EvaluationReport> Evaluate(const Config& config,
                                          const Dataset& held_out,
                                          const ModelWeights& weights,
                                          const Policy& policy,
                                          const std::vector<Term>& terms,
                                          const ViewBuilder& views,
                                          SamplePipeline& pipeline) {
  const absl::Time start = SteadyNow();
  EvaluationReport report;
  report.policy_version = policy.version();
  report.problems = static_cast<int64_t>(held_out.problems.size());
  report.samples = config.evaluation.samples;
  ASSIGN_OR_RETURN(SubmittedBatch batch,
                   pipeline.Submit(MakeInputs(config,
                                              held_out,
                                              held_out.problems.size(),
                                              report.samples,
                                              policy.version()),
                                   EvaluationSampling(config),
                                   MakeHeldOutRules(/*needs_answers=*/true),
                                   PromptOf(config, views)));
  RETURN_IF_ERROR(pipeline.Start(std::move(batch),
                                 /*at_base=*/{},
                                 /*with_scores=*/false));
  ASSIGN_OR_RETURN(const std::vector<RolloutRecord> records,
                   pipeline.CollectRollouts());
  GradeAnswers(records, config.evaluation.marker, report);
  report.answers = ChooseHeldOutAnswers(records, report.samples);
  const size_t kl_problems =
      std::min(static_cast<size_t>(config.evaluation.kl_problems),
               held_out.problems.size());
  if (kl_problems > 0) {
    RETURN_IF_ERROR(MeasureDivergences(config,
                                       held_out,
                                       kl_problems,
                                       weights,
                                       policy,
                                       terms,
                                       views,
                                       pipeline,
                                       report));
  }
  report.seconds = absl::ToDoubleSeconds(SteadyNow() - start);
  return report;
}

}  // namespace dapd
