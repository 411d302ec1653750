// Precompiled for the files that see LibTorch, as common/base/precompiled.h is
// for all others.
#pragma once

#include "common/base/precompiled.h"
#include "common/tensor/aten.h"
