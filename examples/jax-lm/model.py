"""
A small decoder-only transformer over characters.
"""

import jax
import jax.numpy as jnp
from corpus import VOCABULARY


def initial_parameters(key, context, width, layers):
    """
    Return the parameters as nested dictionaries of arrays.
    """
    keys = iter(jax.random.split(key, 3 + 4 * layers))

    def matrix(rows, columns):
        return jax.random.normal(next(keys), (rows, columns)) / jnp.sqrt(rows)

    def layer():
        return {
            "qkv": matrix(width, 3 * width),
            "join": matrix(width, width),
            "scale1": jnp.ones(width),
            "up": matrix(width, 4 * width),
            "down": matrix(4 * width, width),
            "scale2": jnp.ones(width),
        }

    return {
        "embedding": 0.1 * matrix(VOCABULARY, width),
        "position": 0.1 * matrix(context, width),
        "layers": [layer() for _ in range(layers)],
        "scale": jnp.ones(width),
        "out": matrix(width, VOCABULARY),
    }


def normalised(x, scale):
    """
    Scale each vector to unit root mean square.
    """
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attention(x, layer, heads):
    """
    Let each position look at itself and those before it.
    """
    size, length, width = x.shape
    q, k, v = (part.reshape(size, length, heads, -1) for part in jnp.split(x @ layer["qkv"], 3, axis=-1))
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return mixed.reshape(size, length, width) @ layer["join"]


def mean_loss(parameters, windows, heads):
    """
    Return the mean loss in nats for each character of *windows* (batch, context + 1).
    """
    inputs, targets = windows[:, :-1], windows[:, 1:]
    x = parameters["embedding"][inputs] + parameters["position"]
    for layer in parameters["layers"]:
        x = x + attention(normalised(x, layer["scale1"]), layer, heads)
        x = x + jax.nn.gelu(normalised(x, layer["scale2"]) @ layer["up"]) @ layer["down"]
    logits = normalised(x, parameters["scale"]) @ parameters["out"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)
    return -jnp.mean(chosen)
