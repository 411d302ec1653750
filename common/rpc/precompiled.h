// Precompiled for the files that see gRPC, as common/base/precompiled.h is for
// all others.
#pragma once

#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"

#include "common/base/precompiled.h"
