"""How the embedded model is measured: one file for each question.

`obedience`: does it draw what it is told? `swaps`, `blends`, `weights`, `places`: do its edits do
what they are for? `truth`: do maps say where the words are? And `drawn`: in pictures that
the model drew itself? They share `cases` (captions and pictures), `measures` (pure functions of
arrays) and the `judge`, who has seen rendered scenes only.
"""
