// The format of a data file, by its name, and which files of a folder hold its
// rows.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

enum class DataFormat {
  kNone,       // no data set's
  kParquet,    // .parquet
  kArrow,      // .arrow: a stream or a file of Arrow's, as save_to_disk writes
  kJsonLines,  // .jsonl, .ndjson, also with .gz
  kJson,       // .json, also with .gz: JSON Lines, or one array of rows
  // Known, and not read:
  kCsv,         // .csv, .tsv
  kCompressed,  // JSON or CSV compressed by another program than gzip
};

DataFormat DataFormatOf(absl::string_view name);
bool IsReadable(DataFormat format);

// Why `name`, whose format is not readable, is not read, and what to do.
std::string WhyNotRead(absl::string_view name);

// The files that hold the rows of `where`, which `datasets` decides by counting
// endings: all are of one format; .json and .jsonl are one. Files that
// describe others, .json or .csv, are left out beside at least as many files of
// rows. Anything else is an error that names files and asks for a glob, as is a
// format that is not readable. Exit code kData; NOT_FOUND without files.
absl::StatusOr<std::vector<std::string>> FilesOfOneFormat(
    const std::string& where, const std::vector<std::string>& files);

}  // namespace dapd
