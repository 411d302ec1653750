#include "services/trainer/workers/rollout_session.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/status_macros.h"
#include "common/generation/decode_request_message.h"
#include "common/rpc/transfer/served_policy.h"

namespace dapd {
namespace {

// Returns kNone for an unknown reason.
FinishReason FinishReasonOf(v1::GenerationFinished::Reason reason) {
  switch (reason) {
    case v1::GenerationFinished::REASON_EOS:
      return FinishReason::kEos;
    case v1::GenerationFinished::REASON_LENGTH:
      return FinishReason::kLength;
    default:
      return FinishReason::kNone;
  }
}

// The limit of the numbers that a worker may send; it exceeds the slots of any
// worker.
constexpr uint32_t kMaxSlots = 1 << 16;

// Rounding may lift the logarithm of a probability this far above 0.
constexpr float kLogprobRounding = 1e-3F;

bool IsLogprob(float value) {
  return std::isfinite(value) && value <= kLogprobRounding;
}

}  // namespace

std::unique_ptr<RolloutSession::Stream> RolloutSession::StartStream(
    grpc::Channel*, grpc::ClientContext* context) {
  MutexLock lock(&mutex_);
  partial_.clear();
  return stub().Generate(context);
}

v1::GenerateRequest RolloutSession::ToRequest(const RolloutTask& task) {
  const PolicyUpdate& policy = update(WeightSet::kLive);
  v1::GenerateRequest request;
  request.set_request_id(task.id);
  WriteRequest(task.request, &request);
  request.set_policy_version(policy.version);
  request.set_adapter_digest(policy.adapter.digest);
  MutexLock lock(&mutex_);
  Partial& partial = partial_[task.id];
  partial.max_new_tokens = task.request.sampling.max_new_tokens;
  partial.key = task.request.key;
  partial.result.id = task.id;
  return request;
}

std::optional<TaskAnswer<RolloutResult>> RolloutSession::Receive() {
  v1::GenerateResponse response;
  while (stream().Read(&response)) {
    const uint64_t id = response.request_id();
    MutexLock lock(&mutex_);
    const auto found = partial_.find(id);
    if (found == partial_.end()) {
      return TaskAnswer<RolloutResult>{
          id,
          absl::DataLossError(absl::StrCat(
              "an answer to task ", id, ", which the worker was not given"))};
    }
    if (response.has_tokens()) {
      const absl::Status added = AddTokens(response.tokens(), found->second);
      if (added.ok()) {
        on_tokens_(id, found->second.result.ids);
        continue;
      }
      partial_.erase(found);
      return TaskAnswer<RolloutResult>{id, added};
    }
    Partial partial = std::move(found->second);
    const SamplingKey key = partial.key;
    partial_.erase(found);
    if (response.has_finished()) {
      TaskAnswer<RolloutResult> answer{
          id, Finish(response.finished(), std::move(partial))};
      if (timeline() != nullptr && answer.result.ok() &&
          response.finished().has_times()) {
        Record(response.finished().times(), key, *answer.result);
      }
      return answer;
    }
    return TaskAnswer<RolloutResult>{
        id,
        FromWireError(response.failed().code(), response.failed().message())};
  }
  return std::nullopt;
}

absl::Status RolloutSession::AddTokens(const v1::TokensSampled& tokens,
                                       Partial& partial) {
  RolloutResult& result = partial.result;
  const auto count = static_cast<int64_t>(result.ids.size());
  if (tokens.first_index() != count ||
      tokens.ids_size() != tokens.logprobs_size() ||
      count + tokens.ids_size() > partial.max_new_tokens) {
    return absl::DataLossError(absl::StrCat("tokens out of order: ",
                                            tokens.ids_size(),
                                            " from index ",
                                            tokens.first_index(),
                                            " with ",
                                            tokens.logprobs_size(),
                                            " log-probabilities, after ",
                                            count,
                                            " of at most ",
                                            partial.max_new_tokens));
  }
  for (int i = 0; i < tokens.ids_size(); ++i) {
    if (tokens.ids(i) < 0 || tokens.ids(i) >= expected().vocab_size ||
        !IsLogprob(tokens.logprobs(i))) {
      return absl::DataLossError(absl::StrCat("sampled token ",
                                              tokens.ids(i),
                                              " with log-probability ",
                                              tokens.logprobs(i),
                                              " in a vocabulary of ",
                                              expected().vocab_size));
    }
  }
  result.ids.insert(result.ids.end(), tokens.ids().begin(), tokens.ids().end());
  result.logprobs.insert(result.logprobs.end(),
                         tokens.logprobs().begin(),
                         tokens.logprobs().end());
  return absl::OkStatus();
}

absl::StatusOr<RolloutResult> RolloutSession::Finish(
    const v1::GenerationFinished& finished, Partial partial) const {
  RolloutResult& result = partial.result;
  const PolicyUpdate& policy = update(WeightSet::kLive);
  if (finished.policy_version() != policy.version ||
      finished.adapter_digest() != policy.adapter.digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "sampled by ",
        PolicyName(finished.policy_version(), finished.adapter_digest()),
        ", but the request was for ",
        PolicyName(policy.version, policy.adapter.digest)));
  }
  result.finish_reason = FinishReasonOf(finished.reason());
  if (result.finish_reason == FinishReason::kNone) {
    return absl::DataLossError(absl::StrCat(
        "an answer that ended for an unknown reason: ", finished.reason()));
  }
  if (finished.num_tokens() != result.ids.size() || result.ids.empty()) {
    return absl::DataLossError(absl::StrCat("an answer of ",
                                            finished.num_tokens(),
                                            " tokens, of which ",
                                            result.ids.size(),
                                            " arrived"));
  }
  RETURN_IF_ERROR(CheckEnd(result, partial.max_new_tokens));
  result.policy_version = finished.policy_version();
  result.adapter_digest = finished.adapter_digest();
  result.cost = ReadCost(finished.memory_cost());
  return std::move(result);
}

absl::Status RolloutSession::CheckEnd(const RolloutResult& result,
                                      int64_t max_new_tokens) const {
  const bool is_cut = result.finish_reason == FinishReason::kLength;
  if (is_cut && static_cast<int64_t>(result.ids.size()) < max_new_tokens) {
    return absl::DataLossError(absl::StrCat("an answer that is said to be cut ",
                                            "off after ",
                                            result.ids.size(),
                                            " of ",
                                            max_new_tokens,
                                            " tokens"));
  }
  const std::vector<int64_t>& ends = expected().end_ids;
  if (ends.empty()) return absl::OkStatus();
  const auto first_end = std::ranges::find_first_of(result.ids, ends);
  const auto expected_end =
      is_cut ? result.ids.end() : std::prev(result.ids.end());
  if (first_end == expected_end) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("an answer of ",
                   result.ids.size(),
                   " tokens that ends with ",
                   result.ids.back(),
                   is_cut ? ", cut off," : "",
                   " and has its first end token at index ",
                   first_end - result.ids.begin(),
                   " (the trainer's model ends with ",
                   absl::StrJoin(ends, ", "),
                   "); give the worker the same generation_config.json"));
}

void RolloutSession::Record(const v1::SampleTimes& times,
                            const SamplingKey& key,
                            const RolloutResult& result) {
  if (times.slot() >= kMaxSlots || times.started() > times.first_token() ||
      times.first_token() > times.ended()) {
    return;
  }
  const std::string track = absl::StrCat("slot ", times.slot());
  const absl::Time started = absl::FromUnixNanos(times.started());
  const absl::Time first_token = absl::FromUnixNanos(times.first_token());
  const absl::Duration waited = started - absl::FromUnixNanos(times.arrived());
  // Keys count steps from 0.
  const std::vector<std::pair<std::string, int64_t>> facts = {
      {"step", static_cast<int64_t>(key.step) + 1},
      {"example", key.example},
      {"sample", key.sample},
      {"tokens", static_cast<int64_t>(result.ids.size())},
      {"waited_us", absl::ToInt64Microseconds(waited)}};
  timeline()->Add(peer(),
                  track,
                  {.name = "prefill",
                   .begin = started,
                   .end = first_token,
                   .facts = facts});
  timeline()->Add(peer(),
                  track,
                  {.name = "sampling",
                   .begin = first_token,
                   .end = absl::FromUnixNanos(times.ended()),
                   .facts = facts});
}

}  // namespace dapd
