#include "common/metrics/tensorboard_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/crc32c.h"
#include "common/base/list_folder.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

template <typename Number>
std::string LittleEndian(Number value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

std::string Varint(uint64_t value) {
  std::string bytes;
  while (value >= 0x80) {
    bytes.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

// A protobuf field has the tag field number << 3 | wire type.
std::string DoubleField(int number, double value) {
  return Varint(static_cast<uint64_t>(number) << 3 | 1) + LittleEndian(value);
}
std::string FloatField(int number, float value) {
  return Varint(static_cast<uint64_t>(number) << 3 | 5) + LittleEndian(value);
}
std::string IntegerField(int number, int64_t value) {
  return Varint(static_cast<uint64_t>(number) << 3) +
         Varint(static_cast<uint64_t>(value));
}
std::string BytesField(int number, const std::string& value) {
  return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(value.size()) +
         value;
}

double Now() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

uint32_t MaskedCrc(const std::string& bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

constexpr absl::string_view kPrefix = "events.out.tfevents.";

// A run that is restarted within a second finds a file with the name of that
// second.
absl::StatusOr<int64_t> SecondsFor(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  int64_t seconds = absl::ToUnixSeconds(absl::Now());
  for (absl::string_view name : names) {
    int64_t taken = 0;
    if (absl::ConsumePrefix(&name, kPrefix) &&
        absl::SimpleAtoi(name.substr(0, name.find('.')), &taken)) {
      seconds = std::max(seconds, taken + 1);
    }
  }
  return seconds;
}

}  // namespace

absl::StatusOr<TensorBoardWriter> TensorBoardWriter::Create(
    const std::string& folder) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof(host) - 1);
  ASSIGN_OR_RETURN(const int64_t seconds, SecondsFor(folder));
  const std::string path =
      absl::StrCat(folder, "/", kPrefix, seconds, ".", host, ".", ::getpid());
  ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  TensorBoardWriter writer(std::move(file));
  // The record is Event {wall_time = 1, file_version = 3}.
  RETURN_IF_ERROR(writer.WriteRecord(DoubleField(1, Now()) +
                                     BytesField(3, "brain.Event:2")));
  return writer;
}

absl::Status TensorBoardWriter::AddStart(int64_t step) {
  constexpr int kStart = 1;  // SessionLog.SessionStatus
  return WriteRecord(DoubleField(1, Now()) + IntegerField(2, step) +
                     BytesField(7, IntegerField(1, kStart)));
}

absl::Status TensorBoardWriter::AddScalar(const std::string& tag,
                                          int64_t step,
                                          double value) {
  // The record is Event {wall_time = 1, step = 2, summary = 5} with Summary
  // {value = 1} and Value {tag = 1, simple_value = 2}.
  const std::string scalar =
      BytesField(1, tag) + FloatField(2, static_cast<float>(value));
  return WriteRecord(DoubleField(1, Now()) + IntegerField(2, step) +
                     BytesField(5, BytesField(1, scalar)));
}

absl::Status TensorBoardWriter::WriteRecord(const std::string& event) {
  const std::string length = LittleEndian(static_cast<uint64_t>(event.size()));
  const std::string record = length + LittleEndian(MaskedCrc(length)) + event +
                             LittleEndian(MaskedCrc(event));
  // Readers find a record by the lengths of the earlier records, and stop at a
  // torn record.
  return file_.AppendUnsynced(record);
}

}  // namespace dapd
