#include "services/teacher/score_request.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/rpc/transfer/wire_weights.h"

namespace dapd {
namespace {

absl::StatusOr<Payload> FromWirePayload(v1::Payload payload) {
  switch (payload) {
    case v1::PAYLOAD_HIDDEN_STATES:
      return Payload::kHiddenStates;
    case v1::PAYLOAD_LOGITS:
      return Payload::kLogits;
    case v1::PAYLOAD_TOP_K:
      return Payload::kTopK;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("payload ", static_cast<int>(payload), " is unknown"));
  }
}

// `Message`: v1::ScoreView or v1::ViewPrefix. `length`: the view's tokens so
// far.
template <typename Message>
absl::Status CheckTokens(const Message& message,
                         int64_t length,
                         const WorkerDescription& limits) {
  const std::string where = absl::StrCat("view '", message.name(), "': ");
  if (length > limits.max_positions) {
    return absl::InvalidArgumentError(
        absl::StrCat(where,
                     length,
                     " tokens do not fit the model's ",
                     limits.max_positions,
                     " positions"));
  }
  for (int i = 0; i < message.input_ids_size(); ++i) {
    const int32_t id = message.input_ids(i);
    if (id < 0 || id >= limits.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat(where,
                       "input_ids[",
                       i,
                       "] is ",
                       id,
                       ", outside the vocabulary of ",
                       limits.vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<View> ParseView(const v1::ScoreView& message,
                               const WorkerDescription& limits) {
  const int64_t length = message.input_ids_size();
  RETURN_IF_ERROR(CheckTokens(message, length, limits));
  const auto from = static_cast<int64_t>(message.scored_from());
  const auto count = static_cast<int64_t>(message.scored_count());
  if (from < 1 || count < 1 || from + count > length) {
    return absl::InvalidArgumentError(
        absl::StrCat("view '",
                     message.name(),
                     "': scored range [",
                     from,
                     ", ",
                     from + count,
                     ") must be non-empty and lie in [1, ",
                     length,
                     ")"));
  }
  return View{
      {message.input_ids().begin(), message.input_ids().end()}, from, count};
}

absl::Status CheckNumViews(int views, int least) {
  if (views >= least && views <= kNumViews) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a request with ",
                                                 views,
                                                 " views; ",
                                                 least,
                                                 " to ",
                                                 kNumViews,
                                                 " are allowed"));
}

absl::Status CheckTopK(const v1::ScoreRequest& message,
                       const WorkerDescription& limits) {
  if (message.top_k() < 1 || message.top_k() > limits.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_k is ",
                     message.top_k(),
                     "; it must lie in 1 to the vocabulary's ",
                     limits.vocab_size));
  }
  if (!std::isfinite(message.temperature()) || message.temperature() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "temperature is ", message.temperature(), "; it must be above 0"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TeacherRequest> ParseScoreRequest(
    const v1::ScoreRequest& message, const WorkerDescription& limits) {
  TeacherRequest request;
  request.request_id = message.request_id();
  request.policy_version = message.policy_version();
  request.adapter_digest = message.adapter_digest();
  ASSIGN_OR_RETURN(request.input.weights, FromWireWeights(message.weights()));
  ASSIGN_OR_RETURN(request.input.payload, FromWirePayload(message.payload()));
  if (request.input.payload == Payload::kTopK) {
    RETURN_IF_ERROR(CheckTopK(message, limits));
    request.input.top_k = message.top_k();
    request.input.temperature = message.temperature();
  }
  RETURN_IF_ERROR(CheckNumViews(message.views_size(), 1));
  for (const v1::ScoreView& message_view : message.views()) {
    ASSIGN_OR_RETURN(const ViewName name, ParseViewName(message_view.name()));
    ASSIGN_OR_RETURN(View view, ParseView(message_view, limits));
    if (!request.input.views.emplace(name, std::move(view)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("view '", message_view.name(), "' occurs twice"));
    }
  }
  return request;
}

absl::StatusOr<PrefixUpdate> ParsePrefixUpdate(
    const v1::ScoreRequest& message, const WorkerDescription& limits) {
  PrefixUpdate update;
  update.request_id = message.request_id();
  update.policy_version = message.policy_version();
  update.adapter_digest = message.adapter_digest();
  ASSIGN_OR_RETURN(update.weights, FromWireWeights(message.weights()));
  RETURN_IF_ERROR(CheckNumViews(message.prefix().views_size(), 0));
  for (const v1::ViewPrefix& view : message.prefix().views()) {
    ASSIGN_OR_RETURN(const ViewName name, ParseViewName(view.name()));
    const auto first = static_cast<int64_t>(view.first_index());
    RETURN_IF_ERROR(CheckTokens(view, first + view.input_ids_size(), limits));
    update.views.push_back(
        {name, first, {view.input_ids().begin(), view.input_ids().end()}});
  }
  return update;
}

}  // namespace dapd
