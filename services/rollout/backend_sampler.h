// A Sampler that is a GenerationEngine over a backend.
#pragma once

#include <memory>

#include "common/generation/decode_backend.h"
#include "common/generation/engine.h"
#include "common/tensor/aten.h"
#include "services/rollout/sampler.h"

namespace dapd {

// `device`: that adapters go to. Where an upload fails half way (a device may
// run out of memory while it packs the weights) what was served before is
// loaded again: at once or, if that fails too, before anything is sampled or
// probed.
std::unique_ptr<Sampler> MakeBackendSampler(
    std::unique_ptr<DecodeBackend> backend,
    at::Device device,
    const EngineOptions& options);

}  // namespace dapd
