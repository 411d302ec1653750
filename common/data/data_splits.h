// The splits of a data set, by the patterns of its card or by the names of its
// files, as the library `datasets` finds them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

struct SplitPatterns;

inline constexpr char kTrainSplit[] = "train";
// The configuration of a data set whose card describes none.
inline constexpr char kDefaultConfiguration[] = "default";

struct DataSplit {
  std::string name;
  // From the data set's folder, in the order in which they are read.
  std::vector<std::string> files;
};

// Words of letters, digits and '_', joined by '.'.
bool IsSplitName(absl::string_view name);

// `files`: all that the data set has, sorted. A pattern may match none, and a
// file may match several, of one split too: then it is there as often. An error
// (exit code of the data) for a path without wildcards that is not among them.
absl::StatusOr<std::vector<DataSplit>> SplitsByPatterns(
    const std::vector<SplitPatterns>& patterns,
    const std::vector<std::string>& files);

// By the first of these rules that finds something (an error, with the exit
// code of the data, for a shard after which no split may be called):
//   data/NAME-00000-of-00005*       the split NAME
//   a folder that has one of the words below in its name
//   a file that has one
//   everything                      the split train
// The words stand between characters of "-._ 0123456789" or the ends of the
// name: train, training; validation, valid, dev, val; test, testing, eval,
// evaluation. Files that the rule does not find are in no split.
//
// `dapd problems` calls the problems that it holds out held_out. `datasets` has
// no such word; here files with it in their names, or in the names of their
// folders, are a split held_out, and in no other.
absl::StatusOr<std::vector<DataSplit>> SplitsByName(
    const std::vector<std::string>& files);

}  // namespace dapd
