"""
A language model of two layers over a window of characters, its gradients by hand, and Adam.
"""

import numpy as np
from corpus import VOCABULARY


def initial_state(seed, context, embed, hidden):
    """
    Return the parameters, and zeros for both moments of Adam, as one flat dictionary of arrays.
    """
    rng = np.random.default_rng(seed)
    shapes = {
        "embedding": (VOCABULARY, embed),
        "w1": (context * embed, hidden),
        "b1": (hidden,),
        "w2": (hidden, VOCABULARY),
        "b2": (VOCABULARY,),
    }
    state = {}
    for name, shape in shapes.items():
        scale = 1.0 / np.sqrt(shape[0]) if name.startswith("w") else 0.1 * (name == "embedding")
        state[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
        state[f"m_{name}"] = np.zeros(shape, np.float32)
        state[f"v_{name}"] = np.zeros(shape, np.float32)
    return state


def names(state):
    """
    Return the parameters' names in a fixed order.
    """
    return sorted(name for name in state if not name.startswith(("m_", "v_")))


def gradients(state, inputs, targets):
    """
    Return the mean loss (nats for each character) and the gradient of each parameter.
    """
    rows = np.arange(len(targets))
    x = state["embedding"][inputs].reshape(len(targets), -1)
    h = np.tanh(x @ state["w1"] + state["b1"])
    logits = h @ state["w2"] + state["b2"]
    logits -= logits.max(axis=1, keepdims=True)
    total = np.exp(logits).sum(axis=1, keepdims=True)
    loss = float(np.mean(np.log(total[:, 0]) - logits[rows, targets]))

    d_logits = np.exp(logits) / total
    d_logits[rows, targets] -= 1.0
    d_logits /= len(targets)
    d_h = (d_logits @ state["w2"].T) * (1.0 - h * h)
    d_x = (d_h @ state["w1"].T).reshape(*inputs.shape, -1)
    d_embedding = np.zeros_like(state["embedding"])
    np.add.at(d_embedding, inputs, d_x)
    return loss, {
        "embedding": d_embedding,
        "w1": x.T @ d_h,
        "b1": d_h.sum(axis=0),
        "w2": h.T @ d_logits,
        "b2": d_logits.sum(axis=0),
    }


def adam(state, grads, step, *, rate, beta1=0.9, beta2=0.99, epsilon=1e-8):
    """
    Update *state* in place; *step* counts from 1.
    """
    for name, grad in grads.items():
        m, v = state[f"m_{name}"], state[f"v_{name}"]
        m += np.float32(1 - beta1) * (grad - m)
        v += np.float32(1 - beta2) * (grad * grad - v)
        correction = np.float32(rate * np.sqrt(1 - beta2**step) / (1 - beta1**step))
        state[name] -= correction * m / (np.sqrt(v) + np.float32(epsilon))
