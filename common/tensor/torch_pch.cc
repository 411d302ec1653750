// Holds the precompiled ATen/ATen.h that the TORCH modules share; has no
// code.
