#include "common/tensor/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/tensor/safetensors_header.h"

namespace dapd {
namespace {

absl::Status ReadAt(int descriptor,
                    const std::string& path,
                    uint64_t offset,
                    char* out,
                    uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t count =
        ::pread(descriptor, out, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("read", path, errno);
    if (count == 0) {
      return WithExitCode(absl::DataLossError(absl::StrCat(
                              path, " became shorter while it was read")),
                          ExitCode::kData);
    }
    out += count;
    offset += static_cast<uint64_t>(count);
    bytes -= static_cast<uint64_t>(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<HostTensor> AllocateFor(const SafetensorsEntry& entry) {
  return HostTensor::Allocate(entry.dtype, entry.shape);
}

absl::StatusOr<HostTensor> CopyOf(const SafetensorsEntry& entry,
                                  const char* content) {
  ASSIGN_OR_RETURN(HostTensor tensor, AllocateFor(entry));
  std::memcpy(
      tensor.data.get(), content, static_cast<size_t>(tensor.num_bytes()));
  return tensor;
}

// `make_tensor` makes a tensor of an entry and the beginning of its content.
template <typename MakeTensor>
absl::StatusOr<NamedTensors> ParseWith(absl::string_view bytes,
                                       const std::string& where,
                                       const MakeTensor& make_tensor) {
  ASSIGN_OR_RETURN(const SafetensorsParts parts,
                   SplitSafetensors(bytes, where));
  NamedTensors tensors;
  for (const auto& [name, entry] : parts.header.entries) {
    ASSIGN_OR_RETURN(HostTensor tensor,
                     make_tensor(entry, parts.data.data() + entry.begin));
    tensors.emplace_back(name, std::move(tensor));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.descriptor_ < 0) {
    return WithExitCode(FileError("open", path, errno), ExitCode::kData);
  }
  struct stat info = {};
  if (::fstat(file.descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
    return DataError(absl::StrCat(path, " is not a regular file"));
  }
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  char prefix[kSafetensorsPrefixBytes] = {};
  if (file_bytes >= kSafetensorsPrefixBytes) {
    RETURN_IF_ERROR(ReadAt(file.descriptor_, path, 0, prefix, sizeof(prefix)));
  }
  ASSIGN_OR_RETURN(
      const uint64_t length,
      ParseHeaderLength({prefix, sizeof(prefix)}, file_bytes, path));
  std::string json(length, '\0');
  RETURN_IF_ERROR(ReadAt(
      file.descriptor_, path, kSafetensorsPrefixBytes, json.data(), length));
  file.data_start_ = kSafetensorsPrefixBytes + length;
  ASSIGN_OR_RETURN(SafetensorsHeader header,
                   ParseHeader(json, file_bytes - file.data_start_, path));
  file.entries_ = std::move(header.entries);
  file.metadata_ = std::move(header.metadata);
  return file;
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      data_start_(other.data_start_),
      entries_(std::move(other.entries_)),
      metadata_(std::move(other.metadata_)) {}

SafetensorsFile::~SafetensorsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<HostTensor> SafetensorsFile::Read(
    const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return WithExitCode(
        absl::NotFoundError(absl::StrCat(path_, " has no tensor '", name, "'")),
        ExitCode::kData);
  }
  ASSIGN_OR_RETURN(HostTensor tensor, AllocateFor(found->second));
  RETURN_IF_ERROR(ReadAt(descriptor_,
                         path_,
                         data_start_ + found->second.begin,
                         tensor.data.get(),
                         static_cast<uint64_t>(tensor.num_bytes())));
  return tensor;
}

absl::StatusOr<std::string> SerializeSafetensors(
    const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(std::string bytes, FormatHeader(tensors, metadata));
  size_t total = bytes.size();
  for (const auto& [name, tensor] : tensors) total += tensor.bytes().size();
  bytes.reserve(total);
  for (const auto& [name, tensor] : tensors) {
    bytes.append(tensor.bytes().data(), tensor.bytes().size());
  }
  return bytes;
}

absl::StatusOr<NamedTensors> ParseSafetensors(absl::string_view bytes,
                                              const std::string& where) {
  return ParseWith(bytes, where, CopyOf);
}

absl::StatusOr<NamedTensors> ShareSafetensors(const SharedBytes& bytes,
                                              const std::string& where) {
  return ParseWith(
      bytes.view(),
      where,
      [&](const SafetensorsEntry& entry,
          const char* content) -> absl::StatusOr<HostTensor> {
        if (reinterpret_cast<uintptr_t>(content) % kTensorAlignment != 0) {
          return CopyOf(entry, content);
        }
        // Nobody writes to a shared HostTensor, although its type would allow
        // it.
        return HostTensor{entry.dtype,
                          entry.shape,
                          {std::const_pointer_cast<void>(bytes.owner()),
                           const_cast<char*>(content)}};
      });
}

absl::Status WriteSafetensors(
    const std::string& path,
    const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const std::string header, FormatHeader(tensors, metadata));
  ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Open(path));
  RETURN_IF_ERROR(file.Append(header));
  for (const auto& [name, tensor] : tensors) {
    RETURN_IF_ERROR(file.Append(tensor.bytes()));
  }
  return file.Commit();
}

}  // namespace dapd
