"""A JAX script with NVTX ranges that include the result: twenty products each, so that launching is a small part."""

import time

import jax
import jax.numpy as jnp
import nvtx


def products(a: jax.Array, b: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 20, lambda _, out: (a @ b) + out * 0, a)


step = jax.jit(products)
a, b = (jax.random.normal(jax.random.PRNGKey(seed), (8192, 8192), jnp.bfloat16) for seed in (1, 2))
until = time.monotonic() + 3.0
while time.monotonic() < until:
    step(a, b).block_until_ready()
until = time.monotonic() + 5.0
while time.monotonic() < until:
    with nvtx.annotate("timed"):
        step(a, b).block_until_ready()
