// Merges an adapter into its base model and writes a whole Hugging Face folder,
// for programs that load models but no adapters.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "common/model/weights/adapter.h"

namespace dapd {

struct MergedModel {
  int64_t modules = 0;  // changed projections
  int64_t shards = 0;
  uint64_t bytes = 0;  // of all tensors
};

// Writes `output`: every tensor of the safetensors in `base`, with the
// adapter's projections as W + (alpha / rank) B A (Hu et al. 2021, eq. 3),
// computed in float32 and rounded to their dtype in `base`. The tensors keep
// their order, in shards of at most `max_shard_bytes` with their index, or in
// one model.safetensors if they fit. Copies the other files of `base`
// (configuration, tokenizer, chat template), but not weights in other formats,
// its README and its folders. `card` becomes README.md; empty: none.
//
// Holds one tensor at a time. Writes aside, syncs and renames: `output` is
// complete or absent.
//   ALREADY_EXISTS      `output` exists and is no empty folder
//   RESOURCE_EXHAUSTED  the disk has no room for it; checked first
//   INVALID_ARGUMENT    the base lacks a weight that the adapter changes, or
//                       has it in another shape or in no floating point; or a
//                       sum is not finite in its dtype
absl::StatusOr<MergedModel> WriteMergedModel(const std::string& base,
                                             const Adapter& adapter,
                                             const std::string& output,
                                             uint64_t max_shard_bytes,
                                             const std::string& card = "");

}  // namespace dapd
