// Where the copies of a run go (checkpoint.copy_to): a folder, or a URL of an
// object store.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace dapd {

// What is wrong with `url` if it is neither a folder nor of a store: one slash
// too few, say. Empty: nothing.
std::string StoreProblem(const std::string& url);

// One line a problem: a URL that is none or holds credentials, a folder that is
// run.output_dir, by whatever name.
std::vector<std::string> FindCopyProblems(const Config& config);

}  // namespace dapd
