"""Compilers: CUDA source to cubin and PTX, and what ptxas says of it."""
