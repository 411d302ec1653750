#include "common/tensor/safetensors_header.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxHeaderBytes = 16 << 20;
constexpr size_t kMaxTensors = 100000;
constexpr size_t kMaxRank = 8;
constexpr char kMetadataKey[] = "__metadata__";

const std::vector<std::pair<std::string, DType>>& DTypes() {
  static const auto& table = *new std::vector<std::pair<std::string, DType>>{
      {"F32", DType::kFloat32},
      {"BF16", DType::kBFloat16},
      {"F16", DType::kFloat16},
      {"I32", DType::kInt32},
      {"I64", DType::kInt64},
      {"U8", DType::kUInt8},
  };
  return table;
}

absl::StatusOr<uint64_t> ReadUnsigned(const nlohmann::json& value,
                                      const std::string& what) {
  if (!value.is_number_unsigned()) {
    return DataError(absl::StrCat(what, " is not a non-negative integer"));
  }
  return value.get<uint64_t>();
}

absl::StatusOr<SafetensorsEntry> ParseEntry(const nlohmann::json& json,
                                            const std::string& what) {
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets") || json.size() != 3) {
    return DataError(
        absl::StrCat(what, " must have exactly dtype, shape and data_offsets"));
  }
  SafetensorsEntry entry;
  const auto dtype =
      std::find_if(DTypes().begin(), DTypes().end(), [&](const auto& known) {
        return json["dtype"].is_string() &&
               json["dtype"].get<std::string>() == known.first;
      });
  if (dtype == DTypes().end()) {
    return DataError(absl::StrCat(what,
                                  " has dtype ",
                                  json["dtype"].dump(),
                                  "; F32, BF16, F16, I32, I64, U8 are read"));
  }
  entry.dtype = dtype->second;
  if (!json["shape"].is_array() || json["shape"].size() > kMaxRank) {
    return DataError(absl::StrCat(
        what, ": shape is not a list of at most ", kMaxRank, " numbers"));
  }
  for (const nlohmann::json& extent : json["shape"]) {
    ASSIGN_OR_RETURN(const uint64_t value,
                     ReadUnsigned(extent, absl::StrCat(what, ": an extent")));
    entry.shape.push_back(static_cast<int64_t>(value));
  }
  if (!json["data_offsets"].is_array() || json["data_offsets"].size() != 2) {
    return DataError(absl::StrCat(what, ": data_offsets is not a pair"));
  }
  ASSIGN_OR_RETURN(
      entry.begin,
      ReadUnsigned(json["data_offsets"][0], absl::StrCat(what, ": an offset")));
  ASSIGN_OR_RETURN(
      entry.end,
      ReadUnsigned(json["data_offsets"][1], absl::StrCat(what, ": an offset")));
  const auto count = CheckedNumElements(entry.shape, entry.dtype);
  if (!count.ok()) {
    return DataError(
        absl::StrCat(what, ": ", std::string(count.status().message())));
  }
  if (entry.end < entry.begin ||
      entry.end - entry.begin !=
          static_cast<uint64_t>(*count * DTypeBytes(entry.dtype))) {
    return DataError(absl::StrCat(what,
                                  ": shape and dtype need ",
                                  *count * DTypeBytes(entry.dtype),
                                  " bytes, the offsets ",
                                  entry.begin,
                                  "..",
                                  entry.end,
                                  " give a different number"));
  }
  return entry;
}

// The tensors must fill the data exactly, without holes or overlaps.
absl::Status CheckCoverage(
    const std::map<std::string, SafetensorsEntry>& entries,
    uint64_t data_bytes,
    const std::string& where) {
  std::vector<std::pair<std::string, SafetensorsEntry>> sorted(entries.begin(),
                                                               entries.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.begin, a.second.end) <
           std::pair(b.second.begin, b.second.end);
  });
  uint64_t position = 0;
  for (const auto& [name, entry] : sorted) {
    if (entry.begin != position) {
      return DataError(absl::StrCat(
          where,
          ": tensor '",
          name,
          "' begins at byte ",
          entry.begin,
          entry.begin < position ? ", inside its predecessor, which ends at "
                                 : ", leaving a hole after ",
          position));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    return DataError(absl::StrCat(where,
                                  ": the tensors need ",
                                  position,
                                  " bytes after the header, the file has ",
                                  data_bytes,
                                  "; is it truncated?"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> ParseHeaderLength(absl::string_view prefix,
                                           uint64_t file_bytes,
                                           const std::string& where) {
  if (file_bytes < kSafetensorsPrefixBytes ||
      prefix.size() < kSafetensorsPrefixBytes) {
    return DataError(absl::StrCat(
        where, " has ", file_bytes, " bytes: too short for safetensors"));
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = (length << 8) | static_cast<unsigned char>(prefix[i]);
  }
  if (IsLfsPointer(prefix)) {
    return DataError(absl::StrCat(where, kIsLfsPointer));
  }
  if (length > kMaxHeaderBytes ||
      length > file_bytes - kSafetensorsPrefixBytes) {
    return DataError(
        absl::StrCat(where,
                     ": the header claims ",
                     length,
                     " bytes, the file has ",
                     file_bytes,
                     "; it is truncated or not a safetensors file"));
  }
  return length;
}

absl::StatusOr<SafetensorsHeader> ParseHeader(absl::string_view json,
                                              uint64_t data_bytes,
                                              const std::string& where) {
  if (json.empty() || json[0] != '{') {
    return DataError(absl::StrCat(where, ": the header is not a JSON object"));
  }
  while (!json.empty() && json.back() == ' ') json.remove_suffix(1);
  if (json.back() != '}') {
    return DataError(
        absl::StrCat(where, ": only spaces may follow the header's JSON"));
  }
  ASSIGN_OR_RETURN(const nlohmann::json parsed,
                   ParseJson(json, absl::StrCat(where, " (header)")));
  SafetensorsHeader header;
  for (const auto& [name, value] : parsed.items()) {
    if (name == kMetadataKey) {
      if (!value.is_object()) {
        return DataError(absl::StrCat(where, ": ", name, " is not an object"));
      }
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) {
          return DataError(absl::StrCat(
              where, ": ", name, " entry '", key, "' is not a string"));
        }
        header.metadata[key] = text.get<std::string>();
      }
      continue;
    }
    ASSIGN_OR_RETURN(
        header.entries[name],
        ParseEntry(value, absl::StrCat(where, ": tensor '", name, "'")));
    if (header.entries.size() > kMaxTensors) {
      return DataError(
          absl::StrCat(where, " has more than ", kMaxTensors, " tensors"));
    }
  }
  RETURN_IF_ERROR(CheckCoverage(header.entries, data_bytes, where));
  return header;
}

absl::StatusOr<SafetensorsParts> SplitSafetensors(absl::string_view bytes,
                                                  const std::string& where) {
  ASSIGN_OR_RETURN(const uint64_t length,
                   ParseHeaderLength(bytes, bytes.size(), where));
  SafetensorsParts parts;
  parts.data = bytes.substr(kSafetensorsPrefixBytes + length);
  ASSIGN_OR_RETURN(parts.header,
                   ParseHeader(bytes.substr(kSafetensorsPrefixBytes, length),
                               parts.data.size(),
                               where));
  return parts;
}

absl::StatusOr<std::string> FormatHeader(
    const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[kMetadataKey] = metadata;
  uint64_t position = 0;
  for (const auto& [name, tensor] : tensors) {
    if (name == kMetadataKey || json.contains(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor name '", name, "' is taken"));
    }
    const auto dtype = std::find_if(
        DTypes().begin(), DTypes().end(), [&, &t = tensor](const auto& known) {
          return known.second == t.dtype;
        });
    const uint64_t end = position + static_cast<uint64_t>(tensor.num_bytes());
    json[name] = {{"dtype", dtype->first},
                  {"shape", tensor.shape},
                  {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text = json.dump();
  // The format requires an alignment of 8 bytes. With kTensorAlignment, tensors
  // in bytes of this alignment are aligned, too, as far as their sizes allow.
  const size_t excess =
      (kSafetensorsPrefixBytes + text.size()) % kTensorAlignment;
  text.append((kTensorAlignment - excess) % kTensorAlignment, ' ');
  std::string header;
  for (int i = 0; i < 8; ++i) {
    header.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xff));
  }
  return header + text;
}

}  // namespace dapd
