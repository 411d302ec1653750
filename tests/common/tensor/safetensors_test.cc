#include "common/tensor/safetensors.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::HasSubstr;

HostTensor MakeTensor(std::vector<int64_t> shape, float first) {
  HostTensor tensor = HostTensor::Allocate(DType::kFloat32, shape).value();
  auto* values = reinterpret_cast<float*>(tensor.data.get());
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    values[i] = first + static_cast<float>(i);
  }
  return tensor;
}

std::string MakeFile() {
  return SerializeSafetensors({{"b", MakeTensor({2, 3}, 1)},
                               {"a", MakeTensor({4}, 10)},
                               {"empty", MakeTensor({0, 5}, 0)}},
                              {{"format", "pt"}})
      .value();
}

// Returns a file with this header and `data_bytes` zeros after it.
std::string WithHeader(const std::string& json, size_t data_bytes) {
  std::string bytes(8, '\0');
  const uint64_t length = json.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + json + std::string(data_bytes, '\0');
}

TEST(SafetensorsTest, WhatIsWrittenIsReadFromFileAndFromMemory) {
  const std::string path = TempPath("good.safetensors");
  ASSERT_TRUE(WriteSafetensors(
                  path,
                  {{"b", MakeTensor({2, 3}, 1)}, {"a", MakeTensor({4}, 10)}},
                  {{"format", "pt"}})
                  .ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const auto a = file->Read("a");
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->shape, std::vector<int64_t>{4});
  EXPECT_EQ(reinterpret_cast<const float*>(a->data.get())[3], 13.0F);
  EXPECT_FALSE(file->Read("c").ok());
  const auto tensors = ParseSafetensors(MakeFile(), "memory");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), 3u);
}

struct Hostile {
  std::string name, bytes, message;
};

TEST(SafetensorsTest, HostileFilesAreRefusedByName) {
  const std::string entry = R"("dtype":"F32","shape":[2],"data_offsets":)";
  const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\x7f";
  for (const Hostile& h : std::vector<Hostile>{
           {"empty", "", "too short"},
           {"short", "abc", "too short"},
           {"huge header", huge + "{}", "the header claims"},
           {"no object", WithHeader("[]", 0), "not a JSON object"},
           {"text behind", WithHeader("{}x", 0), "only spaces"},
           {"broken json", WithHeader("{\"a\":}", 0), "not valid JSON"},
           {"duplicate",
            WithHeader(
                "{\"a\":{" + entry + "[0,8]},\"a\":{" + entry + "[0,8]}}", 8),
            "occurs twice"},
           {"hole", WithHeader("{\"a\":{" + entry + "[4,12]}}", 12), "hole"},
           {"overlap",
            WithHeader(
                "{\"a\":{" + entry + "[0,8]},\"b\":{" + entry + "[4,12]}}", 12),
            "inside its predecessor"},
           {"backwards", WithHeader("{\"a\":{" + entry + "[8,0]}}", 8), "'a'"},
           {"negative",
            WithHeader("{\"a\":{" + entry + "[-8,0]}}", 8),
            "non-negative"},
           {"size", WithHeader("{\"a\":{" + entry + "[0,4]}}", 4), "8 bytes"},
           {"missing data",
            WithHeader("{\"a\":{" + entry + "[0,8]}}", 7),
            "truncated"},
           {"too much data",
            WithHeader("{\"a\":{" + entry + "[0,8]}}", 9),
            "the file has 9"},
           {"overflow",
            WithHeader(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],)"
                       R"("data_offsets":[0,0]}})",
                       0),
            "impossible"},
           {"rank",
            WithHeader(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],)"
                       R"("data_offsets":[0,1]}})",
                       1),
            "at most 8"},
           {"dtype",
            WithHeader(R"({"a":{"dtype":"F64","shape":[1],)"
                       R"("data_offsets":[0,8]}})",
                       8),
            "F64"},
           {"metadata",
            WithHeader(R"({"__metadata__":{"x":1}})", 0),
            "not a string"},
       }) {
    const absl::Status status = ParseSafetensors(h.bytes, "f").status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << h.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(h.message)) << h.name;
  }
}

// A flipped bit in the data changes a value unnoticed. A flipped bit or a cut
// elsewhere is refused, or changes only a name or the metadata.
TEST(SafetensorsTest, DamageNeverCrashesAndNeverGivesAWrongSize) {
  const std::string good = MakeFile();
  std::mt19937 engine(1);
  int refused = 0;
  constexpr int kTrials = 5000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::string bytes = good;
    if (trial % 4 == 0) {
      bytes.resize(engine() % bytes.size());
    } else {
      bytes[engine() % bytes.size()] ^= static_cast<char>(1U << (engine() % 8));
    }
    const auto tensors = ParseSafetensors(bytes, "damaged");
    if (!tensors.ok()) {
      ++refused;
      continue;
    }
    EXPECT_EQ(bytes.size(), good.size());
    int64_t total = 0;
    for (const auto& [name, tensor] : *tensors) total += tensor.num_bytes();
    EXPECT_EQ(total, 40);
  }
  RecordProperty("refused", refused);
  EXPECT_GT(refused, kTrials / 2);
}

TEST(SafetensorsTest, NamesMustBeUnique) {
  EXPECT_FALSE(SerializeSafetensors(
                   {{"a", MakeTensor({1}, 0)}, {"a", MakeTensor({1}, 0)}}, {})
                   .ok());
}

}  // namespace
}  // namespace dapd
