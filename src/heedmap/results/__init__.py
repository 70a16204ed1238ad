"""What was drawn, with the evidence: runs, edits and grids, in memory and on disk.

Saved whole, read back equal, shown as sheets and pages. No torch: what was saved opens without a
model.
"""

# pyright: reportUnsupportedDunderAll=false
