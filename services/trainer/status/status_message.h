// A TrainerStatus as the message that the status RPC and the status page send.
#pragma once

#include "dapd/v1/trainer.pb.h"
#include "services/trainer/status/trainer_status.h"

namespace dapd {

v1::GetStatusResponse StatusMessage(const TrainerStatus& status);

}  // namespace dapd
