// The files that a data path stands for, in the order in which their rows are
// read.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dapd {

// `path` is one of these; what exists wins:
//   a file            *.jsonl, *.json, these with .gz, or *.parquet
//   a folder          its Parquet or JSON Lines files, those of its subfolders
//                     too
//   a glob            data/*.jsonl (glob(7): *, ?, [...]), each match a file
//   a hub id          org/name@revision, found in the local cache
//                     (common/hub/hub_cache.h) like a folder, or
//                     org/name@revision:main/train-*.parquet for some of it
// The order is that of the paths' bytes, so "10.jsonl" precedes "2.jsonl".
//
// A folder, in the cache or not, has to be unambiguous: Parquet beside JSON
// Lines, or several splits (names with test, validation or held_out in them,
// beside others), is an error that names files and asks for a glob; so is a set
// of shards "x-00001-of-00005" of which one is missing. A ".json" counts in a
// folder where nothing else does: beside Parquet files it describes them.
// Hidden files never count.
//
// Exit code kData; NOT_FOUND if there is nothing, with the command that
// downloads it where `path` may be an id.
absl::StatusOr<std::vector<std::string>> FindDataFiles(const std::string& path);

}  // namespace dapd
