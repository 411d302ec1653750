// Holds the precompiled aten.h that the TORCH modules share; has no
// code.
