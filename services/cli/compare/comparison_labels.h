// The labels of a comparison, in a terminal and on its page.
#pragma once

#include <string>

#include "services/cli/compare/comparison.h"

namespace dapd {

// Returns "slow (3 runs)", or "slow (3 runs of 2 seeds)".
std::string GroupLabel(const RunGroup& group);

// Returns the figure's name in `words`; a marker's share also names its marker.
std::string FigureTitle(const ComparedFigure& figure, const std::string& words);

}  // namespace dapd
