"""How the embedded model is trained: one file for each stage, and a few that the stages share.

Stages, in the order they run: `tokenizer`, `autoencoder` (with `whitening`), `latents`, `unet`,
`export`. Shared: `run` (processes, clock, log, checkpoints), `descent` and `muon` (optimising),
`models` (the networks), `pictures` (scenes as tensors). A stage imports nothing of a later one.
`scripts/train_tiny.py` is the command line.
"""
