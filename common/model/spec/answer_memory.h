// The memory of a GPU that the keys and values of a rollout worker's answers
// may take: one rule, by which a worker sets itself up and which `dapd check`
// prints.
//
// A worker that is alone on its GPU takes what is free once the weights and the
// decoder are loaded, except for the memory that decoding takes later
// (decoding_memory.h: the adapter, prompts, graphs) and a twentieth of the
// device for holes (kGpuHoles). For a model of 4B on 80 GB that is 0.92 of the
// free memory. A worker that shares its GPU takes half of what is free, since
// the others will take theirs; so does a worker whose GPU has so little memory
// that half of it is more than the rest.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "common/model/spec/model_config.h"
#include "common/model/spec/pass_memory.h"

namespace dapd {

// Returns whether a process is alone on its GPU: what others hold is no more
// than contexts and workspaces take, kOwnOutside. `gpu` is the whole GPU.
inline constexpr int64_t kOwnOutside = int64_t{2} << 30;
bool IsAlone(const DeviceMemory& gpu);

// Returns the bytes for keys and values. `gpu`: the whole GPU when the weights
// and the decoder are loaded and no adapter is. rollout.kv_memory_mib comes
// first if it is set.
int64_t AnswerMemory(const Config& config,
                     const ModelConfig& model,
                     const DeviceMemory& gpu);

// Returns the memory, for plans, of a GPU of `total` bytes with a rollout
// worker that has loaded its weights, and nothing else.
DeviceMemory GpuOfWorker(const Config& config,
                         const ModelConfig& model,
                         int64_t total);

}  // namespace dapd
