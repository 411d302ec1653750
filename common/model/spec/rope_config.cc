#include "common/model/spec/rope_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/overloaded.h"

namespace dapd {
namespace {

using nlohmann::json;

constexpr char kOriginalPositions[] = "original_max_position_embeddings";

// The content of either spelling.
struct Rope {
  double theta = 0.0;
  std::optional<RopeScaling> scaling;

  bool operator==(const Rope&) const = default;
};

// Returns the length of the texts of pretraining. transformers 5 reads
// config.json's own entry, and transformers 4 reads the entry of the rope.
double OriginalPositions(FieldReader& reader,
                         FieldReader& rope,
                         const RopeShape& shape) {
  const double outer = reader.Positive(
      kOriginalPositions, static_cast<double>(shape.max_positions));
  const double inner = rope.Positive(kOriginalPositions, outer);
  if (reader.Has(kOriginalPositions) && inner != outer) {
    reader.Fail(
        kOriginalPositions,
        absl::StrCat("contradicts the rope's own, ", inner, "; remove it"));
  }
  return inner;
}

Llama3Rope ReadLlama3(FieldReader& rope, double original_positions) {
  Llama3Rope llama3;
  llama3.factor = rope.Positive("factor", std::nullopt);
  llama3.low_freq_factor = rope.Positive("low_freq_factor", std::nullopt);
  llama3.high_freq_factor = rope.Positive("high_freq_factor", std::nullopt);
  llama3.original_positions = original_positions;
  if (llama3.high_freq_factor <= llama3.low_freq_factor) {
    rope.Fail("high_freq_factor", "must be above low_freq_factor");
  }
  return llama3;
}

// Returns equation 22 of the paper in the operations of transformers.
double AttentionFactor(FieldReader& rope, double factor) {
  const auto scale = [factor](double weight) {
    return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
  };
  const double of_one = rope.PositiveOrUnset("mscale", 0.0);
  const double of_all = rope.PositiveOrUnset("mscale_all_dim", 0.0);
  const bool has_both = of_one > 0.0 && of_all > 0.0;
  return rope.Positive("attention_factor",
                       has_both ? scale(of_one) / scale(of_all) : scale(1.0));
}

YarnRope ReadYarn(FieldReader& rope,
                  const RopeShape& shape,
                  double theta,
                  double original_positions) {
  YarnRope yarn;
  // transformers reads null as the ratio of the two lengths, and refuses a
  // missing key.
  const double ratio =
      static_cast<double>(shape.max_positions) / original_positions;
  const bool is_null = rope.object().contains("factor") && !rope.Has("factor");
  yarn.factor =
      rope.Positive("factor", is_null ? std::optional(ratio) : std::nullopt);
  yarn.attention_factor = AttentionFactor(rope, yarn.factor);
  if (theta <= 1.0) {
    rope.Fail("rope_theta", absl::StrCat("is ", theta, "; it must be above 1"));
    return yarn;
  }
  // The number of the frequency that makes `turns` turns in the original
  // context.
  const auto number_of = [&](double turns) {
    return static_cast<double>(shape.head_dim) *
           std::log(original_positions / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double begin = number_of(rope.PositiveOrUnset("beta_fast", 32.0));
  double end = number_of(rope.PositiveOrUnset("beta_slow", 1.0));
  const bool truncate = rope.object().contains("truncate")
                            ? rope.Boolean("truncate", false)
                            : true;
  if (truncate) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  yarn.ramp_begin = std::max(begin, 0.0);
  yarn.ramp_end = std::min(end, static_cast<double>(shape.head_dim - 1));
  if (yarn.ramp_end == yarn.ramp_begin) yarn.ramp_end += 0.001;
  return yarn;
}

// `object` is config.json's rope_scaling or rope_parameters, named by `key`.
Rope ReadRopeObject(const json& object,
                    const char* key,
                    const RopeShape& shape,
                    FieldReader& reader,
                    double theta) {
  Rope read{.theta = theta};
  if (!object.is_object()) {
    reader.Fail(key, "is not an object");
    return read;
  }
  FieldReader rope(object, key);
  // {"full_attention": {"rope_theta": ...}} is refused, because its numbers
  // would be ignored.
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      rope.Fail(name,
                "is an object; layers of several kinds are not supported");
    }
  }
  read.theta = rope.Positive("rope_theta", theta);
  // Every part of a head turns; another share would be ignored silently.
  if (rope.Positive("partial_rotary_factor", 1.0) != 1.0) {
    rope.Fail("partial_rotary_factor", "other than 1 is not supported");
  }
  const char* type_key = rope.Has("rope_type") ? "rope_type" : "type";
  const json type = rope.Has(type_key) ? object[type_key] : json("default");
  if (type == "linear") {
    read.scaling = LinearRope{.factor = rope.Positive("factor", std::nullopt)};
  } else if (type == "llama3") {
    read.scaling = ReadLlama3(rope, OriginalPositions(reader, rope, shape));
  } else if (type == "yarn") {
    read.scaling = ReadYarn(
        rope, shape, read.theta, OriginalPositions(reader, rope, shape));
  } else if (type == "dynamic" || type == "longrope") {
    rope.Fail(type_key,
              absl::StrCat("is ",
                           type.dump(),
                           ", whose frequencies depend on the length of the "
                           "text; default, linear, llama3 and yarn are "
                           "supported"));
  } else if (type != "default") {
    rope.Fail(type_key,
              absl::StrCat("is ",
                           type.dump(),
                           "; only default, linear, llama3 and yarn are "
                           "supported"));
  }
  reader.Take(rope.status());
  return read;
}

}  // namespace

std::string RopeScalingText(const RopeScaling& scaling) {
  return std::visit(
      Overloaded{[](const LinearRope& linear) {
                   return absl::StrFormat("linear %.17g", linear.factor);
                 },
                 [](const Llama3Rope& llama3) {
                   return absl::StrFormat("llama3 %.17g %.17g %.17g %.17g",
                                          llama3.factor,
                                          llama3.low_freq_factor,
                                          llama3.high_freq_factor,
                                          llama3.original_positions);
                 },
                 [](const YarnRope& yarn) {
                   return absl::StrFormat("yarn %.17g %.17g %.17g %.17g",
                                          yarn.factor,
                                          yarn.attention_factor,
                                          yarn.ramp_begin,
                                          yarn.ramp_end);
                 }},
      scaling);
}

void ReadRope(FieldReader& reader,
              const RopeShape& shape,
              double* theta,
              std::optional<RopeScaling>* scaling) {
  Rope rope{.theta = reader.Positive("rope_theta", *theta)};
  if (reader.Positive("partial_rotary_factor", 1.0) != 1.0) {
    reader.Fail("partial_rotary_factor", "other than 1 is not supported");
  }
  std::optional<Rope> found;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    // An empty object counts as absent.
    if (!reader.Has(key) || reader.object()[key].empty()) continue;
    Rope read =
        ReadRopeObject(reader.object()[key], key, shape, reader, rope.theta);
    if (found.has_value() && read != *found) {
      // transformers would read only rope_scaling.
      reader.Fail(key, "contradicts rope_scaling; remove one of them");
    }
    found = std::move(read);
  }
  if (found.has_value()) rope = *std::move(found);
  *theta = rope.theta;
  *scaling = std::move(rope.scaling);
}

}  // namespace dapd
