#include "common/generation/decode_request_message.h"

#include <algorithm>

namespace dapd {

void WriteSampling(const SamplingParams& sampling,
                   v1::SamplingParams* message) {
  message->set_temperature(sampling.temperature);
  message->set_top_k(static_cast<uint32_t>(sampling.top_k));
  message->set_top_p(sampling.top_p);
  message->set_max_new_tokens(static_cast<uint32_t>(sampling.max_new_tokens));
}

void WriteKey(const SamplingKey& key, v1::SamplingKey* message) {
  message->set_seed(key.seed);
  message->set_step(key.step);
  message->set_example(key.example);
  message->set_sample(key.sample);
}

SamplingParams ReadSampling(const v1::SamplingParams& message) {
  return {.temperature = message.temperature(),
          .top_k = message.top_k(),
          .top_p = message.top_p(),
          .max_new_tokens = message.max_new_tokens()};
}

SamplingKey ReadKey(const v1::SamplingKey& message) {
  return {.seed = message.seed(),
          .step = message.step(),
          .example = message.example(),
          .sample = message.sample()};
}

void WriteCost(const MemoryCost& cost, v1::MemoryCost* message) {
  message->set_recomputed_tokens(static_cast<uint64_t>(cost.recomputed_tokens));
  message->set_swaps(static_cast<uint64_t>(cost.swaps));
  message->set_swapped_bytes(static_cast<uint64_t>(cost.swapped_bytes));
}

MemoryCost ReadCost(const v1::MemoryCost& message) {
  const auto bounded = [](uint64_t number) {
    return static_cast<int64_t>(std::min(number, uint64_t{1} << 50));
  };
  return {.recomputed_tokens = bounded(message.recomputed_tokens()),
          .swaps = bounded(message.swaps()),
          .swapped_bytes = bounded(message.swapped_bytes())};
}

}  // namespace dapd
