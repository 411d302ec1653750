// Shows a row of the data as prompts are made of it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/data/dataset.h"
#include "common/data/text_pipeline.h"

namespace dapd {

// Returns the lines that `dapd check` prints of a row: its place, the parts of
// its conversation, the beginning and the end of its reference, and the
// sampler's prompt, whose special tokens and line ends are visible. Returns an
// error that names the row if its prompt cannot be rendered.
absl::StatusOr<std::vector<std::string>> RowText(const Problem& problem,
                                                 const TextPipeline& text);

}  // namespace dapd
