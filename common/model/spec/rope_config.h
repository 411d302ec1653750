// Describes how a model stretches its rotary embedding (Su et al. 2021) beyond
// the context of its pretraining: rope_scaling or rope_parameters of its
// config.json, as numbers that do not depend on other settings. rope.h applies
// them.
//
// Only kinds with the same frequencies for every text are supported; "dynamic"
// and "longrope", whose frequencies depend on the length of the text, are
// refused.
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
// original_positions / low_freq_factor are divided by `factor`, frequencies
// whose wavelength is below original_positions / high_freq_factor stay
// unchanged, and the frequencies between them are a mixture of both.
struct Llama3Rope {
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;  // above low_freq_factor
  double original_positions = 8192.0;

  bool operator==(const Llama3Rope&) const = default;
};

// rope_type "yarn" (Peng et al. 2023): the frequencies up to number ramp_begin
// stay unchanged, the frequencies from number ramp_end on are divided by
// `factor`, and between them both are mixed in proportion to the number.
// Cosines and sines are multiplied by attention_factor, and scores thereby by
// its square.
struct YarnRope {
  double factor = 1.0;
  double attention_factor = 1.0;
  double ramp_begin = 0.0;
  double ramp_end = 1.0;  // differs from ramp_begin

  bool operator==(const YarnRope&) const = default;
};

using RopeScaling = std::variant<LinearRope, Llama3Rope, YarnRope>;

// Returns one line with every number of the scaling, with all digits.
std::string RopeScalingText(const RopeScaling& scaling);

// The other keys of config.json that rotary embeddings depend on.
struct RopeShape {
  int64_t head_dim = 0;
  int64_t max_positions = 0;
};

// Reads the old spelling, rope_theta and rope_scaling {type or rope_type, ...},
// or the new one, rope_parameters, which holds both. `theta` comes with its
// default; `scaling` stays empty for rope_type "default". Fails in `reader`, by
// its key, for a setting that versions of transformers read differently, and
// for every other rope_type.
void ReadRope(FieldReader& reader,
              const RopeShape& shape,
              double* theta,
              std::optional<RopeScaling>* scaling);

}  // namespace dapd
