#include "services/trainer/step/pipeline_options.h"

#include <algorithm>

#include "common/model/fast/chunk_forward.h"
#include "services/trainer/step/batch_trainer_parts.h"

namespace dapd {
namespace {

// News of an answer more often than this costs more than it hides.
constexpr int64_t kLeastStride = 8;

}  // namespace

PipelineOptions MakePipelineOptions(const BatchTrainerParts& parts) {
  PipelineOptions options;
  options.scores.passes = TeacherPasses(parts.terms);
  options.records.scores_references = ScoresReferences(parts.terms);
  options.records.keeps_logprobs = std::ranges::any_of(
      parts.terms,
      [](const Term& term) { return term.importance != Importance::kNone; });
  options.records.reads_siblings =
      std::ranges::any_of(options.scores.passes, [](const TeacherPass& pass) {
        return pass.view == ViewName::kSiblingRollout;
      });
  options.scores.payload = parts.config.teacher.payload;
  options.scores.top_k = parts.config.teacher.top_k;
  options.scores.temperature = parts.config.objective.temperature;
  options.device = parts.weights->device();
  // With a lag, answers come while the step before is scored and trained.
  if (parts.config.rollout.max_staleness == 0) {
    if (parts.config.teacher.streaming) {
      options.teacher_prefix_stride =
          std::max(kLeastStride,
                   ChunkTokensFor(parts.config.teacher.chunk_tokens,
                                  parts.weights->device()) /
                       4);
    }
    if (parts.config.trainer.train_while_sampling) {
      options.forward_prefix_stride =
          std::max(kLeastStride, parts.config.trainer.chunk_tokens / 4);
    }
  }
  options.on_progress = parts.on_progress;
  return options;
}

}  // namespace dapd
