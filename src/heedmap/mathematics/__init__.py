"""The mathematics of attention: pure functions of tensors.

Probabilities, the rules that change them, maps refined by them, and for which steps a rule holds.
No model, no diffusers, no words.
"""

# pyright: reportUnsupportedDunderAll=false
__all__ = ["by_hand", "probabilities", "refining", "rules", "windows"]
