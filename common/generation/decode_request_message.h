// Converts DecodeRequest to and from messages between services
// (v1::GenerateRequest) and between the ranks of a worker (v1::StartCall). Both
// have the same three fields for it. Also converts what an answer cost.
#pragma once

#include "common/generation/decode_request.h"
#include "dapd/v1/rollout.pb.h"

namespace dapd {

void WriteSampling(const SamplingParams& sampling, v1::SamplingParams* message);
void WriteKey(const SamplingKey& key, v1::SamplingKey* message);
SamplingParams ReadSampling(const v1::SamplingParams& message);
SamplingKey ReadKey(const v1::SamplingKey& message);

void WriteCost(const MemoryCost& cost, v1::MemoryCost* message);
// Numbers above 2^50 become 2^50, so that sums over answers do not overflow.
MemoryCost ReadCost(const v1::MemoryCost& message);

template <typename Message>
void WriteRequest(const DecodeRequest& request, Message* message) {
  message->mutable_prompt_ids()->Add(request.prompt_ids.begin(),
                                     request.prompt_ids.end());
  WriteSampling(request.sampling, message->mutable_sampling());
  WriteKey(request.key, message->mutable_key());
}

// Receivers of a message from another process must check its numbers first.
template <typename Message>
DecodeRequest ReadRequest(const Message& message) {
  return {
      .prompt_ids = {message.prompt_ids().begin(), message.prompt_ids().end()},
      .sampling = ReadSampling(message.sampling()),
      .key = ReadKey(message.key())};
}

}  // namespace dapd
