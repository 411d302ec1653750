// The named sets of frozen weights that a teacher's pass can be read with.
#pragma once

namespace dapd {

enum class WeightSet {
  kBase,      // the model with the adapter off
  kSnapshot,  // the periodic copy of the adapter
};

}  // namespace dapd
