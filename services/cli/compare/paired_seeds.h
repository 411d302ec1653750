// Computes differences over seeds by pairs. Runs of one seed have the same
// problems in the same order and sample with the same random numbers, as far as
// their other settings allow, so their figures move together: differences of
// pairs have narrower intervals than differences of independent runs.
#pragma once

#include "absl/status/status.h"

#include "services/cli/compare/comparison.h"

namespace dapd {

// Replaces "change" and "against_first" of each group by the means over its
// runs, with Student's t interval; the partner of a run is the run of the first
// group with the same run.seed. If all pairs agree, which says nothing about
// their spread, the interval stays that of independent runs. A pair with a
// missing figure is left out; fewer than two pairs give no interval. Rows of
// single runs stay unchanged.
//
// INVALID_ARGUMENT, exit code kUsage, names the group that prevents pairing:
// every group must have the same seeds, at least two, each once.
absl::Status PairBySeed(Comparison* comparison);

}  // namespace dapd
