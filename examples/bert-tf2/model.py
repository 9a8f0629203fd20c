"""
BERT with its masked-word head, in Keras layers whose weights map one to one to Hugging Face's.
"""

import tensorflow as tf
import tf_keras as keras

FAR = -1e9  # added to the attention score of padding


def drop(x, rate, seed, number):
    """
    Drop out by a seed alone, so that a resumed step drops what an unbroken one drops. No seed: keep all.
    """
    if seed is None or not rate:
        return x
    return tf.nn.experimental.stateless_dropout(
        x, rate, seed=tf.random.experimental.stateless_fold_in(seed, number)
    )


class Layer(keras.layers.Layer):
    """
    One encoder layer: attention, then two dense layers, each with a residual and normalisation.
    """

    def __init__(self, config, number):
        super().__init__(name=f"layer_{number}")
        self.config, self.number = config, number
        width, start = config["hidden_size"], keras.initializers.TruncatedNormal
        spread = config["initializer_range"]

        def dense(units, seed, activation=None):
            kernel = start(stddev=spread, seed=100 * number + seed)
            return keras.layers.Dense(units, activation=activation, kernel_initializer=kernel)

        self.query, self.key, self.value = (dense(width, seed) for seed in (1, 2, 3))
        self.attended = dense(width, 4)
        self.intermediate = dense(config["intermediate_size"], 5, activation=gelu)
        self.output_dense = dense(width, 6)
        epsilon = config["layer_norm_eps"]
        self.attended_norm = keras.layers.LayerNormalization(epsilon=epsilon)
        self.output_norm = keras.layers.LayerNormalization(epsilon=epsilon)

    def call(self, x, bias, seed):
        config = self.config
        heads = config["num_attention_heads"]

        def split(values):
            shape = tf.shape(values)
            values = tf.reshape(values, (shape[0], shape[1], heads, config["hidden_size"] // heads))
            return tf.transpose(values, (0, 2, 1, 3))

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = tf.matmul(query, key, transpose_b=True) * (config["hidden_size"] // heads) ** -0.5 + bias
        shares = drop(
            tf.nn.softmax(scores), config["attention_probs_dropout_prob"], seed, 3 * self.number + 1
        )
        mixed = tf.reshape(tf.transpose(tf.matmul(shares, value), (0, 2, 1, 3)), tf.shape(x))
        rate = config["hidden_dropout_prob"]
        x = self.attended_norm(x + drop(self.attended(mixed), rate, seed, 3 * self.number + 2))
        wide = self.output_dense(self.intermediate(x))
        return self.output_norm(x + drop(wide, rate, seed, 3 * self.number + 3))


class Bert(keras.Model):
    """
    Return logits over the vocabulary for the masked positions. *config* has Hugging Face's names.
    """

    def __init__(self, config):
        super().__init__(name="bert")
        self.config = config
        width, epsilon = config["hidden_size"], config["layer_norm_eps"]

        def start(seed):
            return keras.initializers.TruncatedNormal(stddev=config["initializer_range"], seed=seed)

        def table(rows, seed):
            return keras.layers.Embedding(rows, width, embeddings_initializer=start(seed))

        self.words = table(config["vocab_size"], 10001)
        self.places = table(config["max_position_embeddings"], 10002)
        self.kinds = table(config["type_vocab_size"], 10003)
        self.norm = keras.layers.LayerNormalization(epsilon=epsilon)
        self.encoder = [Layer(config, number) for number in range(config["num_hidden_layers"])]
        self.head = keras.layers.Dense(width, activation=gelu, kernel_initializer=start(10004))
        self.head_norm = keras.layers.LayerNormalization(epsilon=epsilon)
        self.head_bias = self.add_weight(name="head_bias", shape=(config["vocab_size"],), initializer="zeros")

    def call(self, ids, present, positions, seed=None):
        length = ids.shape[1]
        x = self.words(ids) + self.places(tf.range(length))[None] + self.kinds(tf.zeros_like(ids))
        x = drop(self.norm(x), self.config["hidden_dropout_prob"], seed, 0)
        bias = (1.0 - tf.cast(present, x.dtype))[:, None, None, :] * FAR
        for layer in self.encoder:
            x = layer(x, bias, seed)
        x = self.head_norm(self.head(tf.gather(x, positions, batch_dims=1)))
        return tf.matmul(x, self.words.embeddings, transpose_b=True) + self.head_bias


def gelu(x):
    """
    The exact form, which Hugging Face calls "gelu".
    """
    return tf.nn.gelu(x, approximate=False)
