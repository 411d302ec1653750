// The memory for keys and values that a worker gives its answers.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "common/model/spec/model_config.h"
#include "common/tensor/aten.h"

namespace dapd {

// Returns bytes, by answer_memory.h; 0: the decode backend decides, because the
// device is a CPU or LibTorch's operations decode the model. Must be called
// when the backend is made and before it gets an adapter.
int64_t KvMemoryBytes(const Config& config,
                      const ModelConfig& model,
                      at::Device device);

}  // namespace dapd
