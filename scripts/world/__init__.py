"""The drawn world: scenes with exact masks and texts, for training and measuring models.

It is drawn without a model: no torch, no diffusers.
"""
