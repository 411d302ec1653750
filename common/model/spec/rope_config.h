// How a model stretches its rotary embedding (Su et al. 2021) beyond the
// context of its pretraining: what rope_scaling or rope_parameters of its
// config.json says, in numbers that no longer depend on anything else. rope.h
// applies them.
//
// Only kinds whose frequencies are the same for every text are here: the
// frequencies of "dynamic" and "longrope" depend on the length of the text, so
// they are refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "common/model/spec/field_reader.h"

namespace dapd {

// rope_type "linear": every frequency is divided by `factor`.
struct LinearRope {
  double factor = 1.0;

  bool operator==(const LinearRope&) const = default;
};

// rope_type "llama3", of Llama 3.1 to 3.3: frequencies whose wavelength exceeds
// original_positions / low_freq_factor are divided by `factor`, those with one
// below original_positions / high_freq_factor stay, between them both are
// mixed.
struct Llama3Rope {
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;  // above low_freq_factor
  double original_positions = 8192.0;

  bool operator==(const Llama3Rope&) const = default;
};

// rope_type "yarn" (Peng et al. 2023): the frequencies up to number ramp_begin
// stay, those from number ramp_end on are divided by `factor`, between them
// both are mixed in proportion to the number. Cosines and sines are multiplied
// by attention_factor, as scores then are by its square.
struct YarnRope {
  double factor = 1.0;
  double attention_factor = 1.0;
  double ramp_begin = 0.0;
  double ramp_end = 1.0;  // not ramp_begin

  bool operator==(const YarnRope&) const = default;
};

using RopeScaling = std::variant<LinearRope, Llama3Rope, YarnRope>;

// One line that holds every number of the scaling with all its digits.
std::string RopeScalingText(const RopeScaling& scaling);

// The other keys of config.json that rotary embeddings depend on.
struct RopeShape {
  int64_t head_dim = 0;
  int64_t max_positions = 0;
};

// The old spelling is rope_theta and rope_scaling {type or rope_type, ...}, the
// new one rope_parameters, which holds both. `theta` comes with its default;
// `scaling` is left empty for rope_type "default". What transformers would read
// differently by its version, and every other rope_type, fails in `reader` by
// its key.
void ReadRope(FieldReader& reader,
              const RopeShape& shape,
              double* theta,
              std::optional<RopeScaling>* scaling);

}  // namespace dapd
