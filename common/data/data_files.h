// The files that a data path stands for, in the order in which their rows are
// read.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/data_folder.h"

namespace dapd {

// `path` is one of these; what exists wins:
//   a file            *.parquet, *.arrow, *.jsonl, *.ndjson or *.json, and the
//                     JSON ones with .gz
//   a folder          a data set, whose configuration and split are chosen as
//                     data_folder.h says
//   folder#NAME       its configuration NAME; folder#NAME:SPLIT and
//                     folder#:SPLIT choose the split too
//   a glob            data/*.jsonl (glob(7): *, ?, [...]), each match a file
//   a hub id          org/name@revision, found in the local cache
//                     (common/hub/hub_cache.h) like a folder, also with #...,
//                     or org/name@revision:main/train-*.parquet for some of it
// The order is that of the patterns of a data set's card, else of the paths'
// bytes, so "10.jsonl" precedes "2.jsonl". `rule`: of several splits where the
// path names none.
//
// A folder, in the cache or not, has to be unambiguous: Parquet beside JSON
// Lines is an error that names files and asks for a glob (data_format.h); so is
// a set of shards "x-00001-of-00005" of which one is missing. Hidden files
// never count.
//
// Exit code kData; NOT_FOUND if there is nothing, with the command that
// downloads it where `path` may be an id.
absl::StatusOr<std::vector<std::string>> FindDataFiles(
    const std::string& path, SplitRule rule = SplitRule::kTrain);

}  // namespace dapd
