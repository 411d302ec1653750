// Finds the splits of a data set by the patterns of its card or by the names of
// its files, as the library `datasets` does.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

struct SplitPatterns;

inline constexpr char kTrainSplit[] = "train";
// If the card of a data set describes no configuration, the data set has one
// configuration with this name.
inline constexpr char kDefaultConfiguration[] = "default";

struct DataSplit {
  std::string name;
  // Relative to the data set's folder, in the order in which they are read.
  std::vector<std::string> files;
};

// Returns whether `name` consists of words of letters, digits and '_', joined
// by '.'.
bool IsSplitName(absl::string_view name);

// `files` are all files of the data set, sorted. A pattern may match nothing. A
// file that matches several patterns of a split occurs in it as many times. A
// path without wildcards that is not in `files` is an error (exit code kData).
absl::StatusOr<std::vector<DataSplit>> SplitsByPatterns(
    const std::vector<SplitPatterns>& patterns,
    const std::vector<std::string>& files);

// Applies the first of these rules that finds something. A shard with a name
// that no split may have is an error (exit code kData).
//   data/NAME-00000-of-00005*       the split NAME
//   a folder that has one of the words below in its name
//   a file that has one of the words below in its name
//   everything                      the split train
// The words stand between characters of "-._ 0123456789" or the ends of the
// name: train, training; validation, valid, dev, val; test, testing, eval,
// evaluation. Files that the rule does not find are in no split.
//
// `dapd problems` calls its held-out problems held_out. `datasets` does not
// know this word. Here, files with this word in their names, or in the names of
// their folders, form the split held_out and are in no other split.
absl::StatusOr<std::vector<DataSplit>> SplitsByName(
    const std::vector<std::string>& files);

}  // namespace dapd
