// Matches the patterns by which a data set names its files, as the library
// `datasets` does (fsspec's glob): * and ? stand for characters other than '/';
// [abc], [a-z] and [!a] stand for one character; a part of the path that is **
// stands for any number of folders, or, as the last part, for everything below.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Returns whether a pattern has any of * ? [. A pattern without them is the
// path of a file.
bool HasWildcard(absl::string_view pattern);

// Removes "./" and repeated slashes. Returns an error for a pattern that would
// lead out of the data set's folder (an absolute path, "..", a URL), or in
// which ** is only a piece of a part of the path.
absl::StatusOr<std::string> NormalizePattern(absl::string_view pattern);

// `path` is relative to the data set's folder. Files and folders that begin
// with '.', and folders that begin with "__", match only if the pattern has as
// many of them. The time is proportional to the product of the two lengths.
bool MatchesPattern(const std::string& pattern, const std::string& path);

}  // namespace dapd
