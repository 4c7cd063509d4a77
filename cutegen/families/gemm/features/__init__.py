"""Features of a GEMM, each a folder with its knobs, rules, choices and parts of a kernel; feature_list.py has all."""
