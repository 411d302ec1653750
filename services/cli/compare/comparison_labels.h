// What a comparison calls its parts, in a terminal and on its page.
#pragma once

#include <string>

#include "services/cli/compare/comparison.h"

namespace dapd {

// "slow (3 runs)", or "slow (3 runs of 2 seeds)".
std::string GroupLabel(const RunGroup& group);

// `marker_rate, with " = "`, with `words` for the figure's name.
std::string FigureTitle(const ComparedFigure& figure, const std::string& words);

}  // namespace dapd
