#include "common/data/data_format.h"

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/base/exit_code.h"
#include "common/base/printable.h"

namespace dapd {
namespace {

using Files = std::vector<std::string>;

constexpr absl::string_view kOtherCompressions[] = {
    ".zst", ".bz2", ".xz", ".lz4", ".zip"};

absl::string_view NameOf(DataFormat format) {
  switch (format) {
    case DataFormat::kParquet:
      return "Parquet";
    case DataFormat::kArrow:
      return "Arrow";
    case DataFormat::kJsonLines:
      return "JSON Lines";
    case DataFormat::kJson:
      return "JSON";
    case DataFormat::kCsv:
      return "CSV";
    case DataFormat::kCompressed:
      return "compressed";
    case DataFormat::kNone:
      break;
  }
  return "other";
}

// Returns the ending of a compression that is not read; empty if there is none.
absl::string_view OtherCompression(absl::string_view name) {
  for (const absl::string_view ending : kOtherCompressions) {
    if (absl::EndsWith(name, ending)) return ending;
  }
  return "";
}

// `name` must have no compression's ending.
DataFormat PlainFormatOf(absl::string_view name) {
  if (absl::EndsWith(name, ".jsonl") || absl::EndsWith(name, ".ndjson")) {
    return DataFormat::kJsonLines;
  }
  if (absl::EndsWith(name, ".json")) return DataFormat::kJson;
  if (absl::EndsWith(name, ".csv") || absl::EndsWith(name, ".tsv")) {
    return DataFormat::kCsv;
  }
  return DataFormat::kNone;
}

}  // namespace

DataFormat DataFormatOf(absl::string_view name) {
  if (absl::EndsWith(name, ".parquet")) return DataFormat::kParquet;
  if (absl::EndsWith(name, ".arrow")) return DataFormat::kArrow;
  absl::string_view plain = name;
  if (absl::ConsumeSuffix(&plain, OtherCompression(name)) &&
      plain.size() < name.size()) {
    return PlainFormatOf(plain) == DataFormat::kNone ? DataFormat::kNone
                                                     : DataFormat::kCompressed;
  }
  absl::ConsumeSuffix(&plain, ".gz");
  return PlainFormatOf(plain);
}

bool IsReadable(DataFormat format) {
  return format == DataFormat::kParquet || format == DataFormat::kArrow ||
         format == DataFormat::kJsonLines || format == DataFormat::kJson;
}

std::string WhyNotRead(absl::string_view name) {
  switch (DataFormatOf(name)) {
    case DataFormat::kCsv:
      return "CSV is not read, since it does not say which cells are texts; "
             "convert it to Parquet or JSON Lines";
    case DataFormat::kCompressed:
      return absl::StrCat("files compressed as ",
                          OtherCompression(name),
                          " are not read; unpack it, or compress it with gzip");
    default:
      return "the name must end in .parquet, .arrow, .jsonl, .ndjson or .json, "
             "or, for JSON, in one of these and .gz";
  }
}

absl::StatusOr<Files> FilesOfOneFormat(const std::string& where,
                                       const Files& files) {
  std::map<DataFormat, Files> by_format;
  for (const std::string& file : files) {
    by_format[DataFormatOf(file)].push_back(file);
  }
  by_format.erase(DataFormat::kNone);
  if (by_format.empty()) {
    return WithExitCode(
        absl::NotFoundError(absl::StrCat(
            where,
            " holds no .parquet, .arrow, .jsonl, .ndjson or .json file (nor a "
            "JSON file with .gz)")),
        ExitCode::kData);
  }
  // Beside JSON Lines a .json file holds rows, too.
  const DataFormat rows = by_format.begin()->first;
  std::vector<DataFormat> taken = {rows};
  if (rows == DataFormat::kJsonLines) taken.push_back(DataFormat::kJson);
  size_t num_rows = 0;
  for (const DataFormat format : taken) {
    if (by_format.contains(format)) num_rows += by_format[format].size();
  }
  for (const auto& [format, others] : by_format) {
    if (format == taken.front() || format == taken.back()) continue;
    const bool describes =
        format == DataFormat::kJson || format == DataFormat::kCsv;
    if (describes && others.size() <= num_rows) continue;
    return DataError(absl::StrCat(where,
                                  " holds ",
                                  NameOf(rows),
                                  " and ",
                                  NameOf(format),
                                  " files (",
                                  Printable(by_format[rows].front()),
                                  ", ",
                                  Printable(others.front()),
                                  "); choose with a glob"));
  }
  if (!IsReadable(rows)) {
    const std::string& first = by_format[rows].front();
    return DataError(
        absl::StrCat(where, ": ", Printable(first), ": ", WhyNotRead(first)));
  }
  Files chosen;
  for (const std::string& file : files) {
    const DataFormat format = DataFormatOf(file);
    if (format == taken.front() || format == taken.back()) {
      chosen.push_back(file);
    }
  }
  return chosen;
}

}  // namespace dapd
