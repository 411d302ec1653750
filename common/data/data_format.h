// Finds the format of a data file by its name, and the files of a folder that
// hold its rows.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

enum class DataFormat {
  kNone,       // not a data file
  kParquet,    // .parquet
  kArrow,      // .arrow: a stream or a file of Arrow's IPC format, as
               // save_to_disk writes
  kJsonLines,  // .jsonl, .ndjson, also with .gz
  kJson,       // .json, also with .gz: JSON Lines, or one array of rows
  // Formats that are known, but not read:
  kCsv,         // .csv, .tsv
  kCompressed,  // JSON or CSV that another program than gzip compressed
};

DataFormat DataFormatOf(absl::string_view name);
bool IsReadable(DataFormat format);

// Says why a file of an unreadable format is not read, and what to do; `name`
// is the file's name.
std::string WhyNotRead(absl::string_view name);

// Returns the files that hold the rows of `where`. All have one format; .json
// and .jsonl count as one. `datasets` decides by counting endings, and so does
// this function: it leaves out .json or .csv files, which then describe other
// files, if there are at least as many files of rows. Any other mixture, or a
// format that is not readable, is an error that names files and asks for a
// glob. Errors have exit code kData; without files the error is NOT_FOUND.
absl::StatusOr<std::vector<std::string>> FilesOfOneFormat(
    const std::string& where, const std::vector<std::string>& files);

}  // namespace dapd
