// Compiled with each of the precompiled headers, because a library has to have
// a source.
