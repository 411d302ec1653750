// Requests to a GenerationEngine over a model of random_model.h.
#pragma once

#include <cstdint>

#include "common/generation/decode_request.h"

namespace dapd {

// `prompt` ids that differ from request to request, and answers of at most
// `answer` tokens, drawn by a key of the request's own.
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
