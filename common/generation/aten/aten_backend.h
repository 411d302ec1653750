// The decode backend that uses LibTorch's operations only
// (common/model/reference/decoder.h), on any device. It is the reference
// implementation that the other backends are tested against. It decodes models
// that no faster backend computes and, on CPUs, models that several ranks
// share.
//
// Every step computes all slots, also the empty slots, so that a sequence's
// bits do not depend on its neighbours (matrix libraries choose their summation
// order by shape). For the same reason each prompt is prefilled by itself, and
// a resumed sequence starts from its beginning, since a prefill would sum in
// another order.
//
// A full cache is copied into one that is about an eighth larger. Its size
// depends on the number of tokens alone.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/generation/decode_backend.h"
#include "common/generation/decoder_model.h"
#include "common/model/reference/kv_cache.h"

namespace dapd {

class AtenBackend : public DecodeBackend {
 public:
  // `num_tokens` is the number of ids that the tokenizer knows; 0 means the
  // whole vocabulary. With `kv_float8` keys and values are rounded to Float8
  // (KvCache), also within a prompt.
  AtenBackend(DecoderModel model,
              int64_t slots,
              int64_t num_tokens,
              bool kv_float8 = false);
  ~AtenBackend() override;

  const ModelConfig& config() const override { return model_.config(); }
  int64_t num_slots() const override {
    return static_cast<int64_t>(slots_.size());
  }
  int64_t KvBytes(int64_t tokens) const override;
  // Returns this rank's share of half of the host's available memory; on other
  // devices there is no limit.
  int64_t DefaultKvBudget() const override;
  void SetAdapter(std::shared_ptr<const Adapter> adapter) override;
  bool Start(int64_t slot, DecodeRequest request) override;
  bool Reserve(int64_t slot, int64_t tokens) override;
  void Stop(int64_t slot) override;
  std::vector<DecodedToken> Step() override;
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) override;

 private:
  struct Sequence;

  // Samples the next token of a slot from its logits.
  DecodedToken Sample(int64_t slot, const at::Tensor& logits);
  std::vector<DecodedToken> DecodeRunning();
  // Does ScoreTokens through a cache, one token after the other.
  std::vector<float> ScoreByDecoding(const std::vector<int32_t>& ids) const;
  // Takes a cache with room for `tokens` tokens.
  KvCache TakeCache(int64_t tokens) const;

  const ModelWeights& weights() const { return model_.weights(); }

  DecoderModel model_;
  const int64_t num_tokens_;
  const bool kv_float8_;
  std::vector<std::unique_ptr<Sequence>> slots_;  // null: free
};

}  // namespace dapd
