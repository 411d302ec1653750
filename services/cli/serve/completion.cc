#include "services/cli/serve/completion.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/base/steady_time.h"

namespace dapd {
namespace {

// How often it is asked whether the client is still there.
constexpr absl::Duration kPresenceInterval = absl::Milliseconds(200);

uint64_t DrawnSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

const char* NameOf(CompletionEnd end) {
  switch (end) {
    case CompletionEnd::kStop:
      return "stop";
    case CompletionEnd::kLength:
      return "length";
    case CompletionEnd::kNone:
      break;
  }
  return "";
}

void CompletionPiece::Append(const CompletionPiece& next) {
  answer = next.answer;
  prompt_scores.insert(prompt_scores.end(),
                       next.prompt_scores.begin(),
                       next.prompt_scores.end());
  text += next.text;
  ids.insert(ids.end(), next.ids.begin(), next.ids.end());
  logprobs.insert(logprobs.end(), next.logprobs.begin(), next.logprobs.end());
  end = next.end;
}

OpenCompletion::OpenCompletion(WorkerDesk& desk,
                               const Tokenizer& tokenizer,
                               const CompletionRequest& request,
                               const std::vector<std::vector<int32_t>>& prompts,
                               const CompletionLimits& limits,
                               std::function<bool()> gives_up)
    : desk_(desk),
      tokenizer_(tokenizer),
      kind_(request.kind),
      stops_(request.stop),
      limits_(limits),
      gives_up_(std::move(gives_up)),
      deadline_(SteadyNow() + limits.time) {
  const uint64_t seed = request.seed.has_value() ? *request.seed : DrawnSeed();
  for (size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    for (int64_t sample = 0; sample < request.n; ++sample) {
      DecodeRequest& added = requests_.emplace_back();
      added.prompt_ids = prompts[prompt];
      added.sampling = request.sampling;
      // Workers sample at least one token; it costs no pass of its own.
      added.sampling.max_new_tokens =
          std::max<int64_t>(1, limits.max_new_tokens);
      added.key = {.seed = seed,
                   .example = static_cast<uint32_t>(prompt),
                   .sample = static_cast<uint32_t>(sample)};
      added.score_prompt = request.ScoresPrompts() && sample == 0;
    }
  }
  open_ = requests_.size();
}

absl::Status OpenCompletion::Begin() {
  batch_ = nullptr;
  num_tokens_ = 0;
  answers_.clear();
  for (size_t i = 0; i < requests_.size(); ++i) {
    answers_.push_back({.text = AnswerText(tokenizer_, stops_)});
  }
  open_ = requests_.size();
  ASSIGN_OR_RETURN(
      batch_, desk_.Start(requests_, deadline_, limits_.patience, gives_up_));
  policy_ = batch_->policy();
  return absl::OkStatus();
}

absl::Status OpenCompletion::Recover(const absl::Status& error) {
  const bool may_pass =
      absl::IsFailedPrecondition(error) || absl::IsUnavailable(error);
  if (!may_pass) return error;
  const std::string why(error.message());
  if (is_told_) {
    return absl::UnavailableError(
        absl::StrCat("the answer cannot be continued, since a part of it was "
                     "sent and its worker has changed or was lost (",
                     why,
                     "): ask again"));
  }
  if (num_tries_ >= kMaxTries) {
    return absl::UnavailableError(absl::StrCat(
        "the answer was begun ", kMaxTries, " times and lost, lastly: ", why));
  }
  ++num_tries_;
  return Begin();
}

absl::StatusOr<CompletionPiece> OpenCompletion::ToPiece(AnswerEvent event) {
  Answer& answer = answers_[event.answer];
  CompletionPiece piece{.answer = event.answer,
                        .prompt_scores = std::move(event.prompt_scores)};
  if (limits_.max_new_tokens == 0) {
    if (event.finish_reason != FinishReason::kNone) {
      piece.end = CompletionEnd::kLength;
      --open_;
    }
    return piece;
  }
  num_tokens_ += static_cast<int64_t>(event.ids.size());
  answer.held_ids.insert(
      answer.held_ids.end(), event.ids.begin(), event.ids.end());
  answer.held_logprobs.insert(
      answer.held_logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  // The last token may be the end token, which only the next event tells.
  const bool is_end = event.finish_reason != FinishReason::kNone;
  size_t count = answer.held_ids.size();
  if (!is_end || event.finish_reason == FinishReason::kEos) {
    count -= std::min<size_t>(count, 1);
  }
  piece.ids.assign(answer.held_ids.begin(), answer.held_ids.begin() + count);
  piece.logprobs.assign(answer.held_logprobs.begin(),
                        answer.held_logprobs.begin() + count);
  answer.held_ids.erase(answer.held_ids.begin(),
                        answer.held_ids.begin() + count);
  answer.held_logprobs.erase(answer.held_logprobs.begin(),
                             answer.held_logprobs.begin() + count);
  // A worker may be ahead of us: tokens behind a stop are not the answer's.
  size_t used = 0;
  while (used < piece.ids.size() && !answer.text.stopped()) {
    RETURN_IF_ERROR(answer.text.Append({piece.ids[used++]}));
  }
  if (answer.text.stopped()) {
    num_tokens_ -=
        static_cast<int64_t>(piece.ids.size() - used + answer.held_ids.size());
    piece.ids.resize(used);
    piece.logprobs.resize(used);
  }
  if (is_end) RETURN_IF_ERROR(answer.text.Finish());
  // Only the end token is still held back.
  if (kind_ == CompletionKind::kText && is_end && !answer.text.stopped()) {
    piece.ids.insert(
        piece.ids.end(), answer.held_ids.begin(), answer.held_ids.end());
    piece.logprobs.insert(piece.logprobs.end(),
                          answer.held_logprobs.begin(),
                          answer.held_logprobs.end());
  }
  piece.text = answer.text.Take();
  if (answer.text.stopped()) {
    piece.end = CompletionEnd::kStop;
    if (!is_end) batch_->Cancel(event.answer);
  } else if (is_end) {
    piece.end = event.finish_reason == FinishReason::kEos
                    ? CompletionEnd::kStop
                    : CompletionEnd::kLength;
  }
  if (piece.end != CompletionEnd::kNone) --open_;
  return piece;
}

absl::StatusOr<CompletionPiece> OpenCompletion::Receive() {
  if (batch_ == nullptr) RETURN_IF_ERROR(Begin());
  while (true) {
    if (gives_up_()) return absl::CancelledError("the client has left");
    std::optional<AnswerEvent> event = batch_->NextFor(kPresenceInterval);
    if (event.has_value() && event->error.ok()) {
      return ToPiece(*std::move(event));
    }
    if (event.has_value()) {
      RETURN_IF_ERROR(Recover(event->error));
    } else if (SteadyNow() > deadline_ + absl::Seconds(5)) {
      // gRPC's own deadline ends each call earlier.
      return absl::DeadlineExceededError("the time for the answer has passed");
    }
  }
}

absl::StatusOr<CompletionPiece> OpenCompletion::Next() {
  while (true) {
    ASSIGN_OR_RETURN(CompletionPiece piece, Receive());
    if (piece.ids.empty() && piece.text.empty() &&
        piece.prompt_scores.empty() && piece.end == CompletionEnd::kNone) {
      continue;
    }
    is_told_ = true;
    return piece;
  }
}

absl::StatusOr<std::vector<CompletionPiece>> OpenCompletion::All() {
  std::vector<CompletionPiece> whole(requests_.size());
  int tries = num_tries_;
  while (!done()) {
    ASSIGN_OR_RETURN(const CompletionPiece piece, Receive());
    if (num_tries_ != tries) {
      tries = num_tries_;
      whole.assign(requests_.size(), {});
    }
    whole[piece.answer].Append(piece);
  }
  return whole;
}

}  // namespace dapd
