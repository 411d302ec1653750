// This is the precompiled header of files that use LibTorch. All other files
// have common/base/precompiled.h.
#pragma once

#include "common/base/precompiled.h"
#include "common/tensor/aten.h"
