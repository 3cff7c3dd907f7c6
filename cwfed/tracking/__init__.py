"""Reports on a run while it goes: TensorBoard, Weights & Biases, live lines, figures.

Here lives what only watches; nothing here changes a number or is needed to resume.
"""
