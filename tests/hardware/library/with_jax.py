"""A JAX script with NVTX ranges that wait for their result."""

import time

import jax
import jax.numpy as jnp
import nvtx

step = jax.jit(lambda a, b: a @ b)
a, b = (jax.random.normal(jax.random.PRNGKey(seed), (8192, 8192), jnp.bfloat16) for seed in (1, 2))
until = time.monotonic() + 1.5
while time.monotonic() < until:
    step(a, b).block_until_ready()
until = time.monotonic() + 3.0
while time.monotonic() < until:
    with nvtx.annotate("timed"):
        step(a, b).block_until_ready()
