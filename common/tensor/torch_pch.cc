// Holds the precompiled torch/torch.h that the TORCH modules share; has no
// code.
