// Converts DecodeRequest to and from messages between services
// (v1::GenerateRequest) and between the ranks of a worker (v1::StartCall). Both
// have the same four fields for it. Also converts the end of an answer and what
// it cost.
#pragma once

#include "absl/status/statusor.h"

#include "common/generation/decode_request.h"
#include "dapd/v1/rollout.pb.h"

namespace dapd {

void WriteSampling(const SamplingParams& sampling, v1::SamplingParams* message);
void WriteKey(const SamplingKey& key, v1::SamplingKey* message);
SamplingParams ReadSampling(const v1::SamplingParams& message);
SamplingKey ReadKey(const v1::SamplingKey& message);
// Return DATA_LOSS for a reason that this program does not know, and the
// message's value for a reason other than kNone.
absl::StatusOr<FinishReason> ReadFinishReason(
    v1::GenerationFinished::Reason reason);
v1::GenerationFinished::Reason WrittenReason(FinishReason reason);

void WriteCost(const MemoryCost& cost, v1::MemoryCost* message);
// Numbers above 2^50 become 2^50, so that sums over answers do not overflow.
MemoryCost ReadCost(const v1::MemoryCost& message);

template <typename Message>
void WriteRequest(const DecodeRequest& request, Message* message) {
  message->mutable_prompt_ids()->Add(request.prompt_ids.begin(),
                                     request.prompt_ids.end());
  WriteSampling(request.sampling, message->mutable_sampling());
  WriteKey(request.key, message->mutable_key());
  message->set_score_prompt(request.score_prompt);
}

// Receivers of a message from another process must check its numbers first.
template <typename Message>
DecodeRequest ReadRequest(const Message& message) {
  return {
      .prompt_ids = {message.prompt_ids().begin(), message.prompt_ids().end()},
      .sampling = ReadSampling(message.sampling()),
      .key = ReadKey(message.key()),
      .score_prompt = message.score_prompt()};
}

}  // namespace dapd
