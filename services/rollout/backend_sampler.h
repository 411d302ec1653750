// A Sampler that runs a GenerationEngine over a backend.
#pragma once

#include <memory>

#include "common/generation/decode_backend.h"
#include "common/generation/engine.h"
#include "common/tensor/aten.h"
#include "services/rollout/sampler.h"

namespace dapd {

// `device`: where adapters are placed. If an upload fails half way (a device
// may run out of memory while it packs the weights), the weights that were
// served before are loaded again: at once, or, if this fails too, before the
// next sequence or probe.
std::unique_ptr<Sampler> MakeBackendSampler(
    std::unique_ptr<DecodeBackend> backend,
    at::Device device,
    const EngineOptions& options);

}  // namespace dapd
