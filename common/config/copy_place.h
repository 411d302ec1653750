// The place of a run's copies (checkpoint.copy_to): a folder, or a URL of an
// object store.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace dapd {

// Returns what is wrong with `url` if it is neither a folder nor the URL of a
// store, for example because a slash is missing; empty if it is good.
std::string StoreProblem(const std::string& url);

// Returns one line per problem: an invalid URL, a URL with credentials, or a
// folder that is run.output_dir, by whatever name.
std::vector<std::string> FindCopyProblems(const Config& config);

}  // namespace dapd
