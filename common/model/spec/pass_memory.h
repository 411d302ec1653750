// The device memory that the trainer's passes through the model may take: one
// rule, by which a trainer sets itself up and which `dapd check` prints.
//
// On a GPU, the memory that is free once the base and the policy are loaded is
// divided:
//   1. Everything that a step needs besides its passes is left free: gradients,
//      moments, the pushed adapter, scores, the loss, the layers that ranks
//      gather of a split base, and a twentieth of the device for holes.
//   2. A pass holds the inputs of all layers and works on one layer at a time.
//      That must fit for the longest sample, even if it alone is longer than
//      trainer.pack_tokens; packs are as long as memory allows, up to those
//      lengths.
//   3. The rest keeps activations, so that no layer of the longest samples'
//      pack runs again. If memory remains, half of it keeps what is trained
//      ahead, and the other half keeps activations of longer samples.
//   4. Only if the activations of the longest answers' pack would not all be
//      kept do answers pass forward in chunks, which keep none: then half of
//      the rest is for training ahead, including the chunks.
// A size that the configuration names (trainer.activation_memory_mib,
// trainer.ahead_memory_mib) stays as it is, and the remainder is divided.
//
// On a CPU, whose memory is the machine's, sizes are fixed: 1 GiB and 2 GiB
// unless the configuration names others, and packs as configured. On a CPU none
// of this changes a bit. On a GPU, packs and chunks change the result within
// rounding, so with model.deterministic they do not depend on memory: packs are
// as configured and never split, and nothing passes in chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "common/config/config.h"
#include "common/model/spec/further_teachers.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// Memory of a GPU, in bytes.
struct DeviceMemory {
  int64_t total = 0;
  int64_t free = 0;  // this process may still take it
  int64_t own = 0;   // this process has taken it
};

// Returns whether a plan is for a GPU: model.device is cuda, or auto on a
// machine with a GPU.
bool PlansForGpu(const Config& config);

// The part of a GPU, or of a process's even part of it, that the allocator
// cannot use or that workspaces of cuBLAS and NCCL take.
inline constexpr double kGpuHoles = 0.05;
// CUDA's context in each process.
inline constexpr double kGpuContextBytes = 0.6e9;

// The bytes that a trainer's step takes on a GPU besides base, passes and
// holes.
struct GpuStepMemory {
  double policy = 0;    // the live adapter and its snapshot
  double adapters = 0;  // gradients, moments, pushed, averaged, summed
  double scores = 0;    // a rank's part of a step's scores
  double loss = 0;      // its buffers, at any length (docs/cuda.md)
};
GpuStepMemory GpuStepMemoryOf(const Config& config,
                              const ModelConfig& model,
                              const FurtherTeachers& teachers = {});

// Returns the memory that one of `processes` that share a GPU evenly may take:
// never more than is free.
DeviceMemory ShareOf(DeviceMemory memory, int64_t processes);

struct TrainerLimits {
  int64_t pack_tokens = 0;   // tokens of a pass
  int64_t chunk_tokens = 0;  // tokens of a forward pass ahead; 0: whole answers
  int64_t activation_bytes = 0;  // kept by a pass
  int64_t ahead_bytes = 0;       // kept by training ahead
  // The number of layers whose activations a pass of the longest answers keeps.
  int64_t kept_layers = 0;
  int64_t longest_pack = 0;  // its tokens
  // Whether a pack that finds no memory may be split. False with
  // model.deterministic, because the gradients of other packs add up to other
  // bits.
  bool splits_packs = true;
};

// Returns the tokens of the longest pass that the trainer makes:
// trainer.pack_tokens or, if longer, all views of the longest sample.
int64_t MostPassTokens(const Config& config);
// Returns the tokens of a pass that must fit on a GPU: all views of the longest
// sample or, with model.deterministic, the longest pass, because memory may not
// change a pack.
int64_t LeastPassTokens(const Config& config);

// `gpu`: its memory once base, further teachers' heads and policy are loaded
// and no layer of a split base is gathered; none: a CPU. Returns a CONFIG error
// with the needed, free and total memory if not even the longest sample fits.
absl::StatusOr<TrainerLimits> PlanTrainerLimits(
    const Config& config,
    const ModelConfig& model,
    const std::optional<DeviceMemory>& gpu,
    const FurtherTeachers& teachers = {});

// Returns the memory, for plans, of a GPU of `total` bytes that only the
// trainer uses, once its base, further teachers' heads and policy are loaded.
DeviceMemory EmptyGpu(const Config& config,
                      const ModelConfig& model,
                      int64_t total,
                      const FurtherTeachers& teachers = {});

// Returns the bytes of the activations of a layer and token that a training
// pass keeps (common/model/fast/layer_pass.h). `number`: bytes of one of the
// model's numbers.
int64_t LayerActivationBytes(const ModelConfig& model,
                             int64_t lora_rank,
                             int64_t number);

// Returns "packs of 16384 tokens, answers whole, 12.3 GiB of activations (36 of
// 36 layers of the longest answers' pack, 8192 tokens), 20.1 GiB ahead".
std::string Describe(const TrainerLimits& limits, const ModelConfig& model);

}  // namespace dapd
