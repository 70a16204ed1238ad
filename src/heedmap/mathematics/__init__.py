"""The mathematics of attention: pure functions of tensors.

Probabilities, the rules that change them, maps refined by self-attention and by the edges of the
picture, how far two maps agree, the blend of latents, and for which steps a rule holds. No model,
no diffusers, no words.
"""

# pyright: reportUnsupportedDunderAll=false
