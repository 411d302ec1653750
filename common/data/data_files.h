// Finds the files that a data path stands for, in the order in which their rows
// are read.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/data_folder.h"

namespace dapd {

// `path` is one of these; an existing file or folder has precedence:
//   a file       *.parquet, *.arrow, *.jsonl, *.ndjson or *.json; JSON files
//                also with .gz
//   a folder     a data set, whose configuration and split are chosen as
//                data_folder.h says
//   folder#NAME  its configuration NAME; folder#NAME:SPLIT and folder#:SPLIT
//                choose the split, too
//   a glob       data/*.jsonl (glob(7): *, ?, [...]); every match is a file
//   a hub id     org/name@revision, found in the local cache
//                (common/hub/hub_cache.h) and read like a folder, also with
//                #..., or org/name@revision:main/train-*.parquet for some of
//                its files
// The files are in the order of the patterns of the data set's card. Without
// such patterns they are in the order of the bytes of their paths, so
// "10.jsonl" precedes "2.jsonl". `rule` chooses one of several splits if the
// path names none.
//
// A folder must be unambiguous. Parquet beside JSON Lines is an error that
// names files and asks for a glob (data_format.h). A set of shards
// "x-00001-of-00005" with a missing shard is an error, too. Hidden files never
// count.
//
// Errors have exit code kData. If there is nothing, the error is NOT_FOUND; if
// `path` may be a hub id, its message has the command that downloads the data
// set.
absl::StatusOr<std::vector<std::string>> FindDataFiles(
    const std::string& path, SplitRule rule = SplitRule::kTrain);

}  // namespace dapd
