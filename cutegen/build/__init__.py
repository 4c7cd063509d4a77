"""Building: kernels compiled in processes and cached, and the contract that what came out is what was planned."""
