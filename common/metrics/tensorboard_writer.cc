#include "common/metrics/tensorboard_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/crc32c.h"
#include "common/base/files.h"
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

// Protobuf fields: tag = field number << 3 | wire type.
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

}  // namespace

absl::StatusOr<TensorBoardWriter> TensorBoardWriter::Create(
    const std::string& folder) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof(host) - 1);
  const std::string path = absl::StrCat(folder,
                                        "/events.out.tfevents.",
                                        absl::ToUnixSeconds(absl::Now()),
                                        ".",
                                        host,
                                        ".",
                                        ::getpid());
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) return FileError("create", path, errno);
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) {
    const absl::Status error = FileError("stat", path, errno);
    ::close(descriptor);
    return error;
  }
  TensorBoardWriter writer(
      path, descriptor, static_cast<uint64_t>(info.st_size));
  // Event {wall_time = 1, file_version = 3}.
  RETURN_IF_ERROR(writer.WriteRecord(DoubleField(1, Now()) +
                                     BytesField(3, "brain.Event:2")));
  return writer;
}

TensorBoardWriter::TensorBoardWriter(std::string path,
                                     int descriptor,
                                     uint64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

TensorBoardWriter::TensorBoardWriter(TensorBoardWriter&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      torn_(other.torn_) {}

TensorBoardWriter::~TensorBoardWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status TensorBoardWriter::AddRestart(int64_t step) {
  constexpr int kStart = 1;  // SessionLog.SessionStatus
  return WriteRecord(DoubleField(1, Now()) + IntegerField(2, step) +
                     BytesField(7, IntegerField(1, kStart)));
}

absl::Status TensorBoardWriter::AddScalar(const std::string& tag,
                                          int64_t step,
                                          double value) {
  // Event {wall_time = 1, step = 2, summary = 5}, Summary {value = 1},
  // Value {tag = 1, simple_value = 2}.
  const std::string scalar =
      BytesField(1, tag) + FloatField(2, static_cast<float>(value));
  return WriteRecord(DoubleField(1, Now()) + IntegerField(2, step) +
                     BytesField(5, BytesField(1, scalar)));
}

absl::Status TensorBoardWriter::WriteRecord(const std::string& event) {
  const std::string length = LittleEndian(static_cast<uint64_t>(event.size()));
  const std::string record = length + LittleEndian(MaskedCrc(length)) + event +
                             LittleEndian(MaskedCrc(event));
  if (torn_) RETURN_IF_ERROR(CutTornRecord());
  torn_ = true;
  absl::Cleanup cut = [this] { CutTornRecord().IgnoreError(); };
  RETURN_IF_ERROR(WriteAll(descriptor_, path_, record));
  std::move(cut).Cancel();
  size_ += record.size();
  torn_ = false;
  return absl::OkStatus();
}

// Readers find a record by the lengths of those before it, and stop at one
// that is torn.
absl::Status TensorBoardWriter::CutTornRecord() {
  if (::ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) {
    return FileError("shorten", path_, errno);
  }
  torn_ = false;
  return absl::OkStatus();
}

}  // namespace dapd
