#include "common/model/spec/rope_config.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"

namespace dapd {
namespace {

struct Rope {
  double theta = 10000.0;
  std::optional<RopeScaling> scaling;
};

// Reads a config.json that holds `more` beside other keys.
absl::StatusOr<Rope> Read(const std::string& more) {
  const nlohmann::json object =
      nlohmann::json::parse(R"({"hidden_size":64)" + more + "}");
  FieldReader reader(object, "config.json");
  Rope rope;
  ReadRope(reader,
           {.head_dim = 128, .max_positions = 131072},
           &rope.theta,
           &rope.scaling);
  if (!reader.status().ok()) return reader.status();
  return rope;
}

constexpr char kLlama3Numbers[] =
    R"("factor":32,"low_freq_factor":1,"high_freq_factor":4,)"
    R"("original_max_position_embeddings":8192)";

TEST(RopeConfigTest, ScalingIsReadInEverySpelling) {
  for (const std::string& more :
       {std::string(R"(,"rope_theta":5e5,"rope_scaling":{"type":"llama3",)"),
        std::string(
            R"(,"rope_theta":5e5,"rope_scaling":{"rope_type":"llama3",)"),
        std::string(
            R"(,"rope_parameters":{"rope_theta":5e5,"rope_type":"llama3",)"),
        std::string(
            R"(,"rope_parameters":{"rope_theta":5e5,"type":"llama3",)")}) {
    const auto rope = Read(more + kLlama3Numbers + "}");
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_EQ(rope->theta, 5e5);
    ASSERT_TRUE(rope->scaling.has_value()) << more;
    EXPECT_EQ(std::get<Llama3Rope>(*rope->scaling),
              (Llama3Rope{.factor = 32,
                          .low_freq_factor = 1,
                          .high_freq_factor = 4,
                          .original_positions = 8192}));
  }
  EXPECT_FALSE(Read("")->scaling.has_value());
  EXPECT_FALSE(
      Read(R"(,"rope_scaling":{"rope_type":"default"})")->scaling.has_value());
  EXPECT_EQ(
      std::get<LinearRope>(
          *Read(R"(,"rope_scaling":{"type":"linear","factor":2.5})")->scaling)
          .factor,
      2.5);
}

YarnRope ReadYarn(const std::string& more) {
  const auto rope = Read(
      R"(,"rope_theta":1e6,"rope_scaling":{"rope_type":"yarn")" + more + "}");
  EXPECT_TRUE(rope.ok()) << rope.status();
  return rope.ok() ? std::get<YarnRope>(*rope->scaling) : YarnRope();
}

// transformers treats zero and null as missing. It replaces a missing factor by
// the ratio of the two lengths, and a missing length by
// max_position_embeddings.
TEST(RopeConfigTest, WhatYarnDoesNotSayIsWhatTransformersTakes) {
  const std::string length = R"(,"original_max_position_embeddings":32768)";
  const YarnRope plain = ReadYarn(R"(,"factor":4)" + length);
  EXPECT_EQ(plain.factor, 4);
  EXPECT_DOUBLE_EQ(plain.attention_factor, 0.1 * std::log(4.0) + 1);
  for (const char* more : {R"(,"factor":4,"beta_fast":32,"beta_slow":1)",
                           R"(,"factor":4,"beta_fast":0)",
                           R"(,"factor":4,"mscale":0,"truncate":true)",
                           R"(,"factor":4,"mscale":2)",
                           R"(,"factor":4,"attention_factor":null)",
                           R"(,"factor":null)"}) {
    EXPECT_EQ(ReadYarn(more + length), plain) << more;
  }
  EXPECT_NE(ReadYarn(R"(,"factor":4,"truncate":null)" + length), plain);
  EXPECT_NE(ReadYarn(R"(,"factor":4)"), plain);
  EXPECT_EQ(ReadYarn(R"(,"factor":4,"mscale":1,"mscale_all_dim":1)" + length)
                .attention_factor,
            1);
}

TEST(RopeConfigTest, WhatIsIncompleteOrOtherIsRefusedByItsKey) {
  for (const auto& [more, named] :
       std::vector<std::pair<std::string, std::string>>{
           {R"({"rope_type":"llama3"})", "rope_scaling: factor is missing"},
           {R"({"rope_type":"yarn"})", "rope_scaling: factor is missing"},
           {R"({"type":"linear"})", "rope_scaling: factor is missing"},
           {R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,)"
            R"("high_freq_factor":4,"original_max_position_embeddings":8})",
            "high_freq_factor"},
           {R"({"rope_type":"llama3","factor":true})", "factor is true"},
           {R"({"rope_type":"yarn","factor":4,"beta_fast":-1})", "beta_fast"},
           {R"({"rope_type":"yarn","factor":4,"truncate":1})", "truncate"},
           {R"({"rope_type":"yarn","factor":4,"rope_theta":1})", "rope_theta"},
           {R"({"rope_type":"yarn","factor":4,"attention_factor":0})",
            "attention_factor is 0"},
           {R"({"type":"dynamic","factor":2})", "type is \"dynamic\", whose"},
           {R"({"rope_type":"longrope"})", "rope_type is \"longrope\", whose"},
           {R"({"rope_type":"mrope"})",
            "only default, linear, llama3 and yarn"},
           {R"({"rope_type":"default","partial_rotary_factor":0.5})",
            "partial_rotary_factor"},
           {R"({"full_attention":{"rope_theta":1}})",
            "layers of several kinds"},
           {"7", "rope_scaling is not an object"}}) {
    const absl::Status status = Read(",\"rope_scaling\":" + more).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << more;
    EXPECT_NE(status.message().find(named), absl::string_view::npos) << status;
  }
}

// The version of transformers decides which of the two counts.
TEST(RopeConfigTest, APretrainingContextBesideTheRopeMustAgreeWithIts) {
  const std::string rope =
      std::string(R"(,"rope_scaling":{"rope_type":"llama3",)") + kLlama3Numbers;
  const std::string outer = R"(},"original_max_position_embeddings":)";
  const auto same = Read(rope + outer + "8192");
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(std::get<Llama3Rope>(*same->scaling).original_positions, 8192);
  const absl::Status other = Read(rope + outer + "4096").status();
  EXPECT_EQ(ExitCodeOf(other), ExitCode::kData);
  EXPECT_NE(other.message().find("original_max_position_embeddings contradicts "
                                 "the rope's own, 8192"),
            absl::string_view::npos)
      << other;
  EXPECT_TRUE(Read(outer.substr(1) + "64").ok());
}

// If both exist, transformers reads rope_scaling alone.
TEST(RopeConfigTest, BothSpellingsMayStandIfTheyAgree) {
  const std::string numbers = std::string(kLlama3Numbers) + "}";
  const std::string old = R"(,"rope_scaling":{"rope_type":"llama3",)" + numbers;
  const std::string both =
      old + R"(,"rope_parameters":{"rope_theta":5e5,"rope_type":"llama3",)" +
      numbers;
  const auto rope = Read(R"(,"rope_theta":5e5)" + both);
  ASSERT_TRUE(rope.ok()) << rope.status();
  EXPECT_EQ(rope->theta, 5e5);
  EXPECT_TRUE(rope->scaling.has_value());
  EXPECT_EQ(
      Read(R"(,"rope_scaling":{},"rope_parameters":{"rope_theta":5e5})")->theta,
      5e5);
  for (const std::string& more :
       {both,  // rope_scaling alone gives a base of 10000
        R"(,"rope_theta":5e5)" + old +
            R"(,"rope_parameters":{"rope_theta":5e5})"}) {
    const absl::Status status = Read(more).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << more;
    EXPECT_NE(status.message().find("rope_parameters contradicts"),
              absl::string_view::npos)
        << status;
  }
}

}  // namespace
}  // namespace dapd
