//! Every EF_* option and the profiles that set them.
