"""Lines as training programs print them: of our own making, in the shapes of the sources that are named."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """Hold what a program prints, and what is to be understood of it; *source* is project, version and file."""

    program: str
    source: str
    text: str
    reader: str
    step: int | None
    loss: float | None
    total: int | None = None


HEAVY, LIGHT = "\N{BOX DRAWINGS HEAVY HORIZONTAL}", "\N{FULL BLOCK}"


def bar(title: str, done: int, total: int, more: str = "") -> str:
    """Return a bar as tqdm 4.67 draws it (tqdm/std.py, format_meter), after the carriage return."""
    head = f"{title}: " if title else ""
    return (
        f"\r{head}{100 * done // total:3d}%|{LIGHT * (10 * done // total):10}| {done}/{total} "
        f"[00:03<00:09,  4.31it/s{', ' + more if more else ''}]"
    )


SAMPLES = (
    Sample(
        "xgboost", "xgboost 3.2.0, python-package/xgboost/callback.py, EvaluationMonitor",
        "[0]\ttrain-logloss:0.59012\teval-logloss:0.61\n[1]\ttrain-logloss:0.51230\teval-logloss:0.58\n",
        "rounds", 1, 0.5123,
    ),
    Sample(
        "LightGBM", "lightgbm 4.6.0, callback.py, _format_eval_result",
        "[10]\ttraining's binary_logloss: 0.62\tvalid_0's binary_logloss: 0.7\n", "rounds", 10, 0.62,
    ),
    Sample("CatBoost", "catboost 1.2", "7:\tlearn: 0.4512\ttotal: 2.1s\tremaining: 3s\n", "rounds", 7, 0.4512),
    Sample("own-loop", "a loop of one's own", "[35] train_loss=0.25000\n[40/90] train_loss=0.2\n", "rounds", 40, 0.2, 90),
    Sample("scikit-learn", "a loop of one's own", "epoch 3/60 - log_loss: 0.4100\n", "epochs", 3, 0.41, 60),
    Sample(
        "MaxText",
        "AI-Hypercomputer/maxtext 000e6d8, src/maxtext/common/metric_logger.py",
        "completed step: 28, seconds: 0.311, TFLOP/s/device: 0.101, Tokens/s/device: 211.0, total_weights: 512, "
        "loss: 6.012, lm_loss: 6.000, perplexity: 403.4\n"
        "Completed eval step: 0, seconds: 0.100, running loss=9.500, running perplexity=13359.7\n"
        "Completed eval after train step 28, loss=9.400, perplexity=12088.3, total_weights=64\n"
        "completed step: 29, seconds: 0.309, TFLOP/s/device: 0.102, Tokens/s/device: 212.0, total_weights: 512, "
        "loss: 5.870, lm_loss: 5.860, perplexity: 350.7\n",
        "lines", 29, 5.870,
    ),
    Sample(
        "nanoGPT",
        "karpathy/nanoGPT 3adf61e, train.py",
        "number of parameters: 0.80M\nstep 0: train loss 4.2874, val loss 4.2823\n"
        "iter 0: loss 4.2655, time 812.33ms, mfu -100.00%\niter 10: loss 3.1311, time 21.02ms, mfu 0.07%\n",
        "lines", 10, 3.1311,
    ),
    Sample(
        "nanochat",
        "karpathy/nanochat 00255c1, scripts/base_train.py",
        "Step 00000 | Validation bpb: 3.301200\n"
        "step 00012/00500 (2.40%) | loss: 6.551234 | lrm: 1.00 | dt: 101.22ms | tok/sec: 5,179 | bf16_mfu: 1.10 "
        "| epoch: 1 pq: 0 rg: 4 | total time: 0.02m | eta: 0.8m\nStep 00012 | CORE metric: 0.0100\n",
        "lines", 12, 6.551234, 500,
    ),
    Sample(
        "fairseq, simple",
        "facebookresearch/fairseq 0400ebb, fairseq/logging/progress_bar.py (SimpleProgressBar)",
        "2026-11-02 10:00:01 | INFO | train_inner | epoch 002:     10 / 50 loss=9.871, ppl=936.2, wps=12034, "
        "ups=3.1, wpb=3880.2, bsz=8, num_updates=60, lr=3e-05, gnorm=1.9, loss_scale=64, train_wall=3, wall=21\n"
        "2026-11-02 10:00:09 | INFO | valid | epoch 002 | valid on 'valid' subset | loss 11.101 | ppl 2196.1 | "
        "num_updates 60\n",
        "lines", 60, 9.871,
    ),
    Sample(
        "fairseq, json",
        "facebookresearch/fairseq 0400ebb, fairseq/logging/progress_bar.py (JsonProgressBar)",
        '2026-11-02 10:00:01 | INFO | train_inner | {"epoch": 2, "update": 1.2, "loss": "9.871", "ppl": "936.2", '
        '"ups": "3.1", "num_updates": "60", "lr": "3e-05"}\n',
        "lines", 60, 9.871,
    ),
    Sample(
        "torchtitan",
        "pytorch/torchtitan c594d8a, torchtitan/components/metrics.py",
        "[rank0]:[titan] 2026-11-02 10:00:01,101 - root - INFO - \x1b[31mstep: 20  \x1b[32mloss:  7.1234  "
        "\x1b[38;2;180;60;0mgrad_norm:  1.9012  \x1b[38;2;54;234;195mmemory:  1.20GiB(3.10%)  \x1b[34mtps: 9,101\x1b[39m\n",
        "lines", 20, 7.1234,
    ),
    Sample(
        "Megatron-LM",
        "NVIDIA/Megatron-LM, megatron/training/training.py (training_log)",
        " [2026-11-02 10:00:01] iteration       20/     100 | consumed samples:          160 | elapsed time per "
        "iteration (ms): 101.2 | learning rate: 1.000000E-04 | global batch size:     8 | lm loss: 9.102231E+00 | "
        "loss scale: 1.0 | grad norm: 1.002 |\n",
        "lines", 20, 9.102231, 100,
    ),
    Sample(
        "flax examples (clu)",
        "google/CommonLoopUtils 04ad2f9, clu/metric_writers/logging_writer.py",
        "I1102 10:00:01.111222 139911 logging_writer.py:48] [200] accuracy=0.410000, learning_rate=0.001, loss=3.250000\n"
        "I1102 10:00:04.111222 139911 logging_writer.py:48] [200] eval_accuracy=0.400000, eval_loss=3.900000\n",
        "lines", 200, 3.25,
    ),
    Sample(
        "TF estimator",
        "tensorflow/estimator, basic_session_run_hooks.py (LoggingTensorHook)",
        "INFO:tensorflow:global_step/sec: 12.1\nINFO:tensorflow:loss = 2.125, step = 1200 (8.100 sec)\n",
        "lines", 1200, 2.125,
    ),
    Sample("a script", "docs/your-own-job.md", "step 5 loss 0.2\n", "lines", 5, 0.2),
    Sample("a script", "the usual", "step=5 loss=0.2 lr=1e-3\n", "lines", 5, 0.2),
    Sample("a script", "the usual", "Step 100/1000, Loss: 2.3\n", "lines", 100, 2.3, 1000),
    Sample("a script", "the usual", '{"step": 1,200, "loss": 2.5e-1}\n', "lines", 1200, 0.25),
    Sample("a script", "the usual", "INFO:root:[Iter #40] training loss = 0.125, val loss = 9\n", "lines", 40, 0.125),
    Sample(
        "HF Trainer 4.x",
        "huggingface/transformers 4.x, src/transformers/trainer_callback.py (ProgressCallback)",
        bar("Map", 900, 900) + "\n" + bar("", 0, 120) + bar("", 40, 120)
        + "\r" + " " * 60 + "\r{'loss': 6.4101, 'grad_norm': 1.5, 'learning_rate': 3.4e-05, 'epoch': 0.33}\n"
        + bar("", 41, 120) + bar("", 0, 30) + bar("", 30, 30)
        + "\r{'eval_loss': 6.9, 'eval_runtime': 1.2, 'epoch': 0.33}\n" + bar("", 42, 120) + "\r",
        "trainer", 42, 6.4101, 120,
    ),
    Sample(
        "HF Trainer 5.x",
        "huggingface/transformers 5.23.0, src/transformers/trainer_callback.py (ProgressCallback)",
        bar("Loading weights", 200, 200) + "\n" + bar("", 1, 60)
        + "\r{'loss': '6.237', 'grad_norm': '1.482', 'learning_rate': '2e-05', 'epoch': '0.5'}\n"
        + bar("", 60, 60) + "\n" + bar("", 900, 900)
        + "\n{'train_runtime': '9.1', 'train_loss': '6.5', 'epoch': '1'}\n",
        "trainer", 60, 6.237, 60,
    ),
    Sample(
        "TRL 1.16 (SFTTrainer)",
        "huggingface/trl 1.16.0, trl/trainer/sft_trainer.py",
        bar("Tokenizing train dataset", 64, 64) + "\n" + bar("", 2, 60)
        + "\r{'loss': '5.901', 'grad_norm': '2.0', 'learning_rate': '1e-05', 'entropy': '5.7', 'num_tokens': '2048', "
        "'mean_token_accuracy': '0.11', 'epoch': '0.1'}\n" + bar("", 3, 60) + "\r",
        "trainer", 3, 5.901, 60,
    ),
    Sample(
        "Keras, verbose=1",
        "keras 3.15.1, keras/src/utils/progbar.py",
        f"Epoch 3/15\n\x08\x08\r\x1b[1m  1/312\x1b[0m \x1b[37m{HEAVY * 20}\x1b[0m \x1b[1m3s\x1b[0m 11ms/step - accuracy: "
        f"0.5 - loss: 0.9000\r\x1b[1m312/312\x1b[0m \x1b[32m{HEAVY * 20}\x1b[0m\x1b[37m\x1b[0m \x1b[1m2s\x1b[0m 5ms/step - "
        "accuracy: 0.9 - loss: 0.1200 - val_accuracy: 0.8 - val_loss: 0.3000\n"
        f"\r\x1b[1m10/10\x1b[0m \x1b[32m{HEAVY * 20}\x1b[0m \x1b[1m0s\x1b[0m 5ms/step - accuracy: 0.7 - loss: 0.7000\n",
        "keras", 3, 0.12, 15,
    ),
    Sample(
        "Keras, verbose=2",
        "keras 3.15.1, keras/src/utils/progbar.py",
        "Epoch 1/5\n40/40 - 1s - 25ms/step - accuracy: 0.5 - loss: 1.5000\nEpoch 2/5\n"
        "40/40 - 1s - 25ms/step - accuracy: 0.6 - loss: 9.1250e-01\nEpoch 3/5\n",
        "keras", 2, 0.9125, 5,
    ),
    Sample(
        "Levanter",
        "tqdm-loggable 0.4.1, tqdm_loggable/tqdm_logging.py; stanford-crfm/levanter, src/levanter/callbacks",
        "2026-11-02T10:00:01 - 0 - tqdm_loggable.tqdm_logging - tqdm_logging.py:156 - INFO :: Progress on:train "
        "21.0it/1.00kit rate:1.5it/s remaining:10:52 elapsed:00:14 postfix:loss=10.7\n"
        "... INFO :: Progress on:eval 9.00it/10.0it rate:9.5it/s remaining:00:00 elapsed:00:01 postfix:loss=11.2\n",
        "levanter", 21, 10.7, 1000,
    ),
    Sample(
        "Lightning, tqdm",
        "lightning 2.6.6, lightning/pytorch/callbacks/progress/tqdm_progress.py",
        bar("Sanity Checking DataLoader 0", 2, 2) + bar("Epoch 0", 22, 22, "v_num=0, train_loss=3.100")
        + bar("Validation DataLoader 0", 5, 5) + bar("Epoch 2", 10, 22, "v_num=0, train_loss=2.250") + "\r",
        "bars", 54, 2.25,
    ),
    Sample(
        "Lightning, tqdm, resumed in the middle of an epoch",
        "lightning 2.6.6, lightning/pytorch/callbacks/progress/tqdm_progress.py",
        "Sanity Checking: |          | 0/? [00:00<?, ?it/s]\rTraining: |          | 0/? [00:00<?, ?it/s]"
        "\rTraining: |          | 111/? [00:13<00:00,  7.96it/s, loss=2.150]"
        "\rTraining: |          | 112/? [00:14<00:00,  7.85it/s, loss=2.130]\r",
        "bars", 112, 2.13,
    ),
    Sample(
        "Lightning, rich",
        "lightning 2.6.6, lightning/pytorch/callbacks/progress/rich_progress.py",
        f"Epoch 2/2 {HEAVY * 30} 22/22 0:00:01 \N{BULLET} 0:00:00 31.22it/s v_num: 0.000 train_loss: 1.500\n",
        "bars", 66, 1.5,
    ),
    Sample(
        "accelerate, diffusers",
        "huggingface/diffusers, examples/text_to_image/train_text_to_image.py",
        bar("Steps", 14, 200, "lr=1e-05, step_loss=0.0312") + bar("", 50, 50) + "\r",
        "bars", 14, 0.0312,
    ),
    Sample(
        "tqdm over epochs",
        "tqdm 4.67",
        bar("", 10, 10, "loss=2.5") + "\n" + bar("", 3, 10, "loss=1.5") + "\r",
        "bars", 13, 1.5, None,
    ),
    Sample(
        "PyTorch MNIST",
        "pytorch/examples, mnist/main.py",
        "Train Epoch: 2 [640/60000 (1%)]\tLoss: 0.250000\n\nTest set: Average loss: 0.0310, Accuracy: 9/10 (90%)\n",
        "epochs", 60640, 0.25,
    ),
    Sample(
        "PyTorch ImageNet",
        "pytorch/examples, imagenet/main.py",
        "Epoch: [1][  10/5005]\tTime  0.2 ( 0.5)\tData  0.0 ( 0.1)\tLoss 6.9001e+00 (6.9502e+00)\tAcc@1   0.00\n"
        "Test: [  0/196]\tTime  1.0 ( 1.0)\tLoss 9.9e+00 (9.9e+00)\n",
        "epochs", 10, 6.9001,
    ),
    Sample(
        "a script with epochs",
        "the usual",
        "Epoch [1/5], Step [100/600], Loss: 0.5000\nEpoch [2/5], Step [100/600], Loss: 0.3000\n",
        "epochs", 700, 0.3,
    ),
    Sample("a script with epochs", "the usual", "epoch 3 loss 0.5\n", "epochs", 3, 0.5),
    Sample("a script with epochs", "the usual", "Epoch 3/10 | train loss: 0.5 | val loss: 0.9\n", "epochs", 3, 0.5, 10),
)  # fmt: skip
"""What is printed on a machine where standard error is no terminal; titles and figures are invented."""
