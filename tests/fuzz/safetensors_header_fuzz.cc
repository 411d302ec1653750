// Input: the number of data bytes (4 bytes), then a header's JSON.
// An accepted header covers the data exactly and stays the same when it is
// written and read.
#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/tensor/safetensors_header.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

bool Same(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin &&
         a.end == b.end;
}

// Returns tensors of the header's shapes, without data, in the order of their
// offsets.
NamedTensors InOrder(const SafetensorsHeader& header) {
  std::vector<std::pair<std::string, SafetensorsEntry>> entries(
      header.entries.begin(), header.entries.end());
  std::stable_sort(
      entries.begin(), entries.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.begin, a.second.end) <
               std::pair(b.second.begin, b.second.end);
      });
  NamedTensors tensors;
  for (const auto& [name, entry] : entries) {
    tensors.emplace_back(name, HostTensor{entry.dtype, entry.shape, nullptr});
  }
  return tensors;
}

void Run(uint64_t data_bytes, const std::string& json) {
  const auto header = ParseHeader(json, data_bytes, "input");
  if (!header.ok()) return;
  uint64_t covered = 0;
  for (const auto& [name, entry] : header->entries) {
    covered += entry.end - entry.begin;
  }
  Check(covered == data_bytes, "the tensors fill the data");
  const std::string written =
      FormatHeader(InOrder(*header), header->metadata).value();
  const uint64_t length =
      ParseHeaderLength(written, written.size() + data_bytes, "written")
          .value();
  Check(kSafetensorsPrefixBytes + length == written.size(),
        "the written prefix tells the header's length");
  const SafetensorsHeader again =
      ParseHeader(written.substr(kSafetensorsPrefixBytes), data_bytes, "again")
          .value();
  Check(again.metadata == header->metadata, "metadata survives");
  Check(again.entries.size() == header->entries.size(), "no tensor is lost");
  for (const auto& [name, entry] : header->entries) {
    Check(Same(entry, again.entries.at(name)), "an entry survives");
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::InputReader input(data, size);
  const uint32_t data_bytes = input.Number();
  dapd::Run(data_bytes, input.Rest());
  return 0;
}
