// What the trainer's passes through the model may take of a device's memory:
// one rule, by which a trainer sets itself up and which `dapd check` prints.
//
// On a GPU, of what is free once the base and the policy are there:
//   1. what every step needs besides is left alone: gradients, moments, what is
//      pushed, scores, the loss, the layers that ranks gather of a split base,
//      a twentieth of the device for holes;
//   2. a pass holds the inputs of all layers and works on one layer at a time.
//      That has to fit for the longest sample, even if it alone is longer than
//      trainer.pack_tokens, and packs are as long as it allows, up to those;
//   3. the rest keeps activations, so that no layer of the longest samples'
//      pack runs again; half of what that does not need keeps what is trained
//      ahead, the other half activations of samples that are longer;
//   4. only if the activations of the longest answers' pack would not all be
//      kept do answers pass forward in chunks, which keep none: then half of
//      the rest is for what is trained ahead, chunks among it.
// A size that the configuration names (trainer.activation_memory_mib,
// trainer.ahead_memory_mib) stays as it is, and what remains is divided.
//
// On a CPU, whose memory is the machine's, sizes are fixed: 1 GiB and 2 GiB
// where the configuration names none, packs as configured. None of this changes
// a bit there; on a GPU packs and chunks are part of the result, within
// rounding, so with model.deterministic they do not depend on memory: packs are
// as configured and never split, and nothing passes in chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// Of a GPU, in bytes.
struct DeviceMemory {
  int64_t total = 0;
  int64_t free = 0;  // that this process may still take
  int64_t own = 0;   // that it has taken
};

// Whether a plan is for a GPU: model.device is cuda, or auto where this machine
// has one.
bool PlansForGpu(const Config& config);

// Of a GPU, or of the even part of one that a process plans with: what the
// allocator cannot use, workspaces of cuBLAS and NCCL.
inline constexpr double kGpuHoles = 0.05;
// CUDA's context in each process.
inline constexpr double kGpuContextBytes = 0.6e9;

// What a trainer's step takes on a GPU besides base, passes and holes, in
// bytes.
struct GpuStepMemory {
  double policy = 0;    // the live adapter and its snapshot
  double adapters = 0;  // gradients, moments, what is pushed, averaged, summed
  double scores = 0;    // of a step, a rank's part
  double loss = 0;      // its buffers, whatever the length (docs/cuda.md)
};
GpuStepMemory GpuStepMemoryOf(const Config& config, const ModelConfig& model);

// What one of `processes` that share a GPU evenly may take of it: never more
// than is free.
DeviceMemory ShareOf(DeviceMemory memory, int64_t processes);

struct TrainerLimits {
  int64_t pack_tokens = 0;       // of a pass
  int64_t chunk_tokens = 0;      // of a forward pass ahead; 0: answers whole
  int64_t activation_bytes = 0;  // kept of a pass
  int64_t ahead_bytes = 0;       // kept of what is trained ahead
  // Of the layers, those whose activations a pass of the longest answers keeps.
  int64_t kept_layers = 0;
  int64_t longest_pack = 0;  // its tokens
  // A pack that finds no memory may be split; not with model.deterministic, for
  // the gradients of other packs add up to other bits.
  bool splits_packs = true;
};

// Tokens of the longest pass that the trainer makes: trainer.pack_tokens or, if
// that is more, all views of one sample as long as it may be.
int64_t MostPassTokens(const Config& config);
// Of a pass that it has to be able to make on a GPU: such a sample's; with
// model.deterministic the longest, as memory may not change a pack.
int64_t LeastPassTokens(const Config& config);

// `gpu`: its memory once base and policy are loaded and no layer of a split
// base is gathered; none: a CPU. CONFIG error with what is needed, free and
// there in all if not even the longest sample fits.
absl::StatusOr<TrainerLimits> PlanTrainerLimits(
    const Config& config,
    const ModelConfig& model,
    const std::optional<DeviceMemory>& gpu);

// A GPU of `total` bytes that the trainer has for itself, once its base and
// policy are loaded: for plans.
DeviceMemory EmptyGpu(const Config& config,
                      const ModelConfig& model,
                      int64_t total);

// Activation bytes of a layer and token, as a training pass keeps them
// (common/model/fast/layer_pass.h); `number`: bytes of one of the model's.
int64_t LayerActivationBytes(const ModelConfig& model,
                             int64_t lora_rank,
                             int64_t number);

// "packs of 16384 tokens, answers whole, 12.3 GiB of activations (36 of 36
// layers of the longest answers' pack, 8192 tokens), 20.1 GiB ahead"
std::string Describe(const TrainerLimits& limits, const ModelConfig& model);

}  // namespace dapd
