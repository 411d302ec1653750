// Makes models that the CUDA decoder accepts and requests to a decode backend,
// and serves requests, for tests that compare backends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/generation/decode_backend.h"
#include "tests/fakes/random_model.h"
#include "tests/fakes/trained_adapter.h"

namespace dapd {

// Returns a random model with a shape that the kernels accept.
inline std::shared_ptr<const ModelWeights> MakeDecodableModel(
    const std::string& family, at::ScalarType dtype = at::kFloat) {
  auto weights = std::make_shared<ModelWeights>(*MakeRandomModel(family));
  weights->config.head_dim = 16;
  weights->config.max_positions = 2048;
  DrawWeights(5, 0.3, dtype, weights.get());
  return weights;
}

// Returns a decodable model with a larger vocabulary, so a head of many
// columns.
inline std::shared_ptr<const ModelWeights> WideHeadModel(int64_t vocabulary,
                                                         at::ScalarType dtype) {
  auto weights = std::make_shared<ModelWeights>(*MakeRandomModel("qwen3"));
  weights->config.head_dim = 16;
  weights->config.max_positions = 2048;
  weights->config.vocab_size = vocabulary;
  DrawWeights(5, 0.3, dtype, weights.get());
  return weights;
}

// Returns a decodable model whose answers never end early.
inline std::shared_ptr<const ModelWeights> EndlessModel(
    at::ScalarType dtype = at::kFloat) {
  auto weights =
      std::make_shared<ModelWeights>(*MakeDecodableModel("qwen3", dtype));
  weights->config.eos_token_ids = {1000};
  return weights;
}

// Returns a model with a longer context, which needs graphs for several
// lengths.
inline std::shared_ptr<const ModelWeights> LongModel() {
  auto weights = std::make_shared<ModelWeights>(*EndlessModel());
  weights->config.max_positions = 40'960;
  return weights;
}

inline DecodeRequest MakeRequest(int64_t prompt,
                                 int64_t max_new_tokens,
                                 uint32_t i) {
  DecodeRequest request;
  for (int64_t t = 0; t < prompt; ++t) {
    request.prompt_ids.push_back(static_cast<int32_t>((i * 31 + t * 7) % 97));
  }
  request.sampling = {.temperature = i % 3 == 0 ? 0.0 : 1.1,
                      .top_k = i % 2 == 0 ? 20 : 0,
                      .top_p = 0.95,
                      .max_new_tokens = max_new_tokens};
  request.key = {.seed = 11, .step = 3, .example = i, .sample = 0};
  return request;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

// Runs the requests as the engine does: at most one per slot at a time.
inline std::map<size_t, Answer> Generate(
    DecodeBackend& backend, const std::vector<DecodeRequest>& requests) {
  std::map<size_t, Answer> answers;
  std::vector<int64_t> request_of_slot(static_cast<size_t>(backend.num_slots()),
                                       -1);
  size_t next = 0;
  size_t ended = 0;
  while (ended < requests.size()) {
    for (size_t slot = 0; slot < request_of_slot.size(); ++slot) {
      if (request_of_slot[slot] >= 0 || next == requests.size()) continue;
      request_of_slot[slot] = static_cast<int64_t>(next);
      backend.Start(static_cast<int64_t>(slot), requests[next++]);
    }
    for (size_t slot = 0; slot < request_of_slot.size(); ++slot) {
      if (request_of_slot[slot] < 0) continue;
      const auto index = static_cast<size_t>(request_of_slot[slot]);
      const DecodeRequest& request = requests[index];
      const auto known = static_cast<int64_t>(request.prompt_ids.size() +
                                              answers[index].tokens.size());
      backend.Reserve(
          static_cast<int64_t>(slot),
          std::min(known + backend.StepPositions(), request.MaxTokens()));
    }
    for (const DecodedToken& token : backend.Step()) {
      const int64_t request = request_of_slot[token.slot];
      if (request < 0) continue;  // token after the end of its answer
      Answer& answer = answers[static_cast<size_t>(request)];
      answer.tokens.push_back(token.token);
      answer.logprobs.push_back(token.logprob);
      const auto& ends = backend.config().eos_token_ids;
      if (std::find(ends.begin(), ends.end(), token.token) != ends.end() ||
          static_cast<int64_t>(answer.tokens.size()) ==
              requests[request].sampling.max_new_tokens) {
        backend.Stop(token.slot);
        request_of_slot[token.slot] = -1;
        ++ended;
      }
    }
  }
  return answers;
}

inline std::vector<DecodeRequest> MakeRequests() {
  std::vector<DecodeRequest> requests;
  for (uint32_t i = 0; i < 7; ++i) {
    requests.push_back(MakeRequest(3 + 60 * i, 5 + 9 * i, i));
  }
  // Adds a prompt of whole pages, and a prompt whose answer begins the second
  // page.
  requests.push_back(MakeRequest(256, 20, 8));
  requests.push_back(MakeRequest(127, 20, 9));
  return requests;
}

}  // namespace dapd
