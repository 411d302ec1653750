// Input: scalars, each with 1 byte that chooses the value, 4 bytes of the step,
// and a tag that ends with a zero byte.
// A slow reader finds every scalar again, with good checksums.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/metrics/tensorboard_writer.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

struct Scalar {
  std::string tag;
  int64_t step = 0;
  double value = 0.0;
};

// Cuts records and protobuf fields; checks every read against the end.
class SlowReader {
 public:
  explicit SlowReader(std::string bytes) : bytes_(std::move(bytes)) {}

  bool done() const { return at_ == bytes_.size(); }
  std::string Take(size_t count) {
    Check(count <= bytes_.size() - at_, "nothing is cut off");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  template <typename Value>
  Value Fixed() {
    Value value;
    std::memcpy(&value, Take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = Fixed<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    Check(false, "a varint has at most ten bytes");
    return 0;
  }
  // Reads the tag of a field that must have this number; the caller knows its
  // wire type.
  void Field(uint64_t number) {
    Check(Varint() >> 3 == number, "fields come in their order");
  }
  std::string Bytes() { return Take(Varint()); }

 private:
  const std::string bytes_;
  size_t at_ = 0;
};

uint32_t Unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8U;
  return (rotated >> 17) | (rotated << 15);
}

// Computes the checksum bit by bit, without a table.
uint32_t SlowCrc(const std::string& bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    }
  }
  return ~crc;
}

std::string TakeRecord(SlowReader& file) {
  const std::string length = file.Take(8);
  Check(Unmasked(file.Fixed<uint32_t>()) == SlowCrc(length),
        "the length's checksum is good");
  uint64_t size = 0;
  std::memcpy(&size, length.data(), sizeof(size));
  const std::string event = file.Take(size);
  Check(Unmasked(file.Fixed<uint32_t>()) == SlowCrc(event),
        "the event's checksum is good");
  return event;
}

void CheckScalar(const std::string& bytes, const Scalar& expected) {
  SlowReader event(bytes);
  event.Field(1);
  Check(event.Fixed<double>() > 0, "there is a time");
  event.Field(2);
  Check(static_cast<int64_t>(event.Varint()) == expected.step,
        "the step survives");
  event.Field(5);
  SlowReader summary(event.Bytes());
  Check(event.done(), "an event ends with its summary");
  summary.Field(1);
  SlowReader value(summary.Bytes());
  value.Field(1);
  Check(value.Bytes() == expected.tag, "the tag survives");
  value.Field(2);
  const auto number = value.Fixed<float>();
  const auto rounded = static_cast<float>(expected.value);
  Check(number == rounded || (std::isnan(number) && std::isnan(rounded)),
        "the value survives");
  Check(value.done() && summary.done(), "nothing follows");
}

std::vector<Scalar> TakeScalars(InputReader input) {
  constexpr double kValues[] = {0.0,
                                -1.5,
                                1e300,
                                1e-300,
                                std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()};
  std::vector<Scalar> scalars;
  while (!input.empty()) {
    Scalar scalar;
    scalar.value = kValues[input.Byte() % std::size(kValues)];
    scalar.step = static_cast<int32_t>(input.Number());
    scalar.tag = input.Text();
    scalars.push_back(scalar);
  }
  return scalars;
}

void Run(InputReader input) {
  const std::vector<Scalar> scalars = TakeScalars(input);
  static const ScratchFolder folder;
  {
    TensorBoardWriter writer = TensorBoardWriter::Create(folder.path()).value();
    for (const Scalar& scalar : scalars) {
      const absl::Status status =
          writer.AddScalar(scalar.tag, scalar.step, scalar.value);
      Check(status.ok(), "a scalar can be written");
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    SlowReader file(ReadFile(entry.path(), 1 << 30).value());
    TakeRecord(file);  // the version
    for (const Scalar& scalar : scalars) CheckScalar(TakeRecord(file), scalar);
    Check(file.done(), "no record follows");
    std::filesystem::remove(entry.path());
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::InputReader(data, size));
  return 0;
}
