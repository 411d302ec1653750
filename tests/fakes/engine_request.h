// Makes requests to a GenerationEngine over a model of random_model.h.
#pragma once

#include <cstdint>

#include "common/generation/decode_request.h"

namespace dapd {

// Returns a request with `prompt` ids, which differ between requests, and an
// answer of at most `answer` tokens, which is drawn with the request's own key.
inline DecodeRequest EngineRequest(uint64_t id,
                                   int64_t prompt,
                                   int64_t answer) {
  DecodeRequest request;
  for (int64_t i = 0; i < prompt; ++i) {
    request.prompt_ids.push_back(static_cast<int32_t>(
        2 + (id * 31 + static_cast<uint64_t>(i) * 7) % 90));
  }
  request.sampling = {.temperature = 1.0, .max_new_tokens = answer};
  request.key = {.seed = 5, .example = static_cast<uint32_t>(id)};
  return request;
}

}  // namespace dapd
