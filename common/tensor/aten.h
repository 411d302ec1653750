// This is the only precompiled header with LibTorch's tensors, for all files of
// the TORCH modules. Autograd and optimizers, which few files need, have their
// own headers (torch/...).
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
