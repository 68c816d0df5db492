"""Environments by language model: a paper's stages copied out of its sections, a question and a reference that share nothing, a rubric."""
