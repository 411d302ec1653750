// RunDisplays: the parts of a trainer's process that show its run while it
// lives. The recorder keeps them up to date, main.cc serves them.
#pragma once

namespace dapd {

class RunAnswers;
class RunHistory;
class TrainerMetrics;
class TrainerStatus;

// None may be null, and all must outlive the objects that get them.
struct RunDisplays {
  TrainerMetrics* metrics = nullptr;
  TrainerStatus* status = nullptr;
  RunHistory* history = nullptr;
  RunAnswers* answers = nullptr;
};

}  // namespace dapd
