// The patterns by which a data set names its files, as the library `datasets`
// has them (fsspec's glob): * and ? stand for characters other than '/',
// [abc], [a-z] and [!a] for one character, and a part of the path that is **
// for any number of folders, or, as the last part, for everything below.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Whether a pattern has any of * ? [; one without is the path of a file.
bool HasWildcard(absl::string_view pattern);

// Without "./" and repeated slashes. An error for a pattern that would lead out
// of the data set's folder (an absolute path, "..", a URL), or in which ** is
// not a whole part of the path.
absl::StatusOr<std::string> NormalizePattern(absl::string_view pattern);

// `path`: from the data set's folder. Files and folders that begin with '.',
// and folders that begin with "__", count only where the pattern has as many of
// them. Takes time in proportion to the product of the two lengths.
bool MatchesPattern(const std::string& pattern, const std::string& path);

}  // namespace dapd
