#include "services/teacher/model_scorer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/model/fast/chunk_forward.h"
#include "common/tensor/torch_bridge.h"
#include "services/teacher/chunk_plan.h"
#include "services/teacher/prefix_cache.h"
#include "services/teacher/score_payload.h"
#include "services/teacher/scoring_weights.h"

namespace dapd {
namespace {

// A view of a running request.
struct OpenView {
  ViewName name = ViewName::kNoneRollout;
  const View* view = nullptr;
  PrefixChunkPtr
      last;  // the last chunk to score; null once its payload was launched
  ScoreWork work;
};

// A running request.
struct OpenJob {
  const ScoreJob* job = nullptr;
  std::vector<OpenView> views;
  size_t started = 0;  // views whose payload was launched
  size_t sent = 0;
  ScoreWork work;
  absl::Status status;

  bool is_open() const { return status.ok() && sent < views.size(); }
};

// A view's scores on their way to the host.
struct PendingView {
  OpenJob* job = nullptr;
  PayloadTensors tensors;
};
struct PendingPass {
  LaunchedWork work;
  std::vector<PendingView> views;
};

// Returns the tokens of a view up to the last token that predicts a scored
// token.
std::span<const int32_t> NeededIds(const View& view) {
  return std::span(view.input_ids)
      .first(static_cast<size_t>(view.scored_from + view.scored_count - 1));
}

// Returns the final-norm hidden states of the view's scored tokens,
// [scored_count, hidden].
at::Tensor HiddenOf(const View& view, const PrefixChunk* last) {
  const int64_t first = view.scored_from - 1;
  std::vector<at::Tensor> parts;
  for (const PrefixChunk* chunk = last; chunk->end > first;
       chunk = chunk->parent.get()) {
    const int64_t begin = chunk->parent->end;
    const int64_t skipped = std::max<int64_t>(first - begin, 0);
    parts.push_back(
        chunk->states.hidden.narrow(0, skipped, chunk->end - begin - skipped));
  }
  std::ranges::reverse(parts);
  return at::cat(parts, 0);
}

class ModelScorer : public Scorer {
 public:
  ModelScorer(ModelWeights weights,
              const ScoringShape& shape,
              int64_t prefix_bytes,
              const LoraConfig* lora,
              std::unique_ptr<const Adapter> own)
      : weights_(std::move(weights), lora, std::move(own)),
        shape_(shape),
        cache_(prefix_bytes) {
    roots_[WeightSet::kBase] = std::make_shared<const PrefixChunk>();
  }

  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload& upload) override {
    ASSIGN_OR_RETURN(AppliedAdapter applied, weights_.Load(upload));
    // The chunks of the set's old weights follow the old root, and are not
    // found any more.
    roots_[upload.set] = std::make_shared<const PrefixChunk>();
    return applied;
  }

  absl::StatusOr<AppliedAdapter> Probe(
      WeightSet set, const std::vector<int32_t>& probe_ids) override {
    return weights_.Probe(set, probe_ids);
  }

  absl::StatusOr<ScoreWork> Score(const ScoreInput& input,
                                  const ViewSink& sink) override {
    const ScoreJob job = {&input, sink};
    return ScoreTogether({&job, 1}).front();
  }

  int64_t most_together() const override { return shape_.most_together; }

  std::vector<absl::StatusOr<ScoreWork>> ScoreTogether(
      std::span<const ScoreJob> jobs) override {
    std::vector<OpenJob> open(jobs.size());
    // A pass has the weights of one set.
    std::map<WeightSet, std::vector<OpenJob*>> by_set;
    for (size_t i = 0; i < jobs.size(); ++i) {
      open[i].job = &jobs[i];
      for (const auto& [name, view] : jobs[i].input->views) {
        open[i].views.push_back({.name = name, .view = &view});
      }
      by_set[jobs[i].input->weights].push_back(&open[i]);
    }
    for (const auto& [set, same] : by_set) ScoreSet(set, same);
    std::vector<absl::StatusOr<ScoreWork>> outcomes;
    for (const OpenJob& job : open) {
      if (job.status.ok()) {
        outcomes.emplace_back(job.work);
      } else {
        outcomes.emplace_back(job.status);
      }
    }
    return outcomes;
  }

  int64_t chunk_tokens() const override { return shape_.chunk_tokens; }

  absl::StatusOr<int64_t> Advance(
      std::span<const AheadSequence> sequences) override {
    std::vector<WeightSet> sets;  // ordered by their first sequences
    for (const AheadSequence& sequence : sequences) {
      if (std::ranges::find(sets, sequence.weights) == sets.end()) {
        sets.push_back(sequence.weights);
      }
    }
    for (const WeightSet set : sets) {
      ASSIGN_OR_RETURN(const int64_t advanced, AdvanceSet(set, sequences));
      if (advanced > 0) return advanced;
    }
    return 0;
  }

  void Forget() override { cache_.Clear(); }

 private:
  // Implements Advance for the sequences of one set.
  absl::StatusOr<int64_t> AdvanceSet(WeightSet set,
                                     std::span<const AheadSequence> sequences) {
    const auto size = static_cast<size_t>(shape_.chunk_tokens);
    const int64_t bytes = ChunkBytes(weights_.base(), shape_.chunk_tokens);
    const int64_t rows = std::max(shape_.pass_tokens, shape_.chunk_tokens);
    ChunkPlan plan(cache_, shape_.chunk_tokens);
    std::vector<std::pair<HeldPrefix*, PrefixChunkPtr>> reached;
    int64_t advanced = 0;
    bool is_full = false;
    for (const AheadSequence& sequence : sequences) {
      if (sequence.weights != set || is_full) continue;
      HeldPrefix* prefix = sequence.prefix;
      PrefixChunkPtr chunk =
          prefix->tokens == 0
              ? roots_.at(set)
              : std::static_pointer_cast<const PrefixChunk>(prefix->hold);
      const int64_t before = chunk->end;
      const std::span<const int32_t> ids(*sequence.ids);
      while (!is_full && static_cast<size_t>(chunk->end) + size <= ids.size()) {
        const auto next = ids.subspan(static_cast<size_t>(chunk->end), size);
        PrefixChunkPtr there = plan.Find(chunk, next);
        if (there == nullptr) {
          is_full = plan.tokens() + shape_.chunk_tokens > rows ||
                    !cache_.MakeRoom((plan.tokens() / shape_.chunk_tokens + 1) *
                                     bytes);
          if (is_full) break;
          there = plan.Add(chunk, next);
        }
        chunk = std::move(there);
        // A request that does not need the others must not wait for them.
        is_full = !shape_.has_fixed_rows;
      }
      if (chunk->end == before) continue;
      advanced += chunk->end - before;
      reached.emplace_back(prefix, std::move(chunk));
    }
    // A pass of few rows leaves most of a GPU idle, which costs more than
    // computing these rows later.
    if (shape_.has_fixed_rows && 2 * plan.tokens() < rows && !plan.empty()) {
      return 0;
    }
    RETURN_IF_ERROR(CatchTorch([&] {
      const c10::InferenceMode no_gradients;
      if (!plan.empty()) Compute(set, plan.TakePass(rows));
      return absl::OkStatus();
    }));
    for (auto& [prefix, chunk] : reached) {
      prefix->tokens = chunk->end;
      prefix->hold = std::move(chunk);
    }
    return advanced;
  }

  // Scores the jobs together or, if memory is short, one by one.
  void ScoreSet(WeightSet set, const std::vector<OpenJob*>& jobs) {
    absl::Status status = TryToScore(set, jobs);
    if (absl::IsResourceExhausted(status) && jobs.size() > 1) {
      for (OpenJob* job : jobs) {
        if (!job->is_open()) continue;
        cache_.Clear();
        const absl::Status alone = TryToScore(set, {job});
        if (!alone.ok()) job->status = alone;
      }
      return;
    }
    for (OpenJob* job : jobs) {
      if (job->is_open() && !status.ok()) job->status = status;
    }
  }

  // Scores the views that were not sent yet. An error applies to all open jobs.
  absl::Status TryToScore(WeightSet set, const std::vector<OpenJob*>& jobs) {
    const absl::Status status = CatchTorch([&]() -> absl::Status {
      const c10::InferenceMode no_gradients;
      ChunkPlan plan(cache_, shape_.chunk_tokens);
      for (OpenJob* job : jobs) PlanJob(set, plan, job);
      std::optional<PendingPass> before;
      while (true) {
        const std::vector<ChunkPlan::Open> pass =
            plan.TakePass(shape_.pass_tokens);
        if (!pass.empty()) Compute(set, pass);
        std::vector<PendingView> views = StartViews(jobs);
        PendingPass launched{LaunchedWork(device()), std::move(views)};
        // A GPU gets the next pass before the host sends this pass's views; a
        // CPU sends them before it computes the next pass.
        const bool is_last = plan.empty();
        bool all_wanted = true;
        if (before.has_value()) all_wanted = Send(*before);
        before.reset();
        if (is_last || device().is_cpu()) {
          all_wanted = Send(launched) && all_wanted;
        } else {
          before = std::move(launched);
        }
        if (is_last) return absl::OkStatus();
        if (!all_wanted) LeaveOutDone(jobs, plan);
      }
    });
    for (OpenJob* job : jobs) {
      for (OpenView& view : job->views) view.last.reset();
      job->started = job->sent;
    }
    return status;
  }

  void PlanJob(WeightSet set, ChunkPlan& plan, OpenJob* job) {
    for (size_t i = job->sent; i < job->views.size(); ++i) {
      OpenView& open = job->views[i];
      const std::span<const int32_t> ids = NeededIds(*open.view);
      const int64_t before = plan.tokens();
      open.last = plan.AddPath(roots_.at(set), ids);
      open.work.computed_tokens = plan.tokens() - before;
      open.work.reused_tokens =
          static_cast<int64_t>(ids.size()) - open.work.computed_tokens;
    }
  }

  // Sets the states of the chunks, and keeps the whole chunks.
  void Compute(WeightSet set, const std::vector<ChunkPlan::Open>& pass) {
    std::map<const PrefixChunk*, int64_t> places;
    std::vector<NextChunk> chunks;
    int64_t tokens = 0;
    for (const ChunkPlan::Open& chunk : pass) {
      NextChunk next{.ids = chunk->ids,
                     .begin = chunk->parent->end,
                     .is_kept = IsWhole(*chunk)};
      const auto parent = places.find(chunk->parent.get());
      if (parent != places.end()) {
        next.parent = parent->second;
      } else {
        for (const PrefixChunk* before = chunk->parent.get(); before->end > 0;
             before = before->parent.get()) {
          next.past.push_back(before->states.keys_values);
        }
        std::ranges::reverse(next.past);
      }
      places[chunk.get()] = static_cast<int64_t>(chunks.size());
      tokens += static_cast<int64_t>(chunk->ids.size());
      chunks.push_back(std::move(next));
    }
    std::vector<ChunkStates> states = weights_.Forward(
        set, chunks, shape_.has_fixed_rows ? shape_.pass_tokens : tokens);
    for (size_t i = 0; i < pass.size(); ++i) {
      pass[i]->states = std::move(states[i]);
      if (IsWhole(*pass[i])) {
        cache_.Insert(pass[i],
                      ChunkBytes(weights_.base(), shape_.chunk_tokens));
      } else {
        // No chunk continues it.
        pass[i]->states.keys_values = at::Tensor();
      }
    }
  }

  bool IsWhole(const PrefixChunk& chunk) const {
    return static_cast<int64_t>(chunk.ids.size()) == shape_.chunk_tokens;
  }

  // Launches the payloads of the next views that are computed.
  std::vector<PendingView> StartViews(const std::vector<OpenJob*>& jobs) const {
    std::vector<PendingView> started;
    for (OpenJob* job : jobs) {
      while (job->status.ok() && job->started < job->views.size()) {
        OpenView& open = job->views[job->started];
        if (!IsComputed(*open.last)) break;
        started.push_back({job,
                           StartPayload(weights_.base(),
                                        *job->job->input,
                                        HiddenOf(*open.view, open.last.get()),
                                        shape_.head_rows)});
        open.last.reset();
        ++job->started;
      }
    }
    return started;
  }

  // Waits for a pass and gives its views to their sinks. Returns false if a
  // sink wants no further views.
  static bool Send(PendingPass& pass) {
    if (pass.views.empty()) return true;
    pass.work.Wait();
    bool all_wanted = true;
    for (const auto& [job, tensors] : pass.views) {
      if (!job->status.ok()) continue;
      const OpenView& view = job->views[job->sent++];
      job->work.computed_tokens += view.work.computed_tokens;
      job->work.reused_tokens += view.work.reused_tokens;
      absl::StatusOr<ViewScores> scores = FinishPayload(view.name, tensors);
      if (!scores.ok()) {
        job->status = scores.status();
      } else if (!job->job->sink(*std::move(scores))) {
        job->status = absl::CancelledError("the client has disconnected");
      }
      all_wanted = all_wanted && job->status.ok();
    }
    return all_wanted;
  }

  static void LeaveOutDone(const std::vector<OpenJob*>& jobs, ChunkPlan& plan) {
    std::vector<PrefixChunkPtr> needed;
    for (const OpenJob* job : jobs) {
      if (!job->status.ok()) continue;
      for (const OpenView& view : job->views) {
        if (view.last != nullptr) needed.push_back(view.last);
      }
    }
    plan.KeepOnly(needed);
  }

  at::Device device() const { return weights_.base().device(); }

  ScoringWeights weights_;
  const ScoringShape shape_;
  PrefixCache cache_;
  // The state that all sequences of a set share.
  std::map<WeightSet, PrefixChunkPtr> roots_;
};

}  // namespace

ScoringShape ScoringShapeFor(const TeacherSection& config, at::Device device) {
  ScoringShape shape;
  shape.chunk_tokens = ChunkTokensFor(config.chunk_tokens, device);
  if (!device.is_cuda()) return shape;
  shape.has_fixed_rows = true;
  shape.pass_tokens = std::max(kGpuScoringRows, shape.chunk_tokens);
  shape.most_together = kGpuScoringRequests;
  shape.head_rows = kGpuScoringHeadRows;
  return shape;
}

std::unique_ptr<Scorer> MakeModelScorer(
    std::shared_ptr<const ModelWeights> weights,
    const ScoringShape& shape,
    int64_t prefix_bytes,
    const LoraConfig* lora,
    std::unique_ptr<const Adapter> own) {
  ModelWeights base = *weights;
  weights.reset();  // so that packing can release the projections
  return std::make_unique<ModelScorer>(
      std::move(base), shape, prefix_bytes, lora, std::move(own));
}

}  // namespace dapd
