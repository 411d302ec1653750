#include "services/cli/position_probe.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/generation/available_memory.h"
#include "common/objective/position_gradient.h"

namespace dapd {
namespace {

// Adds factor * gradient to the mean.
void AddMean(const std::vector<at::Tensor>& gradient,
             double factor,
             std::vector<at::Tensor>* mean) {
  at::NoGradGuard no_grad;
  if (mean->empty()) {
    for (const at::Tensor& tensor : gradient) {
      mean->push_back(tensor * factor);
    }
    return;
  }
  for (size_t i = 0; i < gradient.size(); ++i) {
    (*mean)[i].add_(gradient[i], factor);
  }
}

// Returns how many problems can have a sum of their own.
absl::StatusOr<int64_t> SumsWithin(double memory_gib,
                                   const Adapter& adapter,
                                   int64_t problems) {
  const auto gib = static_cast<double>(int64_t{1} << 30);
  const auto each = static_cast<double>(GradientSums::BytesOfSum(adapter));
  const double memory = memory_gib > 0.0
                            ? memory_gib * gib
                            : static_cast<double>(AvailableMemory()) / 2;
  const auto sums = static_cast<int64_t>(
      std::min(static_cast<double>(problems), memory / each));
  if (sums < std::min<int64_t>(problems, 2)) {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrFormat(
            "an interval needs the gradients of two groups of problems, which "
            "take %.3g GiB for this adapter, but only %.3g GiB may be used: "
            "free memory, or raise --memory-gib",
            2 * each / gib,
            memory / gib)),
        ExitCode::kUsage);
  }
  if (sums < problems) {
    LogWarning(
        absl::StrFormat("%d problems share the memory of %d, so that the "
                        "intervals over all positions draw groups of problems. "
                        "--memory-gib %.3g gives each its own",
                        problems,
                        sums,
                        static_cast<double>(problems) * each / gib));
  }
  return sums;
}

}  // namespace

absl::StatusOr<PositionProbe> PositionProbe::Make(
    const Config& config,
    LocalPolicy local,
    int64_t problems,
    const PositionProbeOptions& options) {
  ASSIGN_OR_RETURN(
      const int64_t sums,
      SumsWithin(options.memory_gib, local.policy->live(), problems));
  return PositionProbe(config, std::move(local), sums, options);
}

PositionProbe::PositionProbe(const Config& config,
                             LocalPolicy local,
                             int64_t max_sums,
                             const PositionProbeOptions& options)
    : config_(&config),
      options_(options),
      local_(std::move(local)),
      limits_(MakePassLimits(config, *local_.weights)),
      sums_(max_sums) {}

PositionRange PositionProbe::PositionsOf(const Views& views) const {
  if (LacksTarget(first(), views) || LacksTarget(second(), views)) return {};
  const View& view = views[static_cast<size_t>(first().student)];
  return InteriorPositions(view.scored_count,
                           std::max(first().skip_tokens, second().skip_tokens));
}

absl::Status PositionProbe::MeasurePosition(const ScoredSample& sample,
                                            int64_t position,
                                            double factor) {
  const MicroBatchOptions micro_batch = {
      .head = {.temperature = config_->objective.temperature,
               .vocabulary = local_.teachers->vocabulary(),
               .bfloat16_logits =
                   config_->trainer.logits_precision == Precision::kBfloat16,
               .workspace = &workspace_},
      .limits = limits_};
  const auto gradient_of = [&](const Term& term) {
    return GradientAtPosition(*local_.weights,
                              local_.policy->live(),
                              term,
                              sample,
                              position,
                              micro_batch);
  };
  const PositionGradient one = gradient_of(first());
  const PositionGradient two = gradient_of(second());
  const PositionProducts products = {
      .problem = static_cast<size_t>(num_measured_),
      .dot = DotProduct(one.tensors, two.tensors),
      .first_norm = std::sqrt(DotProduct(one.tensors, one.tensors)),
      .second_norm = std::sqrt(DotProduct(two.tensors, two.tensors))};
  if (!std::isfinite(products.dot) || !std::isfinite(products.first_norm) ||
      !std::isfinite(products.second_norm)) {
    return DataError(absl::StrCat("sample '",
                                  sample.id,
                                  "': a gradient at position ",
                                  position,
                                  " is not finite"));
  }
  positions_.push_back(products);
  AddMean(one.tensors, factor, &first_mean_);
  AddMean(two.tensors, factor, &second_mean_);
  if (options_.lines == nullptr) return absl::OkStatus();
  const View& view = sample.views[static_cast<size_t>(first().student)];
  nlohmann::ordered_json line = {
      {"id", sample.id},
      {"problem", products.problem},
      {"position", position},
      {"token_id",
       view.input_ids[static_cast<size_t>(view.scored_from + position)]},
      {"first", {{"loss", one.loss}, {"norm", products.first_norm}}},
      {"second", {{"loss", two.loss}, {"norm", products.second_norm}}},
      {"dot", products.dot},
      {"cosine", nullptr}};
  if (const std::optional<double> cosine = products.Cosine()) {
    line["cosine"] = *cosine;
  }
  return options_.lines->Append(line);
}

absl::Status PositionProbe::MeasureProblem(const std::vector<SampleRow>& rows) {
  std::vector<ScoredSample> samples;
  std::vector<PositionRange> ranges;
  for (const SampleRow& row : rows) {
    ScoredSample sample{.id = row.sample.id};
    ASSIGN_OR_RETURN(
        sample.views,
        BuildViewsWithin(
            *local_.text.views, row.sample, local_.teachers->max_view()));
    ranges.push_back(PositionsOf(sample.views));
    samples.push_back(std::move(sample));
  }
  const std::vector<DrawnPosition> drawn =
      DrawPositions(ranges, options_.positions, options_.seed, num_drawn_++);
  if (drawn.empty()) return absl::OkStatus();
  first_mean_.clear();
  second_mean_.clear();
  const std::vector<TeacherPass> passes =
      TeacherPasses(config_->objective.terms);
  for (size_t i = 0; i < drawn.size(); ++i) {
    ScoredSample& sample = samples[drawn[i].answer];
    // An answer's positions follow each other.
    if (i == 0 || drawn[i].answer != drawn[i - 1].answer) {
      if (i > 0) samples[drawn[i - 1].answer].scores.clear();
      ASSIGN_OR_RETURN(sample.scores,
                       local_.teachers->Score(*local_.weights,
                                              *local_.policy,
                                              passes,
                                              rows[drawn[i].answer].teacher,
                                              sample.views));
    }
    RETURN_IF_ERROR(MeasurePosition(
        sample, drawn[i].position, 1.0 / static_cast<double>(drawn.size())));
  }
  sums_.Add(first_mean_, second_mean_);
  ++num_measured_;
  return absl::OkStatus();
}

absl::StatusOr<CompatibilityReport> PositionProbe::Finish() const {
  if (positions_.empty()) {
    return DataError(absl::StrCat(
        "none of ",
        num_skipped(),
        " problems has an answer with a position between its first and its "
        "last scored token at which both terms have a loss"));
  }
  return SummarizeCompatibility(positions_, sums_.Products(), options_.seed);
}

}  // namespace dapd
