"""The mathematics of attention: pure functions of tensors, without models and words."""
