#include "services/trainer/evaluation.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/log.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/data/held_out_prompt.h"
#include "common/data/repetition.h"
#include "common/generation/decode_request.h"
#include "services/trainer/claim_meter.h"
#include "services/trainer/record/choose_answers.h"

namespace dapd {
namespace {

// Returns the inputs for `samples` answers to each of the first `problems`
// held-out problems.
std::vector<PipelineInput> MakeInputs(const EvaluationParts& parts,
                                      size_t problems,
                                      int64_t samples) {
  const auto version = static_cast<uint32_t>(parts.policy.version());
  std::vector<PipelineInput> inputs;
  for (size_t i = 0; i < problems; ++i) {
    for (int64_t k = 0; k < samples; ++k) {
      inputs.push_back({.problem = &parts.held_out.problems[i],
                        .key = {.seed = parts.config.run.seed + 1,
                                .step = version,
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
    return HeldOutPrompt(config, views, problem.source());
  };
}

// Fills the report's shares of answers; the share of right answers counts only
// problems with a graded answer: an expected answer or, with a grader of the
// user's own, a grade. Ungraded answers to such a problem are not right.
void GradeAnswers(const std::vector<RolloutRecord>& records,
                  const std::string& marker,
                  EvaluationReport& report) {
  const auto samples = static_cast<size_t>(report.samples);
  std::vector<size_t> all;  // where the answers to each problem begin
  std::vector<size_t> graded;
  for (size_t begin = 0; begin < records.size(); begin += samples) {
    all.push_back(begin);
    if (std::ranges::any_of(std::span(records).subspan(begin, samples),
                            IsGraded)) {
      graded.push_back(begin);
    }
  }
  const auto share_of = [&](const std::vector<size_t>& begins,
                            const auto& holds) {
    std::vector<int64_t> counts;  // by problem
    for (const size_t begin : begins) {
      counts.push_back(std::ranges::count_if(
          std::span(records).subspan(begin, samples), holds));
    }
    return BootstrapShares(counts, report.samples, kEvaluationSeed);
  };
  report.graded_problems = static_cast<int64_t>(graded.size());
  if (!graded.empty()) {
    report.accuracy = share_of(graded, [](const RolloutRecord& record) {
      return record.grade.correct;
    });
  }
  report.format_rate = share_of(
      all, [](const RolloutRecord& record) { return record.grade.has_box; });
  if (!marker.empty()) {
    report.marker = marker;
    report.marker_rate = share_of(all, [&](const RolloutRecord& record) {
      return absl::StrContains(record.text, marker);
    });
  }
  report.truncated = share_of(all, [](const RolloutRecord& record) {
    return record.answer.finish_reason == FinishReason::kLength;
  });
  report.repeated = share_of(all, [](const RolloutRecord& record) {
    return EndsInRepetition(
        WithoutEndToken(record.answer.ids, record.answer.finish_reason));
  });
  double tokens = 0.0;
  for (const RolloutRecord& record : records) {
    tokens += static_cast<double>(record.answer.ids.size());
  }
  report.mean_tokens = tokens / static_cast<double>(records.size());
}

// Returns whether the model's context takes an answer of full length behind the
// sampler's prompt.
absl::StatusOr<bool> CanBeAnswered(const EvaluationParts& parts,
                                   const Problem& problem) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> prompt,
                   parts.views.RolloutPrompt(problem.source()));
  return static_cast<int64_t>(prompt.size()) +
             HeldOutAnswerTokens(parts.config) <=
         parts.weights.config.max_positions;
}

// Returns the views of an answer to a problem.
absl::StatusOr<Views> BuildViews(const EvaluationParts& parts,
                                 const Problem& problem,
                                 const std::vector<int32_t>& answer,
                                 const TeacherContext& context) {
  return parts.views.Build({.id = problem.id,
                            .problem = problem.problem,
                            .reference = problem.solution,
                            .rollout_ids = answer,
                            .reference_ids = {},
                            .context = context,
                            .material = problem.material});
}

// Returns whether every model's context takes every view of the answer that the
// terms read.
absl::StatusOr<bool> CanBeScored(const EvaluationParts& parts,
                                 const RolloutRecord& record) {
  const Problem& problem = *record.problem;
  // Records without an answer occur where the terms need none.
  ASSIGN_OR_RETURN(
      const Views built,
      record.answer.ids.empty()
          ? parts.views.BuildReferenceViews(problem.source(), problem.solution)
          : BuildViews(parts, problem, record.answer.ids, record.context));
  return std::ranges::all_of(ViewsRead(parts.terms), [&](ViewName name) {
    const View& view = built[static_cast<size_t>(name)];
    return static_cast<int64_t>(view.input_ids.size()) <=
           parts.teacher_heads.positions;
  });
}

// The inputs with answers of the live policy.
struct AnsweredProblems {
  std::vector<PipelineInput> inputs;
  std::map<size_t, RolloutResult> answers;  // which the inputs refer to
};

// Returns the inputs whose views the model's context can take: unlike
// training's, held-out solutions and answers have no limit of length, and
// workers refuse texts that are too long.
absl::StatusOr<AnsweredProblems> AnswerWhatFits(
    const EvaluationParts& parts,
    const AnswerRules& rules,
    std::vector<PipelineInput> inputs) {
  std::vector<PipelineInput> asked;
  for (PipelineInput& input : inputs) {
    bool fits = true;
    if (rules.needs_answers) {
      ASSIGN_OR_RETURN(fits, CanBeAnswered(parts, *input.problem));
    }
    if (fits) asked.push_back(std::move(input));
  }
  ASSIGN_OR_RETURN(
      SubmittedBatch batch,
      parts.pipeline.Submit(asked, EvaluationSampling(parts.config), rules));
  RETURN_IF_ERROR(parts.pipeline.Start(std::move(batch),
                                       /*at_base=*/{},
                                       /*with_scores=*/false));
  AnsweredProblems answered;
  ASSIGN_OR_RETURN(
      const std::vector<RolloutRecord> records,
      parts.pipeline.CollectRollouts(
          [&](size_t index, int64_t /*attempt*/, const RolloutResult& result) {
            answered.answers[index] = result;
            return absl::OkStatus();
          }));
  for (size_t i = 0; i < asked.size(); ++i) {
    ASSIGN_OR_RETURN(const bool fits, CanBeScored(parts, records[i]));
    if (!fits) continue;
    if (rules.needs_answers) asked[i].known[0] = &answered.answers.at(i);
    answered.inputs.push_back(std::move(asked[i]));
  }
  return answered;
}

void WarnOfLeftOut(absl::string_view figure,
                   size_t left_out,
                   size_t problems,
                   int64_t context) {
  if (left_out == 0) return;
  LogWarning(absl::StrCat(
      left_out,
      " of ",
      problems,
      " held-out problems are left out of ",
      figure,
      ": with answer and "
      "solution they are longer than the model's context of ",
      context,
      " tokens; with a lower evaluation.max_new_tokens they may fit"));
}

// Returns the rules of answers whose divergences or claims are measured.
AnswerRules UngradedRules(bool needs_answers) {
  AnswerRules rules = MakeHeldOutRules(needs_answers);
  rules.needs_grades = false;
  return rules;
}

// Measures the divergences over these problems; empty if there are none.
absl::StatusOr<std::vector<TermDivergence>> MeasureDivergences(
    const EvaluationParts& parts,
    const AnswerRules& rules,
    const AnsweredProblems& answered) {
  std::vector<TermDivergence> divergences;
  if (answered.inputs.empty()) return divergences;
  ASSIGN_OR_RETURN(
      SubmittedBatch batch,
      parts.pipeline.Submit(
          answered.inputs, EvaluationSampling(parts.config), rules));
  RETURN_IF_ERROR(parts.pipeline.Start(std::move(batch),
                                       parts.policy.SetsAtBase(),
                                       /*with_scores=*/true));
  ASSIGN_OR_RETURN(const std::vector<RolloutRecord> records,
                   parts.pipeline.CollectRollouts());
  std::vector<std::vector<double>> values(parts.terms.size());
  for (size_t i = 0; i < records.size(); ++i) {
    if (!records[i].is_trained) continue;
    std::vector<ScoredSample> sample(1);
    ASSIGN_OR_RETURN(sample[0], parts.pipeline.TakeScored(i));
    const std::vector<DivergenceSums> sums =
        EvaluateMicroBatch(parts.weights,
                           parts.policy.live(),
                           parts.terms,
                           sample,
                           {.temperature = parts.config.objective.temperature,
                            .vocabulary = parts.teacher_heads.vocabulary});
    for (size_t k = 0; k < parts.terms.size(); ++k) {
      if (sums[k].tokens == 0) continue;
      values[k].push_back(sums[k].true_value());
    }
  }
  for (size_t k = 0; k < parts.terms.size(); ++k) {
    // A term that counts no token of any answer has no divergence.
    if (values[k].empty()) continue;
    divergences.push_back(
        {parts.terms[k].name, MeanInterval(values[k]), std::ssize(values[k])});
  }
  return divergences;
}

// Measures the claims in these answers; nothing if none can be measured.
absl::StatusOr<std::optional<ClaimFigures>> MeasureClaims(
    const EvaluationParts& parts, const AnsweredProblems& answered) {
  ASSIGN_OR_RETURN(const ClaimMeter meter, ClaimMeter::Make(parts.tokenizer));
  const bool has_cross = ReadsView(parts.terms, ViewName::kCrossRollout) ||
                         ReadsView(parts.terms, ViewName::kCrossReference);
  const auto measure = [&](const View& view, std::span<const int32_t> answer) {
    const auto prompt =
        std::span(view.input_ids).first(static_cast<size_t>(view.scored_from));
    return meter.Measure(parts.weights, parts.policy.live(), prompt, answer);
  };
  const auto fits = [&](const View& view) {
    return static_cast<int64_t>(view.input_ids.size()) + meter.longest() <=
           parts.weights.config.max_positions;
  };
  ClaimFigures figures;
  std::vector<double> none;
  std::vector<double> cross;
  for (const PipelineInput& input : answered.inputs) {
    const RolloutResult& sampled = *input.known.at(0);
    ASSIGN_OR_RETURN(
        const Views views,
        BuildViews(parts, *input.problem, sampled.ids, /*context=*/{}));
    const View& alone = views[static_cast<size_t>(ViewName::kNoneRollout)];
    const View& shown = views[static_cast<size_t>(ViewName::kCrossRollout)];
    if (!fits(alone) || (has_cross && !fits(shown))) continue;
    const std::span<const int32_t> answer =
        WithoutEndToken(sampled.ids, sampled.finish_reason);
    none.push_back(measure(alone, answer));
    if (has_cross) cross.push_back(measure(shown, answer));
    if (figures.answers.size() == kClaimAnswers) continue;
    figures.answers.push_back(
        {.id = input.problem->id,
         .tokens = {answer.begin(), answer.end()},
         .places = meter.PlacesOf(answer),
         .none = none.back(),
         .cross = has_cross ? std::optional(cross.back()) : std::nullopt});
  }
  WarnOfLeftOut("the probability of claims",
                answered.inputs.size() - none.size(),
                answered.inputs.size(),
                parts.weights.config.max_positions);
  if (none.empty()) return std::nullopt;
  figures.problems = std::ssize(none);
  figures.none = MeanInterval(none);
  if (has_cross) figures.cross = MeanInterval(cross);
  return figures;
}

// Measures what evaluation.kl_problems problems are for.
absl::Status MeasureViews(const EvaluationParts& parts,
                          size_t problems,
                          EvaluationReport& report) {
  const auto answer = [&](const AnswerRules& rules) {
    return AnswerWhatFits(parts, rules, MakeInputs(parts, problems, 1));
  };
  const AnswerRules rules = UngradedRules(ReadsRollouts(parts.terms));
  ASSIGN_OR_RETURN(AnsweredProblems answered, answer(rules));
  WarnOfLeftOut("the divergences",
                problems - answered.inputs.size(),
                problems,
                parts.teacher_heads.positions);
  ASSIGN_OR_RETURN(report.divergences,
                   MeasureDivergences(parts, rules, answered));
  if (!parts.config.evaluation.claims) return absl::OkStatus();
  if (!rules.needs_answers) {
    ASSIGN_OR_RETURN(answered, answer(UngradedRules(/*needs_answers=*/true)));
  }
  ASSIGN_OR_RETURN(report.claims, MeasureClaims(parts, answered));
  return absl::OkStatus();
}

}  // namespace

std::string HeldOutDigest(const Config& config, const Dataset& held_out) {
  if (held_out.problems.empty()) return "";
  const EvaluationSection& asked = config.evaluation;
  return Sha256Hex(absl::StrCat(held_out.digest,
                                "\nprompt=",
                                asked.prompt,
                                "\nthinking=",
                                asked.thinking,
                                "\nsamples=",
                                asked.samples,
                                "\ntemperature=",
                                asked.temperature,
                                "\ntop_p=",
                                asked.top_p,
                                "\ntop_k=",
                                asked.top_k,
                                "\nmax_new_tokens=",
                                HeldOutAnswerTokens(config)));
}

absl::StatusOr<EvaluationReport> Evaluate(const EvaluationParts& parts) {
  const absl::Time start = SteadyNow();
  const Config& config = parts.config;
  const size_t problems = parts.held_out.problems.size();
  EvaluationReport report;
  report.policy_version = parts.policy.version();
  report.held_out_digest = HeldOutDigest(config, parts.held_out);
  report.problems = static_cast<int64_t>(problems);
  report.samples = config.evaluation.samples;
  ASSIGN_OR_RETURN(
      SubmittedBatch batch,
      parts.pipeline.Submit(MakeInputs(parts, problems, report.samples),
                            EvaluationSampling(config),
                            MakeHeldOutRules(/*needs_answers=*/true),
                            PromptOf(config, parts.views)));
  RETURN_IF_ERROR(parts.pipeline.Start(std::move(batch),
                                       /*at_base=*/{},
                                       /*with_scores=*/false));
  ASSIGN_OR_RETURN(
      const std::vector<RolloutRecord> records,
      parts.pipeline.CollectRollouts(
          /*on_accepted=*/nullptr, parts.grades.keep, parts.grades.recall));
  GradeAnswers(records, config.evaluation.marker, report);
  report.answers = ChooseHeldOutAnswers(records, report.samples);
  const size_t kl_problems =
      std::min(static_cast<size_t>(config.evaluation.kl_problems), problems);
  if (kl_problems > 0) {
    RETURN_IF_ERROR(MeasureViews(parts, kl_problems, report));
  }
  report.seconds = absl::ToDoubleSeconds(SteadyNow() - start);
  return report;
}

}  // namespace dapd
