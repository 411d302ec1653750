// The decode backend of the CPU: continuous batching over CpuDecoder.
//
// A step is one pass over the next token of every running sequence and, up to a
// budget of tokens, over the next piece of the waiting prompts, in the order of
// their Start. So a new prompt delays the running sequences by a bounded time,
// and the weights are read once for all. A resumed sequence gets prompt and
// answer as its prompt, since a pass gives a token the same bits whatever else
// is in the pass. A sequence that is swapped out stays where it is: it leaves
// the memory of the running sequences for the memory of the kept ones.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "common/generation/cpu/cpu_decoder.h"
#include "common/generation/decode_backend.h"

namespace dapd {

struct CpuDecodeBackendOptions {
  int64_t slots = 32;
  int64_t num_tokens = 0;  // ids that the tokenizer knows; 0: all
  // Tokens of one pass. Running sequences always get theirs.
  int64_t step_tokens = 256;
  CpuLevel level = CpuLevelInUse();
};

class CpuDecodeBackend : public DecodeBackend {
 public:
  CpuDecodeBackend(std::shared_ptr<const CpuModel> model,
                   const CpuDecodeBackendOptions& options);

  const ModelConfig& config() const override { return model_->config; }
  int64_t num_slots() const override { return options_.slots; }
  int64_t KvBytes(int64_t tokens) const override;
  // Returns half of the memory that the machine, or this process's control
  // group, has left.
  int64_t DefaultKvBudget() const override;
  // Returns a quarter of that memory.
  int64_t DefaultSwapBudget() const override;
  void SetAdapter(std::shared_ptr<const Adapter> adapter) override;
  // Returns false only if the system has no addresses left.
  bool Start(int64_t slot, DecodeRequest request) override;
  bool Resume(int64_t slot,
              DecodeRequest request,
              std::vector<int32_t> answer) override;
  bool ResumesFromTheStart() const override { return false; }
  // Always succeeds: memory is taken when it is written (cpu_kv_cache.h).
  bool Reserve(int64_t /*slot*/, int64_t /*tokens*/) override { return true; }
  void Stop(int64_t slot) override;
  int64_t SwapOut(int64_t slot, uint64_t key) override;
  bool SwapIn(int64_t slot, uint64_t key, int64_t tokens) override;
  void DropSwapped(uint64_t key) override { swapped_.erase(key); }
  std::vector<DecodedToken> Step() override;
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) override;

 private:
  struct Sequence {
    std::vector<int32_t> prompt;  // and the answer after which it was resumed
    SamplingParams sampling;
    SamplingKey key;
    CpuKvCache cache;
    int64_t num_sampled = 0;
    bool is_running = false;  // its prompt is done
    int32_t last_token = 0;

    int64_t PromptLeft() const {
      return static_cast<int64_t>(prompt.size()) - cache.length();
    }
  };
  // One piece of a pass, and whether a token is sampled from its last row.
  struct Piece {
    int64_t slot = 0;
    TokenRun run;
    bool samples = false;
  };
  std::vector<Piece> PlanStep();
  int64_t KnownTokens() const;
  // Returns the adapter, null for the base. Throws if the last adapter could
  // not be packed.
  const CpuAdapter* AdapterInUse() const;

  const std::shared_ptr<const CpuModel> model_;
  const CpuDecodeBackendOptions options_;
  const DecodeKernels& kernels_;
  CpuDecoder decoder_;
  std::optional<CpuAdapter> adapter_;             // none: the base
  bool packed_ = true;                            // adapter_ is complete
  std::vector<std::unique_ptr<Sequence>> slots_;  // null: free
  std::deque<int64_t> prefilling_;                // slots, first come first
  std::map<uint64_t, std::unique_ptr<Sequence>> swapped_;  // by key
};

}  // namespace dapd
