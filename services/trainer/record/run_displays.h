// RunDisplays: what of a trainer's process shows its run while it lives. The
// recorder keeps them up to date, main.cc serves them.
#pragma once

namespace dapd {

class RunAnswers;
class RunHistory;
class TrainerMetrics;
class TrainerStatus;

// None may be null, and all must outlive what is given them.
struct RunDisplays {
  TrainerMetrics* metrics = nullptr;
  TrainerStatus* status = nullptr;
  RunHistory* history = nullptr;
  RunAnswers* answers = nullptr;
};

}  // namespace dapd
