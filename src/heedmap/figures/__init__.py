"""Arrays to pictures: heat over a picture, figures of captioned panels, frames that move.

Pure functions of arrays, texts and Pillow images. No torch, and no maps: whoever has one hands its
values over.
"""
