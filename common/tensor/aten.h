// LibTorch's tensors, as all files of the TORCH modules see them: the one
// header that is precompiled. Autograd and optimizers, which few need, have
// headers of their own (torch/...).
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
