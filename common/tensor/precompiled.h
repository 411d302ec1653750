// The precompiled header of files that use LibTorch; common/base/precompiled.h
// is the one of all other files.
#pragma once

#include "common/base/precompiled.h"
#include "common/tensor/aten.h"
